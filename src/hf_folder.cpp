// Which files of a folder make up a model.
#include "kwker/io/hf_folder.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "json.hpp"
#include "kwker/base/error.hpp"
#include "kwker/io/hf_config.hpp"
#include "kwker/io/mapped_file.hpp"

namespace kwker {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kOutput = "lm_head.weight";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Whether the name stays in the folder it is looked up in. Names come from a file that may have been downloaded.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string("/\\\0", 3)) == name.npos;
}

/// Of two tensors as files have them: contiguous.
bool same_values(const TensorView& a, const TensorView& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  std::int64_t bytes = size_of(a.dtype);
  for (const std::int64_t size : a.shape) bytes *= size;
  return std::memcmp(a.data, b.data, static_cast<std::size_t>(bytes)) == 0;
}

}  // namespace

HfFolder::HfFolder(const fs::path& folder) : folder_(folder) {
  if (!is_there(folder)) throw Error(concat("the model folder ", folder.string(), " does not exist"));
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    throw Error(concat(folder.string(), " is a file, expected a folder with ", kConfig, " and ", kWeights));
  }
  read_config();
  open_weights();
  // As Transformers does: a file that has an output layer of its own is believed, whatever the configuration says.
  if (config_.tie_word_embeddings && contains(kOutput) && contains(kEmbedding) &&
      !same_values(tensor(kOutput), tensor(kEmbedding))) {
    config_.tie_word_embeddings = false;
  }
}

void HfFolder::read_config() {
  const fs::path path = folder_ / kConfig;
  if (!is_there(path)) throw Error(concat("the model folder ", folder_.string(), " has no ", kConfig));
  const MappedFile file(path);
  try {
    config_ = parse_hf_config(file.text());
    if (const fs::path generation = folder_ / kGenerationConfig; is_there(generation)) {
      apply_generation_config(MappedFile(generation).text(), config_);
    }
  } catch (const Error& error) {
    throw Error(concat(folder_.string(), ": ", error.what()));
  }
}

void HfFolder::open_weights() {
  if (const fs::path single = folder_ / kWeights; is_there(single)) {
    open(single);
  } else if (const fs::path index = folder_ / kIndex; is_there(index)) {
    open_sharded(index);
  } else {
    for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (is_there(folder_ / pickle)) {
        throw Error(concat("the model folder ", folder_.string(), " has its weights in ", pickle,
                           ", which is not read: save them as safetensors"));
      }
    }
    throw Error(concat("the model folder ", folder_.string(), " has no weights: expected ", kWeights, " or ", kIndex));
  }
}

void HfFolder::open_sharded(const fs::path& index) {
  const MappedFile file(index);
  const Json json = parse_json(file.text(), index.string());
  const JsonFields fields(json, index.string());
  const Json* weight_map = fields.find("weight_map");
  if (weight_map == nullptr) fields.fail_missing("weight_map");
  if (!weight_map->is_object()) fields.fail_type("weight_map", "an object", *weight_map);

  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>())) {
      throw Error(concat(index.string(), ": the shard of tensor ", shown(tensor), " must be the name of a file in the ",
                         "same folder, got ", shown(shard)));
    }
    const auto [place, is_new] = shards.try_emplace(shard.get<std::string>(), nullptr);
    if (is_new) place->second = &open(folder_ / place->first);
    if (!place->second->contains(tensor)) {
      throw Error(concat(index.string(), ": tensor ", shown(tensor), " is not in ", shown(shard)));
    }
  }
}

const SafetensorsFile& HfFolder::open(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile& file = *files_.back();
  for (const std::string& name : file.names()) {
    if (!owners_.emplace(name, &file).second) {
      throw Error(concat("the model folder ", folder_.string(), " has tensor ", shown(name), " in two files"));
    }
  }
  return file;
}

TensorView HfFolder::tensor(const std::string& name) const {
  const auto owner = owners_.find(name);
  if (owner == owners_.end()) {
    throw Error(concat("the model folder ", folder_.string(), " has no tensor ", shown(name)));
  }
  return owner->second->tensor(name);
}

}  // namespace kwker
