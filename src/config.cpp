// Which model shapes can be run.
#include "kwker/model/config.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "kwker/base/error.hpp"

namespace kwker {
namespace {

/// Sizes up to here may be multiplied in pairs without overflow.
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();

void check_size(const char* name, std::int64_t value) {
  if (value < 1 || value > kMaxSize) {
    throw std::invalid_argument(concat(name, " must be between 1 and ", kMaxSize, ", got ", value));
  }
}

void check_positive(const char* name, double value) {
  if (!(value > 0.0) || std::isinf(value)) {
    throw std::invalid_argument(concat(name, " must be a finite number above 0, got ", value));
  }
}

}  // namespace

// Messages use the names of config.json, which is where a wrong value comes from.
void ModelConfig::validate() const {
  check_size("vocab_size", vocab_size);
  check_size("hidden_size", hidden_size);
  check_size("intermediate_size", intermediate_size);
  check_size("num_hidden_layers", num_layers);
  check_size("num_attention_heads", num_heads);
  check_size("num_key_value_heads", num_kv_heads);
  check_size("head_dim", head_dim);
  check_size("max_position_embeddings", max_position_embeddings);
  if (sliding_window < 0 || sliding_window > kMaxSize) {
    throw std::invalid_argument(concat("sliding_window must be between 0 and ", kMaxSize, ", got ", sliding_window));
  }
  if (num_heads % num_kv_heads != 0) {
    throw std::invalid_argument(concat("num_attention_heads must be a multiple of num_key_value_heads, got ", num_heads,
                                       " and ", num_kv_heads));
  }
  if (head_dim % 2 != 0) {
    throw std::invalid_argument(concat("head_dim must be even, for the rotary embedding, got ", head_dim));
  }
  check_size("num_attention_heads * head_dim", num_heads * head_dim);
  check_positive("rms_norm_eps", rms_norm_eps);
  check_positive("rope_theta", rope_theta);
  if (rope_scaling.kind == RopeScaling::Kind::kDefault) return;
  check_positive("the rope factor", rope_scaling.factor);
  if (rope_scaling.kind == RopeScaling::Kind::kLinear) return;
  check_positive("the rope low_freq_factor", rope_scaling.low_freq_factor);
  check_positive("the rope high_freq_factor", rope_scaling.high_freq_factor);
  check_size("the rope original_max_position_embeddings", rope_scaling.original_max_position);
  if (rope_scaling.high_freq_factor <= rope_scaling.low_freq_factor) {
    throw std::invalid_argument(concat("the rope high_freq_factor must be above low_freq_factor, got ",
                                       rope_scaling.high_freq_factor, " and ", rope_scaling.low_freq_factor));
  }
}

}  // namespace kwker
