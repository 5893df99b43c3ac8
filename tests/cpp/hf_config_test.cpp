// config.json and generation_config.json: what is read, what is refused, and with which words.
#include "kwker/io/hf_config.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "hf_files.hpp"
#include "kwker/base/error.hpp"

namespace kwker {
namespace {

using testing::config_json;
using testing::JsonText;
using testing::message_of;
using Kind = RopeScaling::Kind;

ModelConfig parse(const JsonText& changes) { return parse_hf_config(config_json(changes)); }

/// The config is well-formed but cannot run: exactly this reason, from both functions.
void expect_unsupported(const JsonText& changes, const std::string& reason) {
  EXPECT_EQ(unsupported_reason(config_json(changes)), reason);
  EXPECT_EQ(message_of<std::invalid_argument>([&] { parse(changes); }), reason);
}

void expect_malformed(const std::string& text, const std::string& message) {
  EXPECT_EQ(unsupported_reason(text), message);
  EXPECT_EQ(message_of<Error>([&] { parse_hf_config(text); }), message);
}

TEST(HfConfig, FieldsThatMistralMayLeaveOut) {
  const JsonText mistral = {{"model_type", "\"mistral\""}, {"architectures", ""}, {"num_attention_heads", "16"}};
  EXPECT_EQ(parse(mistral).num_kv_heads, 8);
  EXPECT_EQ(parse(mistral).sliding_window, 4096);
  JsonText null = mistral;
  null["num_key_value_heads"] = null["sliding_window"] = "null";
  EXPECT_EQ(parse(null).num_kv_heads, 16);
  EXPECT_EQ(parse(null).sliding_window, 0);
}

TEST(HfConfig, LayersOfOneType) {
  EXPECT_EQ(parse({{"layer_types", R"(["full_attention", "full_attention"])"}}).sliding_window, 0);
}

TEST(HfConfig, Minimal) {
  const ModelConfig config = parse({});
  EXPECT_EQ(unsupported_reason(config_json()), std::nullopt);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocab_size, 1000);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 128);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling.kind, Kind::kDefault);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(HfConfig, EveryFieldGiven) {
  const ModelConfig config = parse({{"num_key_value_heads", "2"},
                                    {"head_dim", "32"},
                                    {"rms_norm_eps", "1e-05"},
                                    {"tie_word_embeddings", "true"},
                                    {"max_position_embeddings", "8192"},
                                    {"bos_token_id", "1"},
                                    {"eos_token_id", "[2, 7]"},
                                    {"pretraining_tp", "4"},
                                    {"unknown", "{\"deep\": [[]]}"}});
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.max_position_embeddings, 8192);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, (std::vector<Token>{2, 7}));
}

// What `LlamaConfig(...).to_json_string(use_diff=False)` of Transformers 5 writes.
TEST(HfConfig, Transformers5Full) {
  const ModelConfig config = parse_hf_config(R"({
    "_name_or_path": "", "architectures": null, "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
    "chunk_size_feed_forward": 0, "dtype": null, "eos_token_id": 2, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "initializer_range": 0.02,
    "intermediate_size": 11008, "is_encoder_decoder": false, "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "output_attentions": false, "output_hidden_states": false,
    "pad_token_id": null, "pretraining_tp": 1, "problem_type": null, "return_dict": true, "rms_norm_eps": 1e-06,
    "rope_parameters": {"factor": 8.0, "high_freq_factor": 4, "low_freq_factor": 1,
                        "original_max_position_embeddings": 8192, "rope_theta": 500000.0, "rope_type": "llama3"},
    "tie_word_embeddings": false, "transformers_version": "5.24.0", "use_cache": true, "vocab_size": 32000
  })");
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.rope_scaling.kind, Kind::kLlama3);
  EXPECT_EQ(config.rope_scaling.factor, 8.0);
  EXPECT_EQ(config.rope_scaling.low_freq_factor, 1.0);
  EXPECT_EQ(config.rope_scaling.high_freq_factor, 4.0);
  EXPECT_EQ(config.rope_scaling.original_max_position, 8192);
}

