// config.json and generation_config.json, as Transformers 4 and 5 write them.
#include "kwker/io/hf_config.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "json.hpp"
#include "kwker/base/error.hpp"

namespace kwker {
namespace {

template <class... Parts>
[[noreturn]] void fail_unsupported(const Parts&... parts) {
  throw std::invalid_argument(concat(parts...));
}

/// Model types and the class that each must have been saved from.
constexpr std::pair<const char*, const char*> kFamilies[] = {{"llama", "LlamaForCausalLM"},
                                                             {"mistral", "MistralForCausalLM"}};

void check_architecture(const JsonFields& fields, const std::string& model_type) {
  std::string supported;
  const char* wanted = nullptr;
  for (const auto& [type, architecture] : kFamilies) {
    supported += concat(supported.empty() ? "" : ", ", type);
    if (model_type == type) wanted = architecture;
  }
  if (wanted == nullptr) {
    fail_unsupported("the model type ", shown(model_type), " is not supported (supported: ", supported, ")");
  }
  // Null in a configuration that was not saved with a model.
  const Json* architectures = fields.find("architectures");
  if (architectures == nullptr) return;
  if (!architectures->is_array()) fields.fail_type("architectures", "a list", *architectures);
  const auto& names = *architectures;
  if (!names.empty() && std::find(names.begin(), names.end(), wanted) == names.end()) {
    fail_unsupported("the architecture ", shown(names.front()), " is not supported (supported: ", wanted, ")");
  }
}

/// Everything that changes what the model computes and that the decoder does not have.
void check_features(const JsonFields& fields, const std::string& model_type) {
  const std::string activation = fields.string("hidden_act").value_or("silu");
  if (activation != "silu") {
    fail_unsupported("the activation function ", shown(activation), " is not supported (supported: silu)");
  }
  if (fields.boolean("attention_bias").value_or(false)) {
    fail_unsupported("a bias in the attention projections is not supported (attention_bias is true)");
  }
  if (fields.boolean("mlp_bias").value_or(false)) {
    fail_unsupported("a bias in the MLP projections is not supported (mlp_bias is true)");
  }
  if (const Json* quantization = fields.find("quantization_config")) {
    const JsonFields config(*quantization, "config.json: quantization_config");
    fail_unsupported("weights that are quantized already are not supported (quantization_config has the method ",
                     shown(config.string("quant_method").value_or("unknown")), ")");
  }
  if (fields.find("sliding_window") != nullptr && model_type != "mistral") {
    fail_unsupported("sliding-window attention is not supported in models of type ", model_type);
  }
  if (!fields.boolean("is_causal").value_or(true)) {
    fail_unsupported("attention to later positions is not supported (is_causal is false)");
  }
  if (fields.find("per_layer_config") != nullptr) {
    fail_unsupported("layers of different shapes are not supported (per_layer_config is given)");
  }
}

/// Every layer attends alike: layer_types may say how, but not that some layers do otherwise.
void check_layer_types(const JsonFields& fields, const ModelConfig& config) {
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) fields.fail_type("layer_types", "a list", *types);
  const char* only = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  for (const Json& type : *types) {
    if (type != only) {
      fail_unsupported("a layer of type ", shown(type), " is not supported here (layer_types may have ", only,
                       " alone)");
    }
  }
}

/// Transformers 5 has everything in rope_parameters; before, rope_theta stood beside rope_scaling. Where a file has
/// several of them, the order of precedence is the one of Transformers 5.
void read_rope(const JsonFields& fields, ModelConfig& config) {
  const Json none = Json::object();
  const Json* parameters = fields.find("rope_scaling");
  const char* name = "config.json: rope_scaling";
  if (parameters == nullptr || (parameters->is_object() && parameters->empty())) {
    parameters = fields.find("rope_parameters");
    name = "config.json: rope_parameters";
  }
  const JsonFields rope(parameters != nullptr ? *parameters : none, name);
  const auto number = [&](const char* field, double otherwise) {
    return rope.number(field).value_or(fields.number(field).value_or(otherwise));
  };

  config.rope_theta = number("rope_theta", 10000.0);
  if (const double rotated = number("partial_rotary_factor", 1.0); rotated != 1.0) {
    fail_unsupported("rotating only a part of each head is not supported (partial_rotary_factor is ", rotated, ")");
  }
  const std::string type = rope.string("rope_type").value_or(rope.string("type").value_or("default"));
  RopeScaling& scaling = config.rope_scaling;
  if (type == "default") return;
  if (type != "linear" && type != "llama3") {
    fail_unsupported("the rope type ", shown(type), " is not supported (supported: default, linear, llama3)");
  }
  scaling.factor = rope.required("factor", rope.number("factor"));
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
    return;
  }
  scaling.kind = RopeScaling::Kind::kLlama3;
  scaling.low_freq_factor = rope.required("low_freq_factor", rope.number("low_freq_factor"));
  scaling.high_freq_factor = rope.required("high_freq_factor", rope.number("high_freq_factor"));
  constexpr const char* kOriginal = "original_max_position_embeddings";
  scaling.original_max_position =
      fields.integer(kOriginal).value_or(rope.integer(kOriginal).value_or(config.max_position_embeddings));
}

