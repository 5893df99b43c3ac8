// A Hugging Face model folder: config.json, generation_config.json and safetensors, one file or sharded.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kwker/base/tensor.hpp"
#include "kwker/io/safetensors.hpp"
#include "kwker/model/config.hpp"

namespace kwker {

/// The weights are those of model.safetensors or, without it, of every shard that model.safetensors.index.json names.
class HfFolder : public TensorSource {
 public:
  /// Throws kwker::Error if a file is missing, truncated or malformed; std::invalid_argument if the model cannot run.
  explicit HfFolder(const std::filesystem::path& folder);

  const ModelConfig& config() const { return config_; }
  bool contains(const std::string& name) const override { return owners_.count(name) != 0; }
  /// Throws kwker::Error if the tensor is absent or neither F32, F16 nor BF16.
  TensorView tensor(const std::string& name) const override;

 private:
  void read_config();
  void open_weights();
  void open_sharded(const std::filesystem::path& index);
  const SafetensorsFile& open(const std::filesystem::path& path);

  std::filesystem::path folder_;
  ModelConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> owners_;
};

}  // namespace kwker
