// Quantisers: from a row of float weights to the int4 format.
#pragma once

#include <cstdint>
#include <vector>

#include "kwker/base/float_types.hpp"
#include "kwker/kernels/int4_layout.hpp"

namespace kwker {

/// One block of one output, quantised. Vectors are reused from call to call.
struct QuantizedBlock {
  std::vector<std::uint8_t> values;  ///< q, one per input.
  std::vector<std::uint8_t> meta;    ///< (s - 1) | z << 4, one per group.
  float16 scale;                     ///< S
};

/// Simple rounding: each group's range, zero included, in 15 steps; the block's scale so that the widest group has
/// sub-scale 16. `weights` holds block.inputs finite values.
void quantize_block(const float* weights, const Int4Block& block, QuantizedBlock& out);

}  // namespace kwker
