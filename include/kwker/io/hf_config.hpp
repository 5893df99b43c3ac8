// Reads a Hugging Face config.json into a ModelConfig, and says what of it cannot be run.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kwker/model/config.hpp"

namespace kwker {

/// The reason, in one sentence, why a model with this config.json cannot run here; nothing if it can.
/// Text that is not JSON is a reason too.
std::optional<std::string> unsupported_reason(std::string_view config_json);

/// Throws kwker::Error if the text is not JSON, lacks a field or has one of the wrong type, std::invalid_argument with
/// `unsupported_reason` if the model cannot run. Token ids outside the vocabulary are left out: no logit stands for
/// them.
ModelConfig parse_hf_config(std::string_view config_json);

/// Takes eos and bos from a generation_config.json, which has precedence over config.json where it gives them.
/// Throws kwker::Error, and changes nothing, if it is malformed.
void apply_generation_config(std::string_view generation_config_json, ModelConfig& config);

}  // namespace kwker