void read_sizes(const JsonFields& fields, ModelConfig& config) {
  const auto size = [&](const char* name) { return fields.required(name, fields.integer(name)); };
  config.vocab_size = size("vocab_size");
  config.hidden_size = size("hidden_size");
  config.intermediate_size = size("intermediate_size");
  config.num_layers = size("num_hidden_layers");
  config.num_heads = size("num_attention_heads");
  // What Transformers takes for a field that is absent; null says none.
  const bool mistral = config.model_type == "mistral";
  const std::int64_t absent_kv_heads = mistral && !fields.has("num_key_value_heads") ? 8 : config.num_heads;
  const std::int64_t absent_window = mistral && !fields.has("sliding_window") ? 4096 : 0;
  config.num_kv_heads = fields.integer("num_key_value_heads").value_or(absent_kv_heads);
  config.max_position_embeddings = fields.integer("max_position_embeddings").value_or(2048);
  config.sliding_window = fields.integer("sliding_window").value_or(absent_window);
  if (const auto head_dim = fields.integer("head_dim")) {
    config.head_dim = *head_dim;
  } else if (config.num_heads > 0) {  // if not, validate() says so
    if (config.hidden_size % config.num_heads != 0) {
      fail_unsupported("hidden_size must be a multiple of num_attention_heads where head_dim is not given, got ",
                       config.hidden_size, " and ", config.num_heads);
    }
    config.head_dim = config.hidden_size / config.num_heads;
  }
}

/// A field that holds a token id, a list of them, or null; nothing if it is null or absent.
std::optional<std::vector<Token>> read_token_ids(const JsonFields& fields, const char* name, std::int64_t vocab_size) {
  const Json* value = fields.find(name);
  if (value == nullptr) return std::nullopt;
  std::vector<Token> ids;
  const auto add = [&](const Json& item) {
    const std::optional<std::int64_t> id = to_integer(item);
    if (!id) fields.fail_type(name, "a token id or a list of them", item);
    if (*id >= 0 && *id < vocab_size) ids.push_back(static_cast<Token>(*id));
  };
  if (value->is_array()) {
    for (const Json& item : *value) add(item);
  } else {
    add(*value);
  }
  return ids;
}

void read_token_ids(const JsonFields& fields, ModelConfig& config) {
  const auto eos = read_token_ids(fields, "eos_token_id", config.vocab_size);
  const auto bos = read_token_ids(fields, "bos_token_id", config.vocab_size);
  if (eos) config.eos_token_ids = *eos;
  if (bos) config.bos_token_id = bos->empty() ? std::nullopt : std::optional<Token>(bos->front());
}

}  // namespace

ModelConfig parse_hf_config(std::string_view config_json) {
  const Json json = parse_json(config_json, "config.json");
  const JsonFields fields(json, "config.json");
  ModelConfig config;
  config.model_type = fields.required("model_type", fields.string("model_type"));
  check_architecture(fields, config.model_type);
  check_features(fields, config.model_type);
  read_sizes(fields, config);
  check_layer_types(fields, config);
  config.rms_norm_eps = fields.number("rms_norm_eps").value_or(1e-6);
  read_rope(fields, config);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  config.validate();
  read_token_ids(fields, config);
  return config;
}

std::optional<std::string> unsupported_reason(std::string_view config_json) {
  try {
    parse_hf_config(config_json);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

void apply_generation_config(std::string_view generation_config_json, ModelConfig& config) {
  const Json json = parse_json(generation_config_json, "generation_config.json");
  read_token_ids(JsonFields(json, "generation_config.json"), config);
}

}  // namespace kwker
