// The bf16 format: its arithmetic definition and its layout in memory. This header is the one place that fixes both.
//
// Weights and activations are bfloat16, rounded to nearest even. Blocks of 32 inputs ascending, and within a block,
// as the instruction TDPBF16PS does it (Intel SDM, vol. 2; checked on silicon):
//     even = chain of fma(w[2j], x[2j], even) over j = 0..15, from zero; odd likewise over w[2j+1], x[2j+1]
//     y    = y + (even + odd)
// with denormals flushed.
//
// Layout. A tile is 16 outputs over all inputs, one sequential stream: per 32 inputs 16 pairs x 16 outputs x 2 values,
// which is an AMX B tile.
#pragma once

#include <cstdint>

#include "kwker/base/float_types.hpp"
#include "kwker/base/round_up.hpp"

namespace kwker {

struct Bf16Layout {
  static constexpr int kOutputs = 16;
  static constexpr int kBlock = 32;

  std::int64_t outputs = 0;
  std::int64_t inputs = 0;  ///< As stored: rounded up to 32.

  Bf16Layout() = default;
  Bf16Layout(std::int64_t outputs_, std::int64_t inputs_)
      : outputs(outputs_), inputs(round_up<std::int64_t>(inputs_, kBlock)) {}

  std::int64_t tiles() const { return ceil_div<std::int64_t>(outputs, kOutputs); }
  /// Values of a tile.
  std::int64_t tile_size() const { return inputs * kOutputs; }
  std::int64_t size() const { return tiles() * tile_size(); }
  /// Where input k of output n is.
  std::int64_t offset(std::int64_t n, std::int64_t k) const {
    return n / kOutputs * tile_size() + k / 2 * (2 * kOutputs) + n % kOutputs * 2 + k % 2;
  }
};

/// Activation rows as the bf16 kernels take them: rounded, as floats for vectors and as bfloat16 for tiles; block by
/// block, the rows of a block one after the other, as Int8Rows. Kernels for tiles may read, and ignore, up to 15 rows
/// past the last.
struct Bf16Rows {
  float* values = nullptr;     ///< [inputs / kBlock, capacity, kBlock]
  bfloat16* halves = nullptr;  ///< The same.
  std::int64_t capacity = 0;   ///< Rows there is room for.

  float* values_at(std::int64_t block, std::int64_t row) const { return values + index(block, row); }
  bfloat16* halves_at(std::int64_t block, std::int64_t row) const { return halves + index(block, row); }

 private:
  std::int64_t index(std::int64_t block, std::int64_t row) const {
    return (block * capacity + row) * Bf16Layout::kBlock;
  }
};

}  // namespace kwker
