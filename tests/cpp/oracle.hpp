// The oracle: a Llama in a few readable loops of doubles over the unpacked weights, without cache, batches, packing or
// vectors. It shares no code with the library but the configuration.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kwker/model/config.hpp"

namespace kwker::testing {

using Vector = std::vector<double>;

/// Gives element (row, column) of a named weight.
using Weight = std::function<double(const std::string& name, std::int64_t row, std::int64_t column)>;

class Oracle {
 public:
  Oracle(const ModelConfig& config, Weight weight) : config_(config), weight_(std::move(weight)) {}

  /// Logits of every position.
  std::vector<Vector> logits(const std::vector<Token>& tokens) const {
    std::vector<Vector> hidden;
    for (const Token token : tokens) hidden.push_back(row("model.embed_tokens.weight", token, config_.hidden_size));
    for (std::int64_t i = 0; i < config_.num_layers; ++i) layer("model.layers." + std::to_string(i) + ".", hidden);
    std::vector<Vector> result;
    const std::string output = config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
    for (const Vector& x : hidden) result.push_back(times(output, config_.vocab_size, norm(x, "model.norm.weight")));
    return result;
  }

 private:
  Vector row(const std::string& name, std::int64_t r, std::int64_t size) const {
    Vector result;
    for (std::int64_t c = 0; c < size; ++c) result.push_back(weight_(name, r, c));
    return result;
  }

  Vector times(const std::string& name, std::int64_t outputs, const Vector& x) const {
    Vector y(static_cast<std::size_t>(outputs), 0.0);
    for (std::size_t n = 0; n < y.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) {
        y[n] += weight_(name, static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)) * x[k];
      }
    }
    return y;
  }

  Vector norm(const Vector& x, const std::string& name) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    Vector y = x;
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] *= weight_(name, 0, static_cast<std::int64_t>(i)) /
              std::sqrt(squares / static_cast<double>(x.size()) + config_.rms_norm_eps);
    }
    return y;
  }

  double frequency(std::int64_t i) const {
    const double base =
        std::pow(config_.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config_.head_dim));
    const RopeScaling& s = config_.rope_scaling;
    if (s.kind == RopeScaling::Kind::kLinear) return base / s.factor;
    if (s.kind == RopeScaling::Kind::kDefault) return base;
    const double wavelength = 2 * std::acos(-1.0) / base, original = static_cast<double>(s.original_max_position);
    if (wavelength < original / s.high_freq_factor) return base;
    if (wavelength > original / s.low_freq_factor) return base / s.factor;
    const double smooth = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return (1 - smooth) * base / s.factor + smooth * base;
  }

  void rotate(Vector& x, std::int64_t heads, std::size_t position) const {
    const std::int64_t half = config_.head_dim / 2;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < half; ++i) {
        double& a = x[static_cast<std::size_t>(head * config_.head_dim + i)];
        double& b = x[static_cast<std::size_t>(head * config_.head_dim + i + half)];
        const double angle = static_cast<double>(position) * frequency(i);
        const double first = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = first;
      }
    }
  }

  void layer(const std::string& name, std::vector<Vector>& hidden) const {
    const std::int64_t dim = config_.head_dim, group = config_.num_heads / config_.num_kv_heads;
    std::vector<Vector> queries, keys, values;
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      const Vector x = norm(hidden[t], name + "input_layernorm.weight");
      queries.push_back(times(name + "self_attn.q_proj.weight", config_.num_heads * dim, x));
      keys.push_back(times(name + "self_attn.k_proj.weight", config_.num_kv_heads * dim, x));
      values.push_back(times(name + "self_attn.v_proj.weight", config_.num_kv_heads * dim, x));
      rotate(queries.back(), config_.num_heads, t);
      rotate(keys.back(), config_.num_kv_heads, t);
    }
    for (std::size_t t = 0; t < hidden.size(); ++t) {
      Vector attended(static_cast<std::size_t>(config_.num_heads * dim), 0.0);
      for (std::int64_t head = 0; head < config_.num_heads; ++head) {
        const std::size_t q = static_cast<std::size_t>(head * dim), k = static_cast<std::size_t>(head / group * dim);
        Vector scores(t + 1, 0.0);
        for (std::size_t p = 0; p <= t; ++p) {
          if (config_.sliding_window > 0 && p + static_cast<std::size_t>(config_.sliding_window) <= t) {
            scores[p] = -std::numeric_limits<double>::infinity();
            continue;
          }
          for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d)
            scores[p] += queries[t][q + d] * keys[p][k + d];
          scores[p] /= std::sqrt(static_cast<double>(dim));
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - largest);
        for (std::size_t p = 0; p <= t; ++p) {
          for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d)
            attended[q + d] += scores[p] / sum * values[p][k + d];
        }
      }
      const Vector out = times(name + "self_attn.o_proj.weight", config_.hidden_size, attended);
      for (std::size_t i = 0; i < out.size(); ++i) hidden[t][i] += out[i];
      const Vector x = norm(hidden[t], name + "post_attention_layernorm.weight");
      Vector gate = times(name + "mlp.gate_proj.weight", config_.intermediate_size, x);
      const Vector up = times(name + "mlp.up_proj.weight", config_.intermediate_size, x);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const Vector down = times(name + "mlp.down_proj.weight", config_.hidden_size, gate);
      for (std::size_t i = 0; i < down.size(); ++i) hidden[t][i] += down[i];
    }
  }

  const ModelConfig& config_;
  Weight weight_;
};

}  // namespace kwker::testing
