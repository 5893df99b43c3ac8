// Weight matrices in the packed layouts of kernels/, and how they are packed from tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/base/float_types.hpp"
#include "kwker/base/tensor.hpp"
#include "kwker/kernels/table.hpp"

namespace kwker {

/// Tiles of a matrix that a thread takes at a time: an even number of about 32 KiB. Packing and multiplying share tiles
/// out in pieces of this size (Worker::share), so that a page of weights is first touched, and with several memory
/// nodes placed, by the thread that will read it.
inline std::int64_t tiles_at_once(std::int64_t tile_bytes) {
  return std::max<std::int64_t>(2, (std::int64_t{32} << 10) / tile_bytes / 2 * 2);
}

/// Where the rows of a packed matrix come from: any rows of any tensors, with the columns in any order. That is how
/// matrices are fused (query, key and value in one) and how heads are padded and reordered.
struct MatrixSource {
  struct Part {
    std::string name;  ///< For messages.
    TensorView tensor;
  };
  struct Output {
    int part = -1;         ///< Index into `parts`; -1 is a row of zeros.
    std::int64_t row = 0;  ///< Row of that tensor.
  };
  std::vector<Part> parts;
  std::vector<Output> outputs;
  std::int64_t inputs = 0;            ///< Columns of the packed matrix.
  std::vector<std::int64_t> columns;  ///< Column of the tensors for each input, -1 for zero; empty: the same order.

  /// Row `output` as floats, [inputs].
  void read(std::int64_t output, std::vector<float>& row, std::vector<float>& scratch) const;
};

/// A matrix of [outputs, inputs] in bfloat16.
class Bf16Matrix {
 public:
  Bf16Matrix() = default;
  /// Throws std::invalid_argument naming the tensor if a weight is NaN, infinite, or too large for bfloat16.
  explicit Bf16Matrix(const MatrixSource& source);

  const Bf16Layout& layout() const { return layout_; }
  const bfloat16* data() const { return data_.data(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(data_.bytes()); }
  std::int64_t tiles_at_once() const {
    return kwker::tiles_at_once(layout_.tile_size() * static_cast<std::int64_t>(sizeof(bfloat16)));
  }
  /// Row `output` as floats, [layout().inputs].
  void read_row(std::int64_t output, float* row) const;

 private:
  Bf16Layout layout_;
  AlignedBuffer<bfloat16> data_;
};

/// A matrix of [outputs, inputs] in int4, quantised by simple rounding.
class Int4Matrix {
 public:
  Int4Matrix() = default;
  /// group: 32, 64 or 128. Throws std::invalid_argument naming the tensor if a weight is NaN or infinite.
  Int4Matrix(const MatrixSource& source, int group);

  const Int4Layout& layout() const { return layout_; }
  const std::uint8_t* data() const { return data_.data(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(data_.bytes()); }
  std::int64_t tiles_at_once() const { return kwker::tiles_at_once(layout_.tile_bytes()); }
  void read_row(std::int64_t output, float* row) const;

 private:
  Int4Layout layout_;
  AlignedBuffer<std::uint8_t> data_;
};

}  // namespace kwker
