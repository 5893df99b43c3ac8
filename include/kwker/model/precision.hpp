// The precisions a model can have. Each says how its matrices are packed and how rows are prepared for them; the model
// and the decoder are templates over this and know nothing else about number formats.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/base/error.hpp"
#include "kwker/kernels/table.hpp"
#include "kwker/model/matrix.hpp"

namespace kwker {

/// Rows past the last that kernels may read: a tile is 16 rows high.
constexpr std::int64_t kReadableRows = 16;

/// bfloat16 weights and activations, fp32 sums.
struct BFloat16 {
  static constexpr const char* kName = "bfloat16";
  using Matrix = Bf16Matrix;

  static Matrix pack(const MatrixSource& source, int /*group*/) { return Matrix(source); }

  /// Rows prepared for a matmul with any matrix of `inputs` inputs.
  class Rows {
   public:
    Rows() = default;
    Rows(std::int64_t inputs, int /*group*/, std::int64_t rows)
        : inputs_(inputs),
          values_(static_cast<std::size_t>(inputs * rows)),
          halves_(static_cast<std::size_t>(inputs * rows + kReadableRows * Bf16Layout::kBlock)),
          view_{values_.data(), halves_.data(), rows} {}
    void set(const KernelTable& kernels, std::int64_t row, const float* x) {
      kernels.round_bf16(x, inputs_, view_, row);
    }
    const Bf16Rows& view() const { return view_; }
    void multiply(const KernelTable& kernels, const Matrix& matrix, int rows, const MatmulTarget& target) const {
      kernels.matmul_bf16(matrix.data(), matrix.layout(), view_, rows, target);
    }

   private:
    std::int64_t inputs_ = 0;
    AlignedBuffer<float> values_;
    AlignedBuffer<bfloat16> halves_;
    Bf16Rows view_;
  };
};

/// 4-bit weights in groups, 8-bit activations, integer dot products (kernels/int4_layout.hpp).
struct Int4 {
  static constexpr const char* kName = "int4";
  using Matrix = Int4Matrix;

  static Matrix pack(const MatrixSource& source, int group) { return Matrix(source, group); }

  class Rows {
   public:
    Rows() = default;
    Rows(std::int64_t inputs, int group, std::int64_t rows)
        : layout_(Int4Layout::kOutputs, inputs, group),
          values_(static_cast<std::size_t>((rows * layout_.blocks() + kReadableRows) * Int8Rows::kStride)),
          scales_(static_cast<std::size_t>(rows * layout_.blocks())),
          sums_(static_cast<std::size_t>(rows * layout_.blocks() * Int8Rows::kSums)),
          view_{values_.data(), scales_.data(), sums_.data(), rows} {}
    void set(const KernelTable& kernels, std::int64_t row, const float* x) {
      kernels.quantize_int8(x, layout_, view_, row);
    }
    const Int8Rows& view() const { return view_; }
    void multiply(const KernelTable& kernels, const Matrix& matrix, int rows, const MatmulTarget& target) const {
      kernels.matmul_int4(matrix.data(), matrix.layout(), view_, rows, target);
    }

   private:
    Int4Layout layout_;
    AlignedBuffer<std::int8_t> values_;
    AlignedBuffer<float> scales_;
    AlignedBuffer<std::int16_t> sums_;
    Int8Rows view_;
  };
};

}  // namespace kwker
