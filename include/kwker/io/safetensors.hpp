// One .safetensors file. The format: github.com/huggingface/safetensors, "Format".
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kwker/base/tensor.hpp"
#include "kwker/io/mapped_file.hpp"

namespace kwker {

/// A file mapped into memory. Everything its header says is checked when it is opened; afterwards no view can reach
/// outside the file.
class SafetensorsFile : public TensorSource {
 public:
  /// Throws kwker::Error if the file is missing, truncated or malformed.
  explicit SafetensorsFile(const std::filesystem::path& path);

  bool contains(const std::string& name) const override { return entries_.count(name) != 0; }
  /// Throws kwker::Error if the tensor is absent or neither F32, F16 nor BF16.
  TensorView tensor(const std::string& name) const override;
  /// In alphabetical order, tensors of other types included.
  std::vector<std::string> names() const;

 private:
  struct Entry {
    std::string dtype;  // as in the file: "F32", "I64", ...
    TensorView view;    // its dtype is set if it is one of ours
  };

  std::string path_;
  MappedFile file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace kwker
