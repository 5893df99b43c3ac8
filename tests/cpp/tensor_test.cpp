// read_row over every type, stride and alignment.
#include "kwker/base/tensor.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kwker/base/float_types.hpp"

namespace kwker {
namespace {

TEST(Tensor, SizesOfElements) {
  EXPECT_EQ(size_of(DType::kFloat32), 4);
  EXPECT_EQ(size_of(DType::kFloat16), 2);
  EXPECT_EQ(size_of(DType::kBFloat16), 2);
}

TEST(Tensor, ShapeString) {
  EXPECT_EQ(shape_string({}), "[]");
  EXPECT_EQ(shape_string({7}), "[7]");
  EXPECT_EQ(shape_string({2, 0, 3}), "[2, 0, 3]");
}

/// `count` elements of a type, counting up from -3 in halves, at any offset from an aligned address.
std::vector<std::byte> make_elements(DType dtype, int count, std::size_t misalignment) {
  std::vector<std::byte> bytes(misalignment + static_cast<std::size_t>(count * size_of(dtype)));
  for (int i = 0; i < count; ++i) {
    const float value = -3.0f + 0.5f * static_cast<float>(i);
    std::byte* to = bytes.data() + misalignment + i * size_of(dtype);
    const float16 half = to_float16(value);
    const bfloat16 brain = to_bfloat16(value);
    if (dtype == DType::kFloat32) std::memcpy(to, &value, sizeof(value));
    if (dtype == DType::kFloat16) std::memcpy(to, &half, sizeof(half));
    if (dtype == DType::kBFloat16) std::memcpy(to, &brain, sizeof(brain));
  }
  return bytes;
}

class ReadRow : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int kCount = 60;

  /// Every row of a view whose element (r, c) is number origin + r * strides[0] + c * strides[1].
  void expect_rows(std::int64_t rows, std::int64_t columns, std::int64_t origin, std::vector<std::int64_t> strides) {
    for (const std::size_t misalignment : {std::size_t{0}, std::size_t{1}}) {
      const std::vector<std::byte> bytes = make_elements(GetParam(), kCount, misalignment);
      const TensorView view{
          bytes.data() + misalignment + origin * size_of(GetParam()), GetParam(), {rows, columns}, strides};
      for (std::int64_t r = 0; r < rows; ++r) {
        std::vector<float> out(static_cast<std::size_t>(columns) + 1, 99.0f);
        read_row(view, r, out.data());
        for (std::int64_t c = 0; c < columns; ++c) {
          const auto element = static_cast<float>(origin + r * strides[0] + c * strides[1]);
          EXPECT_EQ(out[static_cast<std::size_t>(c)], -3.0f + 0.5f * element) << r << ", " << c;
        }
        EXPECT_EQ(out.back(), 99.0f);
      }
    }
  }
};

TEST_P(ReadRow, Contiguous) { expect_rows(4, 15, 0, {15, 1}); }
TEST_P(ReadRow, PaddedRows) { expect_rows(4, 9, 2, {14, 1}); }
TEST_P(ReadRow, Transposed) { expect_rows(15, 4, 0, {1, 15}); }
TEST_P(ReadRow, Broadcast) { expect_rows(3, 5, 7, {0, 0}); }
TEST_P(ReadRow, Backwards) { expect_rows(4, 15, kCount - 1, {-15, -1}); }
TEST_P(ReadRow, OneColumn) { expect_rows(5, 1, 0, {3, 1}); }
TEST_P(ReadRow, NoColumns) { expect_rows(2, 0, 0, {0, 1}); }

TEST_P(ReadRow, Vector) {
  const std::vector<std::byte> bytes = make_elements(GetParam(), kCount, 0);
  for (const std::int64_t stride : {1, 2}) {
    std::vector<float> out(20);
    read_row({bytes.data(), GetParam(), {20}, {stride}}, 0, out.data());
    for (std::int64_t i = 0; i < 20; ++i) {
      EXPECT_EQ(out[static_cast<std::size_t>(i)], -3.0f + 0.5f * static_cast<float>(i * stride));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ReadRow, ::testing::Values(DType::kFloat32, DType::kFloat16, DType::kBFloat16),
                         [](const auto& test) {
                           return test.param == DType::kFloat32   ? "float32"
                                  : test.param == DType::kFloat16 ? "float16"
                                                                  : "bfloat16";
                         });

}  // namespace
}  // namespace kwker