TEST(HfConfig, RopeOfTransformers4) {
  EXPECT_EQ(parse({{"rope_theta", "100000"}, {"rope_scaling", "null"}}).rope_theta, 100000.0);
  EXPECT_EQ(parse({{"rope_theta", "null"}, {"rope_scaling", "{}"}}).rope_theta, 10000.0);

  const ModelConfig linear = parse({{"rope_theta", "5e5"}, {"rope_scaling", R"({"type": "linear", "factor": 2})"}});
  EXPECT_EQ(linear.rope_theta, 5e5);
  EXPECT_EQ(linear.rope_scaling.kind, Kind::kLinear);
  EXPECT_EQ(linear.rope_scaling.factor, 2.0);

  const ModelConfig llama3 = parse({{"rope_theta", "5e5"},
                                    {"max_position_embeddings", "4096"},
                                    {"rope_scaling", R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                                                         "high_freq_factor": 4.0})"}});
  EXPECT_EQ(llama3.rope_scaling.kind, Kind::kLlama3);
  EXPECT_EQ(llama3.rope_scaling.factor, 32.0);
  EXPECT_EQ(llama3.rope_scaling.original_max_position, 4096);
}

TEST(HfConfig, RopePrecedenceIsThatOfTransformers5) {
  const ModelConfig config = parse({{"rope_theta", "2.0"},
                                    {"rope_parameters", R"({"rope_type": "default", "rope_theta": 3.0})"},
                                    {"rope_scaling", R"({"rope_type": "linear", "type": "yarn", "factor": 4.0})"}});
  EXPECT_EQ(config.rope_theta, 2.0);
  EXPECT_EQ(config.rope_scaling.kind, Kind::kLinear);
  EXPECT_EQ(parse({{"rope_theta", "2.0"}, {"rope_parameters", R"({"rope_theta": 3.0})"}}).rope_theta, 3.0);
}

TEST(HfConfig, TokenIds) {
  EXPECT_EQ(parse({{"eos_token_id", "2"}}).eos_token_ids, std::vector<Token>{2});
  EXPECT_TRUE(parse({{"eos_token_id", "null"}}).eos_token_ids.empty());
  EXPECT_EQ(parse({{"eos_token_id", "[0, 1000, -1, 999]"}}).eos_token_ids, (std::vector<Token>{0, 999}));
  EXPECT_EQ(parse({{"bos_token_id", "128000"}}).bos_token_id, std::nullopt);
  for (const char* wrong : {"\"2\"", "[[2]]", "2.0", "true", "{}", "18446744073709551615", "[null]"}) {
    EXPECT_THROW(parse({{"eos_token_id", wrong}}), Error) << wrong;
    EXPECT_THROW(parse({{"bos_token_id", wrong}}), Error) << wrong;
  }
}

TEST(HfConfig, Unsupported) {
  expect_unsupported({{"model_type", "\"gpt2\""}},
                     "the model type \"gpt2\" is not supported (supported: llama, mistral)");
  expect_unsupported({{"architectures", "[\"LlamaForSequenceClassification\"]"}},
                     "the architecture \"LlamaForSequenceClassification\" is not supported (supported: "
                     "LlamaForCausalLM)");
  expect_unsupported({{"hidden_act", "\"gelu\""}},
                     "the activation function \"gelu\" is not supported (supported: silu)");
  expect_unsupported({{"attention_bias", "true"}},
                     "a bias in the attention projections is not supported (attention_bias is true)");
  expect_unsupported({{"mlp_bias", "true"}}, "a bias in the MLP projections is not supported (mlp_bias is true)");
  expect_unsupported({{"quantization_config", R"({"quant_method": "gptq"})"}},
                     "weights that are quantized already are not supported (quantization_config has the method "
                     "\"gptq\")");
  expect_unsupported({{"quantization_config", "{}"}},
                     "weights that are quantized already are not supported (quantization_config has the method "
                     "\"unknown\")");
  expect_unsupported({{"sliding_window", "4096"}}, "sliding-window attention is not supported in models of type llama");
  expect_unsupported({{"is_causal", "false"}}, "attention to later positions is not supported (is_causal is false)");
  expect_unsupported({{"layer_types", R"(["full_attention", "sliding_attention"])"}},
                     "a layer of type \"sliding_attention\" is not supported here (layer_types may have full_attention "
                     "alone)");
  expect_unsupported({{"model_type", "\"mistral\""},
                      {"architectures", ""},
                      {"num_key_value_heads", "4"},
                      {"sliding_window", "16"},
                      {"layer_types", R"(["sliding_attention", "full_attention"])"}},
                     "a layer of type \"full_attention\" is not supported here (layer_types may have sliding_attention "
                     "alone)");
  expect_unsupported({{"per_layer_config", "{}"}},
                     "layers of different shapes are not supported (per_layer_config is given)");
  expect_unsupported({{"rope_scaling", R"({"type": "yarn", "factor": 4.0})"}},
                     "the rope type \"yarn\" is not supported (supported: default, linear, llama3)");
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    expect_unsupported({{place, R"({"rope_type": "default", "partial_rotary_factor": 0.5})"}},
                       "rotating only a part of each head is not supported (partial_rotary_factor is 0.5)");
  }
  expect_unsupported({{"partial_rotary_factor", "0.25"}},
                     "rotating only a part of each head is not supported (partial_rotary_factor is 0.25)");
  expect_unsupported({{"head_dim", "15"}}, "head_dim must be even, for the rotary embedding, got 15");
  expect_unsupported({{"num_key_value_heads", "3"}},
                     "num_attention_heads must be a multiple of num_key_value_heads, got 4 and 3");
  expect_unsupported({{"num_attention_heads", "5"}},
                     "hidden_size must be a multiple of num_attention_heads where head_dim is not given, got 64 and 5");
  EXPECT_EQ(unsupported_reason(config_json({{"partial_rotary_factor", "1.0"}, {"architectures", "[]"}})), std::nullopt);
  EXPECT_EQ(unsupported_reason(config_json({{"num_attention_heads", "5"}, {"head_dim", "8"}})), std::nullopt);
}

