// The shape of a Llama-family model: what the decoder needs to know besides the weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kwker/base/token.hpp"

namespace kwker {

/// How rotary frequencies are derived from the base; the names are those of Hugging Face's `rope_type`.
struct RopeScaling {
  enum class Kind { kDefault, kLinear, kLlama3 };
  Kind kind = Kind::kDefault;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position = 8192;
};

struct ModelConfig {
  std::string model_type = "llama";
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  std::int64_t sliding_window = 0;  ///< Positions that attention sees, the latest; 0: all.
  bool tie_word_embeddings = false;
  std::int64_t max_position_embeddings = 0;
  std::optional<Token> bos_token_id;
  std::vector<Token> eos_token_ids;

  /// Throws std::invalid_argument naming the first field that cannot be (a size of 0, heads that do not divide, ...).
  void validate() const;
};

}  // namespace kwker
