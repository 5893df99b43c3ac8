// The int4 format: its arithmetic definition and its layout in memory. This header is the one place that fixes both.
//
// Weights. Output n, input k: w = S * s * (q - z), with q in 0..15, and per group of 32, 64 or 128 inputs an integer
// sub-scale s in 1..16 and a zero-point z in 0..15, under one IEEE half S per block of up to 256 inputs.
// Activations. Per row and block a float scale A = max|x| / 127 and signed bytes a = round(x * (127 / max|x|)).
// Product. Blocks ascending:
//     dot = sum_k q s a - sum_groups s z sum_k a      exact in int32 and, below 2^24, in float
//     y   = fma(float(dot), S * A, y)
// The integer part has no order, so every instruction set may sum it as it likes.
//
// Layout. A tile is 16 outputs over all inputs: one sequential stream. For each block of it
//     nibbles   per 32 inputs 256 bytes: byte 64 j + 4 o + i holds inputs 8 j + i (low) and 8 j + 4 + i (high) of
//               output o, the operand order of VPDPBUSD and of an AMX B tile
//     meta      per group 16 bytes, one an output: (s - 1) | z << 4
//     scales    16 halves S
#pragma once

#include <algorithm>
#include <cstdint>

#include "kwker/base/round_up.hpp"

namespace kwker {

constexpr int int4_sub_scale(std::uint8_t meta) { return (meta & 15) + 1; }
constexpr int int4_zero_point(std::uint8_t meta) { return meta >> 4; }

/// One block of a tile, as kernels see it.
struct Int4Block {
  int inputs = 0;       ///< A multiple of 32.
  int group = 32;       ///< Inputs of a group.
  int group_shift = 5;  ///< log2(group).
  int groups = 0;
  int meta_offset = 0;   ///< Bytes from the start of the block.
  int scale_offset = 0;  ///< The same.
  int bytes = 0;
};

/// Where things are in a matrix of [outputs, inputs].
struct Int4Layout {
  static constexpr int kOutputs = 16;    ///< Outputs of a tile.
  static constexpr int kMaxBlock = 256;  ///< A block's dot product stays below 2^24: 256 * 240 * 127.

  std::int64_t outputs = 0;
  std::int64_t inputs = 0;  ///< As stored: rounded up to 32.
  int group = 32;
  int block = 0;  ///< Inputs of every block but perhaps the last.

  Int4Layout() = default;
  Int4Layout(std::int64_t outputs_, std::int64_t inputs_, int group_)
      : outputs(outputs_), inputs(round_up<std::int64_t>(inputs_, 32)), group(group_) {
    // As few blocks as fit, of about equal size, in whole groups and in the 64 inputs of an AMX step.
    const std::int64_t blocks = ceil_div<std::int64_t>(inputs, kMaxBlock);
    block = static_cast<int>(round_up<std::int64_t>(ceil_div(inputs, blocks), std::max(64, group)));
  }

  std::int64_t tiles() const { return ceil_div<std::int64_t>(outputs, kOutputs); }
  int blocks() const { return static_cast<int>(ceil_div<std::int64_t>(inputs, block)); }
  /// Group sums that an activation row stores per block: an even number, for kernels that take them in pairs.
  int sums_per_block() const { return round_up(block / group, 2); }

  Int4Block block_at(int index) const {
    Int4Block b;
    b.inputs = static_cast<int>(std::min<std::int64_t>(block, inputs - std::int64_t{index} * block));
    b.group = group;
    b.group_shift = group == 32 ? 5 : group == 64 ? 6 : 7;
    b.groups = ceil_div(b.inputs, group);
    b.meta_offset = b.inputs * 8;
    b.scale_offset = b.meta_offset + b.groups * 16;
    b.bytes = b.scale_offset + 32;
    return b;
  }
  std::int64_t tile_bytes() const {
    return std::int64_t{blocks() - 1} * block_at(0).bytes + block_at(blocks() - 1).bytes;
  }
  std::int64_t bytes() const { return tiles() * tile_bytes(); }
};

/// Activation rows as the int4 kernels take them. Strides are in elements from row to row.
struct Int8Rows {
  std::int8_t* values = nullptr;  ///< [rows, inputs]
  float* scales = nullptr;        ///< [rows, blocks]
  std::int16_t* sums = nullptr;   ///< [rows, blocks, sums_per_block]
  std::int64_t value_stride = 0;
  std::int64_t scale_stride = 0;
  std::int64_t sum_stride = 0;
};

/// One row's part of one block.
struct Int8Block {
  const std::int8_t* values;
  const std::int16_t* sums;
};

}  // namespace kwker