TEST(HfConfig, SizesOutOfRange) {
  for (const char* name : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* value : {"0", "-4", "2147483648", "-9223372036854775808", "9223372036854775807"}) {
      // head_dim is given so that it is not derived from a wrong size.
      JsonText changes = {{"head_dim", "16"}};
      changes[name] = value;
      expect_unsupported(changes, concat(name, " must be between 1 and 2147483647, got ", value));
    }
  }
  expect_unsupported({{"num_attention_heads", "0"}}, "num_attention_heads must be between 1 and 2147483647, got 0");
  expect_unsupported({{"num_attention_heads", "65536"}, {"head_dim", "65536"}},
                     "num_attention_heads * head_dim must be between 1 and 2147483647, got 4294967296");
}

TEST(HfConfig, NumbersOutOfRange) {
  for (const char* name : {"rms_norm_eps", "rope_theta"}) {
    for (const char* value : {"0", "-0.5"}) {
      expect_unsupported({{name, value}}, concat(name, " must be a finite number above 0, got ", value));
    }
    EXPECT_THROW(parse({{name, "NaN"}}), Error);
    EXPECT_THROW(parse({{name, "1e999"}}), Error);
    EXPECT_THROW(parse({{name, R"({"__float__": "NaN"})"}}), Error);
  }
  const auto llama3 = [](const char* factor, const char* low, const char* high, const char* original) {
    return JsonText{{"rope_scaling", testing::to_json({{"rope_type", "\"llama3\""},
                                                       {"factor", factor},
                                                       {"low_freq_factor", low},
                                                       {"high_freq_factor", high},
                                                       {"original_max_position_embeddings", original}})}};
  };
  EXPECT_NO_THROW(parse(llama3("8", "1", "4", "8192")));
  expect_unsupported(llama3("0", "1", "4", "8192"), "the rope factor must be a finite number above 0, got 0");
  expect_unsupported(llama3("8", "-1", "4", "8192"),
                     "the rope low_freq_factor must be a finite number above 0, got -1");
  expect_unsupported(llama3("8", "4", "4", "8192"),
                     "the rope high_freq_factor must be above low_freq_factor, got 4 and 4");
  expect_unsupported(llama3("8", "1", "4", "0"),
                     "the rope original_max_position_embeddings must be between 1 and 2147483647, got 0");
}

