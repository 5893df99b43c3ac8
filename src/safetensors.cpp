// The header of a .safetensors file: read, and checked against the file.
#include "kwker/io/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "json.hpp"
#include "kwker/base/error.hpp"

namespace kwker {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and read in place");

/// The limit of the format's reference implementation.
constexpr std::uint64_t kMaxHeader = 100'000'000;

std::optional<DType> parse_dtype(std::string_view name) {
  if (name == "F32") return DType::kFloat32;
  if (name == "F16") return DType::kFloat16;
  if (name == "BF16") return DType::kBFloat16;
  return std::nullopt;
}

/// The part of the file between the length and the data.
std::string_view header_of(const MappedFile& file, const std::string& path) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) {
    throw Error(concat(path, " is truncated: expected a header length of 8 bytes, got ", file.size(), " bytes"));
  }
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeader) {
    throw Error(
        concat(path, " is not a safetensors file: expected a header of at most ", kMaxHeader, " bytes, got ", length));
  }
  if (length > file.size() - sizeof(length)) {
    throw Error(
        concat(path, " is truncated: expected a header of ", length, " bytes, got ", file.size() - sizeof(length)));
  }
  return file.text().substr(sizeof(length), length);
}

/// A list of integers that are not negative.
std::vector<std::int64_t> read_list(const JsonFields& fields, const char* name) {
  constexpr const char* kExpected = "a list of integers that are not negative";
  const Json* list = fields.find(name);
  if (list == nullptr) fields.fail_missing(name);
  if (!list->is_array()) fields.fail_type(name, kExpected, *list);
  std::vector<std::int64_t> values;
  values.reserve(list->size());
  for (const Json& item : *list) {
    const std::optional<std::int64_t> value = to_integer(item);
    if (!value || *value < 0) fields.fail_type(name, kExpected, item);
    values.push_back(*value);
  }
  return values;
}

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

/// Bytes of a tensor, or nothing if int64 does not hold them.
std::optional<std::int64_t> byte_size(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

/// Bytes [begin, end) of the data, and whose they are.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const std::string* name = nullptr;
};

/// Throws unless the tensors cover the data without overlap or gap, as the format demands.
void check_extents(std::vector<Extent> extents, std::int64_t data_size, const std::string& path) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::int64_t covered = 0;
  for (const Extent& extent : extents) {
    if (extent.begin < covered) {
      throw Error(concat(path, " is damaged: tensor ", shown(*extent.name), " overlaps another"));
    }
    if (extent.begin > covered) {
      throw Error(concat(path, " is damaged: no tensor has the bytes before ", shown(*extent.name)));
    }
    covered = extent.end;
  }
  if (covered != data_size) {
    throw Error(concat(path, " is damaged: expected ", covered, " bytes of data, got ", data_size));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path.string()), file_(path) {
  const std::string_view header = header_of(file_, path_);
  const std::byte* data = file_.data() + sizeof(std::uint64_t) + header.size();
  const auto data_size = static_cast<std::int64_t>(file_.size() - sizeof(std::uint64_t) - header.size());
  const std::string what = concat("the header of ", path_);
  const Json json = parse_json(header, what);
  const JsonFields all(json, what);  // throws unless it is an object

  std::vector<Extent> extents;
  for (const auto& [name, description] : json.items()) {
    if (name == "__metadata__") continue;
    const JsonFields fields(description, concat(path_, ": tensor ", shown(name)));
    const std::vector<std::int64_t> offsets = read_list(fields, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) {
      throw Error(concat(path_, ": tensor ", shown(name), ": data_offsets must be a begin and an end, got ",
                         shape_string(offsets)));
    }
    if (offsets[1] > data_size) {
      throw Error(concat(path_, " is truncated: tensor ", shown(name), " ends at byte ", offsets[1],
                         " of the data, of ", "which the file has ", data_size));
    }

    Entry entry;
    entry.dtype = fields.required("dtype", fields.string("dtype"));
    entry.view.shape = read_list(fields, "shape");
    // The size of other types is not needed: their data is out of reach.
    if (const std::optional<DType> dtype = parse_dtype(entry.dtype)) {
      entry.view.dtype = *dtype;
      const std::optional<std::int64_t> bytes = byte_size(entry.view.shape, *dtype);
      if (bytes != offsets[1] - offsets[0]) {
        throw Error(concat(path_, ": tensor ", shown(name), " of shape ", shape_string(entry.view.shape), " and type ",
                           entry.dtype, " does not fit its ", offsets[1] - offsets[0], " bytes"));
      }
      entry.view.strides = row_major_strides(entry.view.shape);
      entry.view.data = data + offsets[0];
    }
    const auto inserted = entries_.emplace(name, std::move(entry)).first;
    extents.push_back({offsets[0], offsets[1], &inserted->first});
  }
  check_extents(std::move(extents), data_size, path_);
  // Weights are packed in one pass over each tensor.
  file_.expect_sequential_reading();
}

TensorView SafetensorsFile::tensor(const std::string& name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) throw Error(concat(path_, " has no tensor ", shown(name)));
  if (entry->second.view.data == nullptr) {
    throw Error(concat(path_, ": tensor ", shown(name), " has type ", shown(entry->second.dtype),
                       ", expected F32, F16 or BF16"));
  }
  return entry->second.view;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const auto& entry : entries_) names.push_back(entry.first);
  return names;
}

}  // namespace kwker
