// Appending to the cache.
#include "kwker/model/kv_cache.hpp"

#include <bit>

#include "kwker/base/round_up.hpp"

namespace kwker {
namespace {

/// A float that is rounded to bfloat16 already.
bfloat16 upper_half(float x) { return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16)}; }

/// Rounds to bfloat16; infinities become the largest finite value, NaN becomes 0.
bfloat16 to_finite_bfloat16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu, rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const std::uint32_t largest = (bits & 0x80000000u) | 0x7f7f0000u;
  // Magnitudes that would round to infinity, and infinity; then NaN.
  std::uint32_t result = magnitude < 0x7f7f8000u ? rounded : largest;
  result = magnitude > 0x7f800000u ? 0u : result;
  return {static_cast<std::uint16_t>(result >> 16)};
}

}  // namespace

KvCache::KvCache(int slots, std::int64_t layers, std::int64_t heads, std::int64_t head_dim, std::int64_t max_len)
    : layers_(layers),
      heads_(heads),
      head_dim_(head_dim),
      capacity_(round_up<std::int64_t>(max_len, 32)),
      slots_(static_cast<std::size_t>(slots)) {}

void KvCache::reserve(int slot) {
  AlignedBuffer<bfloat16>& memory = slots_[static_cast<std::size_t>(slot)];
  if (memory.size() == 0) {
    memory = AlignedBuffer<bfloat16>(static_cast<std::size_t>(layers_ * heads_ * 2 * head_dim_ * capacity_));
  }
}

std::int64_t KvCache::bytes() const {
  std::int64_t total = 0;
  for (const auto& memory : slots_) total += static_cast<std::int64_t>(memory.bytes());
  return total;
}

void KvCache::append(int slot, std::int64_t layer, std::int64_t head, std::int64_t position, const float* key,
                     const float* value) {
  bfloat16* base = at(slot, layer, head);
  bfloat16* keys = base + position / 16 * 16 * head_dim_ + position % 16 * 2;
  for (std::int64_t d = 0; d < head_dim_; d += 2, keys += 32) {
    keys[0] = upper_half(key[d]);
    keys[1] = upper_half(key[d + 1]);
  }
  bfloat16* values =
      base + head_dim_ * capacity_ + position / 32 * 32 * head_dim_ + position % 32 / 2 * 32 + position % 2;
  for (std::int64_t d = 0; d < head_dim_; ++d) values[d / 16 * 512 + d % 16 * 2] = to_finite_bfloat16(value[d]);
}

void KvCache::prefetch(int slot, std::int64_t layer, std::int64_t head, std::int64_t position) const {
  const bfloat16* keys = this->keys(slot, layer, head) + position / 16 * 16 * head_dim_;
  for (std::int64_t d = 0; d < head_dim_; d += 2) __builtin_prefetch(keys + d * 16, 1);
  const bfloat16* values = this->values(slot, layer, head) + position / 32 * 32 * head_dim_ + position % 32 / 2 * 32;
  for (std::int64_t d = 0; d < head_dim_; d += 16) __builtin_prefetch(values + d * 32, 1);
}

}  // namespace kwker
