// The one include for users: load a model, make a decoder, generate.
#pragma once

#include <filesystem>
#include <memory>

#include "kwker/base/error.hpp"
#include "kwker/cpu/bandwidth.hpp"
#include "kwker/cpu/isa.hpp"
#include "kwker/cpu/thread_pool.hpp"
#include "kwker/generate/generate.hpp"
#include "kwker/io/hf_folder.hpp"
#include "kwker/model/decoder.hpp"
#include "kwker/model/model.hpp"
#include "kwker/version.hpp"

namespace kwker {

/// Loads and packs a model from a Hugging Face folder (config.json and safetensors). Precision: Int4 or BFloat16.
/// Throws kwker::Error if files are missing or malformed, std::invalid_argument if the model cannot run here.
template <class Precision>
std::shared_ptr<const Model<Precision>> load(const std::filesystem::path& folder, const PackOptions& options = {}) {
  const HfFolder source(folder);
  return build_model<Precision>(source.config(), source, options);
}

}  // namespace kwker
