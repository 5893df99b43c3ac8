// Views of named weight tensors, wherever they live: a file mapped into memory or a framework's storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kwker {

enum class DType { kFloat32, kFloat16, kBFloat16 };

/// Bytes of one element.
inline std::int64_t size_of(DType type) { return type == DType::kFloat32 ? 4 : 2; }

/// A read-only tensor that somebody else owns. Strides are in elements and may be anything. `data` need not be aligned:
/// a file may put tensors at odd offsets.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

/// Where a model's weights come from. Views stay valid as long as the source does.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual bool contains(const std::string& name) const = 0;
  /// Throws kwker::Error naming the tensor if it is absent.
  virtual TensorView tensor(const std::string& name) const = 0;
};

/// "[2, 3]", for messages.
std::string shape_string(const std::vector<std::int64_t>& shape);

/// Copies row `row` of a 2-D tensor (or a whole 1-D one, row 0) to floats. `out` holds shape.back() values.
void read_row(const TensorView& tensor, std::int64_t row, float* out);

}  // namespace kwker
