// Tiny random models for tests: a configuration of any odd shape and weights drawn from a seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kwker/base/error.hpp"
#include "kwker/base/tensor.hpp"
#include "kwker/model/config.hpp"

namespace kwker::testing {

/// Weights in memory, fp32, named as Hugging Face names them.
class RandomWeights : public TensorSource {
 public:
  RandomWeights(const ModelConfig& config, std::uint32_t seed, float scale = 1.0f) : random_(seed), scale_(scale) {
    const std::int64_t h = config.hidden_size, d = config.head_dim, m = config.intermediate_size;
    add("model.embed_tokens.weight", {config.vocab_size, h}, 1.0f);
    if (!config.tie_word_embeddings) add("lm_head.weight", {config.vocab_size, h}, weight_scale(h));
    add_norm("model.norm.weight", h);
    for (std::int64_t i = 0; i < config.num_layers; ++i) {
      const std::string layer = concat("model.layers.", i, ".");
      add_norm(layer + "input_layernorm.weight", h);
      add_norm(layer + "post_attention_layernorm.weight", h);
      add(layer + "self_attn.q_proj.weight", {config.num_heads * d, h}, 2 * weight_scale(h));
      add(layer + "self_attn.k_proj.weight", {config.num_kv_heads * d, h}, 2 * weight_scale(h));
      add(layer + "self_attn.v_proj.weight", {config.num_kv_heads * d, h}, weight_scale(h));
      add(layer + "self_attn.o_proj.weight", {h, config.num_heads * d}, weight_scale(config.num_heads * d));
      add(layer + "mlp.gate_proj.weight", {m, h}, weight_scale(h));
      add(layer + "mlp.up_proj.weight", {m, h}, weight_scale(h));
      add(layer + "mlp.down_proj.weight", {h, m}, weight_scale(m));
    }
  }

  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  TensorView tensor(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) throw Error("no tensor " + name);
    const Tensor& tensor = found->second;
    std::vector<std::int64_t> strides(tensor.shape.size(), 1);
    for (std::size_t i = strides.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * tensor.shape[i];
    return {reinterpret_cast<const std::byte*>(tensor.values.data()), DType::kFloat32, tensor.shape, strides};
  }
  std::vector<float>& values(const std::string& name) { return tensors_.at(name).values; }

 private:
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };

  static float weight_scale(std::int64_t inputs) { return 1.0f / std::sqrt(static_cast<float>(inputs)); }
  void add(const std::string& name, std::vector<std::int64_t> shape, float scale) {
    std::int64_t size = 1;
    for (const std::int64_t n : shape) size *= n;
    std::normal_distribution<float> normal(0.0f, scale * scale_);
    Tensor& tensor = tensors_[name];
    tensor.shape = std::move(shape);
    for (std::int64_t i = 0; i < size; ++i) tensor.values.push_back(normal(random_));
  }
  void add_norm(const std::string& name, std::int64_t size) {
    std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
    Tensor& tensor = tensors_[name];
    tensor.shape = {size};
    for (std::int64_t i = 0; i < size; ++i) tensor.values.push_back(uniform(random_));
  }

  std::mt19937 random_;
  float scale_;
  std::map<std::string, Tensor> tensors_;
};

inline ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 256;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = true;
  config.max_position_embeddings = 4096;
  return config;
}

/// A configuration of odd sizes: nothing is a multiple of anything that the kernels like.
inline ModelConfig random_config(std::mt19937& random) {
  const auto pick = [&](std::vector<std::int64_t> choices) { return choices[random() % choices.size()]; };
  ModelConfig config;
  config.vocab_size = pick({17, 64, 100, 255, 256, 999});
  config.hidden_size = pick({8, 24, 40, 64, 72, 96, 130, 264, 320});
  config.intermediate_size = pick({8, 33, 64, 100, 130, 264, 300, 520});
  config.num_layers = pick({1, 2, 3});
  config.num_kv_heads = pick({1, 2, 3});
  config.num_heads = config.num_kv_heads * pick({1, 2, 3, 4, 5});
  config.head_dim = pick({2, 8, 16, 24, 32, 40, 64, 80});
  config.rms_norm_eps = 1e-5;
  config.rope_theta = pick({10000, 500000});
  if (random() % 3 == 0) {
    config.rope_scaling = {RopeScaling::Kind::kLlama3, 8.0, 1.0, 4.0, 64};
  }
  if (random() % 3 == 0) config.sliding_window = pick({1, 5, 16, 20, 32, 33, 100});
  config.tie_word_embeddings = random() % 2 == 0;
  config.max_position_embeddings = 4096;
  return config;
}

inline std::vector<Token> random_tokens(std::mt19937& random, std::int64_t vocab, int count) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(random() % static_cast<std::uint32_t>(vocab)));
  return tokens;
}

}  // namespace kwker::testing
