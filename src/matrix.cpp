// Packing of weight matrices.
#include "kwker/model/matrix.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "kwker/base/error.hpp"
#include "kwker/base/round_up.hpp"
#include "kwker/cpu/thread_pool.hpp"
#include "kwker/quant/int4.hpp"

namespace kwker {
namespace {

/// The largest magnitude that still rounds to a finite bfloat16.
constexpr float kLargest = 3.3961775e38f;

/// Calls pack(output, row) for every output, on all threads, each tile on the thread whose part it is; throws if a
/// weight is not finite.
template <class Pack>
void for_each_output(const MatrixSource& source, std::int64_t tiles, std::int64_t tiles_at_once, const Pack& pack) {
  std::atomic<std::int64_t> bad_output{-1};  // an exception may not leave a parallel region
  parallel(0, [&](const Worker& worker) {
    const auto [first_piece, last_piece] = worker.part(ceil_div(tiles, tiles_at_once));
    std::vector<float> row, scratch;
    for (std::int64_t tile = first_piece * tiles_at_once; tile < std::min(tiles, last_piece * tiles_at_once); ++tile) {
      for (std::int64_t o = 0; o < 16; ++o) {
        const std::int64_t output = tile * 16 + o;
        if (output < static_cast<std::int64_t>(source.outputs.size())) {
          source.read(output, row, scratch);
          for (const float value : row) {
            if (!(std::fabs(value) < kLargest)) bad_output.store(output, std::memory_order_relaxed);
          }
        } else {
          row.assign(static_cast<std::size_t>(source.inputs), 0.0f);
        }
        if (bad_output.load(std::memory_order_relaxed) >= 0) return;
        pack(output, row);
      }
    }
  });
  if (bad_output >= 0) {
    const int part = source.outputs[static_cast<std::size_t>(bad_output.load())].part;
    throw std::invalid_argument(concat("the weights of ", source.parts[static_cast<std::size_t>(part)].name,
                                       " hold a value that is NaN, infinite or too large"));
  }
}

}  // namespace

void MatrixSource::read(std::int64_t output, std::vector<float>& row, std::vector<float>& scratch) const {
  row.assign(static_cast<std::size_t>(inputs), 0.0f);
  const Output from = outputs[static_cast<std::size_t>(output)];
  if (from.part < 0) return;
  const TensorView& tensor = parts[static_cast<std::size_t>(from.part)].tensor;
  if (columns.empty()) {
    kwker::read_row(tensor, from.row, row.data());
    return;
  }
  scratch.resize(static_cast<std::size_t>(tensor.shape.back()));
  kwker::read_row(tensor, from.row, scratch.data());
  for (std::size_t k = 0; k < columns.size(); ++k) {
    if (columns[k] >= 0) row[k] = scratch[static_cast<std::size_t>(columns[k])];
  }
}

Bf16Matrix::Bf16Matrix(const MatrixSource& source)
    : layout_(static_cast<std::int64_t>(source.outputs.size()), source.inputs),
      data_(static_cast<std::size_t>(layout_.size())) {
  for_each_output(source, layout_.tiles(), tiles_at_once(), [&](std::int64_t output, const std::vector<float>& row) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      data_[static_cast<std::size_t>(layout_.offset(output, static_cast<std::int64_t>(k)))] = to_bfloat16(row[k]);
    }
  });
}

void Bf16Matrix::read_row(std::int64_t output, float* row) const {
  for (std::int64_t k = 0; k < layout_.inputs; ++k) {
    row[k] = to_float(data_[static_cast<std::size_t>(layout_.offset(output, k))]);
  }
}

Int4Matrix::Int4Matrix(const MatrixSource& source, int group)
    : layout_(static_cast<std::int64_t>(source.outputs.size()), source.inputs, group),
      data_(static_cast<std::size_t>(layout_.bytes())) {
  for_each_output(source, layout_.tiles(), tiles_at_once(), [&](std::int64_t output, std::vector<float>& row) {
    row.resize(static_cast<std::size_t>(layout_.inputs()), 0.0f);
    QuantizedBlock quantized;
    std::uint8_t* to = data_.data() + output / 16 * layout_.tile_bytes();
    const std::int64_t o = output % 16;
    for (int b = 0; b < layout_.blocks(); ++b) {
      const Int4Block block = layout_.block_at(b);
      quantize_block(row.data() + std::int64_t{b} * layout_.block(), block, quantized);
      for (int k = 0; k < block.inputs; ++k) {
        const int shift = k % 8 < 4 ? 0 : 4;
        to[k / 8 * 64 + o * 4 + k % 4] |=
            static_cast<std::uint8_t>(quantized.values[static_cast<std::size_t>(k)] << shift);
      }
      for (int g = 0; g < block.groups; ++g) {
        to[block.meta(g, static_cast<int>(o))] = quantized.meta[static_cast<std::size_t>(g)];
      }
      std::memcpy(to + block.scale_offset + o * 2, &quantized.scale, 2);
      to += block.bytes;
    }
  });
}

void Int4Matrix::read_row(std::int64_t output, float* row) const {
  const std::uint8_t* from = data_.data() + output / 16 * layout_.tile_bytes();
  const std::int64_t o = output % 16;
  for (int b = 0; b < layout_.blocks(); ++b) {
    const Int4Block block = layout_.block_at(b);
    float16 scale;
    std::memcpy(&scale, from + block.scale_offset + o * 2, 2);
    for (int k = 0; k < block.inputs; ++k) {
      const std::uint8_t meta = from[block.meta(k / block.group, static_cast<int>(o))];
      const int value = (from[k / 8 * 64 + o * 4 + k % 4] >> (k % 8 < 4 ? 0 : 4)) & 15;
      // The integer factor is below 2^8: one rounding, the same everywhere.
      *row++ = to_float(scale) * static_cast<float>(int4_sub_scale(meta) * (value - int4_zero_point(meta)));
    }
    from += block.bytes;
  }
}

}  // namespace kwker
