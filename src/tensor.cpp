// Reading tensors of any storage type and stride as rows of floats.
#include "kwker/base/tensor.hpp"

#include <cstring>

#include "kwker/base/check.hpp"
#include "kwker/base/float_types.hpp"

namespace kwker {
namespace {

/// memcpy because the data may be unaligned; compilers make it a plain load.
template <class T>
float load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return to_float(value);
}

template <class T>
void read(const std::byte* from, std::int64_t count, std::int64_t stride, float* out) {
  constexpr std::int64_t kSize = sizeof(T);
  if (stride == 1) {  // apart, so that this loop, which nearly every weight takes, is vectorised
    for (std::int64_t i = 0; i < count; ++i) out[i] = load<T>(from + i * kSize);
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = load<T>(from + i * stride * kSize);
  }
}

}  // namespace

std::string shape_string(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

void read_row(const TensorView& tensor, std::int64_t row, float* out) {
  KWKER_DCHECK(tensor.shape.size() == 1 || tensor.shape.size() == 2);
  KWKER_DCHECK(tensor.strides.size() == tensor.shape.size());
  KWKER_DCHECK(row >= 0 && row < (tensor.shape.size() == 1 ? 1 : tensor.shape[0]));
  // For a 1-D tensor row is 0, so its one stride may stand for the row's.
  const std::byte* from = tensor.data + row * tensor.strides.front() * size_of(tensor.dtype);
  const std::int64_t count = tensor.shape.back();
  const std::int64_t stride = tensor.strides.back();
  switch (tensor.dtype) {
    case DType::kFloat32:
      return read<float>(from, count, stride, out);
    case DType::kFloat16:
      return read<float16>(from, count, stride, out);
    case DType::kBFloat16:
      return read<bfloat16>(from, count, stride, out);
  }
}

}  // namespace kwker
