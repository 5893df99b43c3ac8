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
//     meta      per two groups 32 bytes: byte 2 o + i is (s - 1) | z << 4 of output o and group i
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
  int inputs = 0;  ///< A multiple of 32.
  int group = 32;  ///< Inputs of a group.
  int groups = 0;
  int meta_offset = 0;   ///< Bytes from the start of the block.
  int scale_offset = 0;  ///< The same.
  int bytes = 0;

  constexpr Int4Block() = default;
  constexpr Int4Block(int inputs_, int group_)
      : inputs(inputs_),
        group(group_),
        groups(ceil_div(inputs, group)),
        meta_offset(inputs * 8),
        scale_offset(meta_offset + round_up(groups, 2) * 16),
        bytes(scale_offset + 32) {}

  /// Whether this is kCommonInt4Block.
  constexpr bool common() const { return inputs == 256 && group == 32; }
  /// Offset of the meta byte of a group and an output.
  int meta(int group_index, int output) const {
    return meta_offset + group_index / 2 * 32 + output * 2 + group_index % 2;
  }
};

/// The shape of most blocks. Kernels know it as a constant: their loops then have no exits that a CPU could mispredict.
constexpr Int4Block kCommonInt4Block{256, 32};

/// Where things are in a matrix of [outputs, inputs].
class Int4Layout {
 public:
  static constexpr int kOutputs = 16;    ///< Outputs of a tile.
  static constexpr int kMaxBlock = 256;  ///< A block's dot product stays below 2^24: 256 * 240 * 127.

  Int4Layout() = default;
  /// group: 32, 64 or 128.
  Int4Layout(std::int64_t outputs, std::int64_t inputs, int group)
      : outputs_(outputs), inputs_(round_up<std::int64_t>(inputs, 32)) {
    // As few blocks as fit, of about equal size, in whole groups and in the 64 inputs of an AMX step.
    const std::int64_t fewest = ceil_div<std::int64_t>(inputs, kMaxBlock);
    block_ = static_cast<int>(round_up<std::int64_t>(ceil_div(inputs, fewest), std::max(64, group)));
    blocks_ = static_cast<int>(ceil_div<std::int64_t>(inputs_, block_));
    full_ = {static_cast<int>(std::min<std::int64_t>(block_, inputs_)), group};
    last_ = {static_cast<int>(inputs_ - std::int64_t{blocks_ - 1} * block_), group};
    tile_bytes_ = std::int64_t{blocks_ - 1} * full_.bytes + last_.bytes;
  }

  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }  ///< As stored: rounded up to 32.
  int block() const { return block_; }             ///< Inputs of every block but perhaps the last.
  int blocks() const { return blocks_; }
  const Int4Block& block_at(int index) const { return index + 1 < blocks_ ? full_ : last_; }
  std::int64_t tiles() const { return ceil_div<std::int64_t>(outputs_, kOutputs); }
  std::int64_t tile_bytes() const { return tile_bytes_; }
  std::int64_t bytes() const { return tiles() * tile_bytes_; }

 private:
  std::int64_t outputs_ = 0, inputs_ = 0, tile_bytes_ = 0;
  int block_ = 0, blocks_ = 0;
  Int4Block full_, last_;
};

/// Activation rows as the int4 kernels take them: block by block, the rows of a block one after the other at a fixed
/// distance. A kernel so reaches all its rows from one pointer, and they fall on different sets of the cache. Kernels
/// for tiles may read, and ignore, the values of up to 15 rows past the last.
struct Int8Rows {
  static constexpr int kStride = Int4Layout::kMaxBlock;     ///< Values from row to row.
  static constexpr int kSums = Int4Layout::kMaxBlock / 32;  ///< Group sums of a row and block; 0 past the last group.

  std::int8_t* values = nullptr;  ///< [blocks, capacity, kStride]
  float* scales = nullptr;        ///< [blocks, capacity]
  std::int16_t* sums = nullptr;   ///< [blocks, capacity, kSums]
  std::int64_t capacity = 0;      ///< Rows there is room for.

  std::int8_t* values_at(std::int64_t block, std::int64_t row) const { return values + index(block, row) * kStride; }
  float* scales_at(std::int64_t block, std::int64_t row) const { return scales + index(block, row); }
  std::int16_t* sums_at(std::int64_t block, std::int64_t row) const { return sums + index(block, row) * kSums; }

 private:
  std::int64_t index(std::int64_t block, std::int64_t row) const { return block * capacity + row; }
};

}  // namespace kwker