TEST(HfConfig, MissingFields) {
  for (const char* name :
       {"model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    expect_malformed(config_json({{name, ""}}), concat("config.json: ", name, " is missing"));
    expect_malformed(config_json({{name, "null"}}), concat("config.json: ", name, " is missing"));
  }
  expect_malformed(config_json({{"rope_scaling", R"({"rope_type": "linear"})"}}),
                   "config.json: rope_scaling: factor is missing");
  expect_malformed(config_json({{"rope_parameters", R"({"rope_type": "llama3", "factor": 8})"}}),
                   "config.json: rope_parameters: low_freq_factor is missing");
}

TEST(HfConfig, WrongTypes) {
  expect_malformed(config_json({{"hidden_size", "\"64\""}}), "config.json: hidden_size must be an integer, got \"64\"");
  expect_malformed(config_json({{"hidden_size", "64.0"}}), "config.json: hidden_size must be an integer, got 64.0");
  expect_malformed(config_json({{"vocab_size", "18446744073709551615"}}),
                   "config.json: vocab_size must be an integer, got 18446744073709551615");
  expect_malformed(config_json({{"num_hidden_layers", "[2]"}}),
                   "config.json: num_hidden_layers must be an integer, got a list");
  expect_malformed(config_json({{"head_dim", "true"}}), "config.json: head_dim must be an integer, got true");
  expect_malformed(config_json({{"rms_norm_eps", "\"x\""}}), "config.json: rms_norm_eps must be a number, got \"x\"");
  expect_malformed(config_json({{"model_type", "7"}}), "config.json: model_type must be a string, got 7");
  expect_malformed(config_json({{"hidden_act", "{}"}}), "config.json: hidden_act must be a string, got an object");
  expect_malformed(config_json({{"attention_bias", "1"}}), "config.json: attention_bias must be true or false, got 1");
  expect_malformed(config_json({{"tie_word_embeddings", "\"no\""}}),
                   "config.json: tie_word_embeddings must be true or false, got \"no\"");
  expect_malformed(config_json({{"architectures", "\"LlamaForCausalLM\""}}),
                   "config.json: architectures must be a list, got \"LlamaForCausalLM\"");
  expect_malformed(config_json({{"rope_scaling", "2"}}), "config.json: rope_scaling must be a JSON object, got 2");
  expect_malformed(config_json({{"quantization_config", "true"}}),
                   "config.json: quantization_config must be a JSON object, got true");
}

TEST(HfConfig, NotJson) {
  expect_malformed("", "config.json is not valid JSON: error at byte 1 of 0");
  expect_malformed("{\"a\": ", "config.json is not valid JSON: error at byte 7 of 6");
  expect_malformed("[]", "config.json must be a JSON object, got a list");
  expect_malformed("\"llama\"", "config.json must be a JSON object, got \"llama\"");
  expect_malformed("{\"a\": 1e999}", "config.json is not valid JSON: a number is out of range");
  expect_malformed("{\"a\": \"\xff\"}", "config.json is not valid JSON: error at byte 8 of 10");
}

TEST(HfConfig, DeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string text = "{\"a\": ";
    for (int i = 0; i < 1'000'000; ++i) text += open;
    expect_malformed(text, "config.json nests deeper than 32 levels");
  }
}

TEST(HfConfig, MessagesStayShortAndPrintable) {
  const std::string reason = *unsupported_reason(config_json({{"model_type", '"' + std::string(100000, 'x') + '"'}}));
  EXPECT_LT(reason.size(), 200u);
  EXPECT_EQ(*unsupported_reason(config_json({{"model_type", "\"a\\n\\u0000\u00e9\""}})),
            "the model type \"a\\n\\u0000\\u00e9\" is not supported (supported: llama, mistral)");
}

TEST(GenerationConfig, HasPrecedence) {
  ModelConfig config = parse({{"eos_token_id", "2"}, {"bos_token_id", "1"}});
  apply_generation_config("{}", config);
  apply_generation_config(R"({"eos_token_id": null, "bos_token_id": null})", config);
  EXPECT_EQ(config.eos_token_ids, std::vector<Token>{2});
  EXPECT_EQ(config.bos_token_id, 1);
  apply_generation_config(R"({"eos_token_id": [3, 4, 5000], "temperature": 0.6})", config);
  EXPECT_EQ(config.eos_token_ids, (std::vector<Token>{3, 4}));
  EXPECT_EQ(config.bos_token_id, 1);
  apply_generation_config(R"({"eos_token_id": 6, "bos_token_id": 7})", config);
  EXPECT_EQ(config.eos_token_ids, std::vector<Token>{6});
  EXPECT_EQ(config.bos_token_id, 7);
}

TEST(GenerationConfig, MalformedChangesNothing) {
  ModelConfig config = parse({{"eos_token_id", "2"}});
  for (const char* wrong : {"", "[]", "{", R"({"eos_token_id": "2"})", R"({"eos_token_id": 5, "bos_token_id": "x"})"}) {
    EXPECT_THROW(apply_generation_config(wrong, config), Error) << wrong;
    EXPECT_EQ(config.eos_token_ids, std::vector<Token>{2});
  }
}

}  // namespace
}  // namespace kwker
