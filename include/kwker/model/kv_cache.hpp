// The key-value cache in bfloat16: one slot per sequence, laid out for the attention kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/base/float_types.hpp"

namespace kwker {

/// Per slot, layer and key-value head: keys [positions / 16, head_dim / 2, 16, 2] and values
/// [positions / 32, head_dim / 16, 16, 16, 2], so that both are read in one stream. A slot takes memory from its first
/// use on. Values are always finite, so that a position with weight 0 adds nothing whatever it held before.
class KvCache {
 public:
  /// head_dim: as stored, a multiple of 32.
  KvCache(int slots, std::int64_t layers, std::int64_t heads, std::int64_t head_dim, std::int64_t max_len);

  /// Gives the slot memory if it has none. Throws std::bad_alloc.
  void reserve(int slot);
  std::int64_t capacity() const { return capacity_; }
  std::int64_t bytes() const;

  const bfloat16* keys(int slot, std::int64_t layer, std::int64_t head) const { return at(slot, layer, head); }
  const bfloat16* values(int slot, std::int64_t layer, std::int64_t head) const {
    return at(slot, layer, head) + head_dim_ * capacity_;
  }
  /// Stores one position. `key` and `value` hold head_dim floats; the key is rounded to bfloat16 already.
  void append(int slot, std::int64_t layer, std::int64_t head, std::int64_t position, const float* key,
              const float* value);
  /// Asks for the memory that an append will write.
  void prefetch(int slot, std::int64_t layer, std::int64_t head, std::int64_t position) const;

 private:
  bfloat16* at(int slot, std::int64_t layer, std::int64_t head) const {
    return const_cast<bfloat16*>(slots_[static_cast<std::size_t>(slot)].data()) +
           (layer * heads_ + head) * 2 * head_dim_ * capacity_;
  }

  std::int64_t layers_, heads_, head_dim_, capacity_;
  std::vector<AlignedBuffer<bfloat16>> slots_;
};

}  // namespace kwker
