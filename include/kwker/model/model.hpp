// A packed Llama-family model: immutable, shared by any number of decoders.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/base/tensor.hpp"
#include "kwker/model/config.hpp"
#include "kwker/model/precision.hpp"

namespace kwker {

struct PackOptions {
  int group_size = 32;  ///< Inputs that share a 4-bit scale: 32, 64 or 128. Of no effect in bfloat16.
  /// Called from the packing thread with the matrices done and their number, at the start and after each.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// Sizes as stored: heads are padded so that both halves of a rotated head are whole vectors.
struct ModelShape {
  explicit ModelShape(const ModelConfig& config);

  std::int64_t hidden;     ///< Of the residual stream, rounded up to 32.
  std::int64_t half_head;  ///< Rounded up to 16.
  std::int64_t head_dim;   ///< 2 * half_head
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t queries;       ///< heads * head_dim
  std::int64_t qkv;           ///< Outputs of the fused query, key and value matrix.
  std::int64_t intermediate;  ///< Rounded up to 32.
  std::int64_t mlp_runs;      ///< Runs of 16 gates (and as many of ups).
  std::int64_t vocab;         ///< Rounded up to 16.
};

template <class Precision>
struct Layer {
  AlignedBuffer<float> attention_norm;  ///< [hidden]
  AlignedBuffer<float> mlp_norm;        ///< [hidden]
  typename Precision::Matrix qkv;       ///< [heads + 2 kv_heads, head_dim] x [hidden]
  typename Precision::Matrix attention_out;
  typename Precision::Matrix gate_up;  ///< Gates and ups alternate in runs of 16 outputs.
  typename Precision::Matrix down;
};

template <class Precision>
struct Model {
  ModelConfig config;
  ModelShape shape;
  int group_size;
  /// [vocab, hidden] where the input embedding is not the output matrix; else empty.
  AlignedBuffer<bfloat16> embedding;
  std::vector<Layer<Precision>> layers;
  AlignedBuffer<float> final_norm;
  typename Precision::Matrix output;  ///< [vocab] x [hidden]

  /// The input embedding of a token as floats, [shape.hidden].
  void embed(Token token, float* x) const;
  std::int64_t bytes() const;
};

/// Packs the weights of a source, named as Hugging Face names them ("model.layers.0.self_attn.q_proj.weight", ...).
/// Throws std::invalid_argument for a group size that is none of 32, 64, 128 and for weights that are not finite,
/// kwker::Error for a tensor that is missing or has another shape than the configuration says.
template <class Precision>
std::shared_ptr<const Model<Precision>> build_model(const ModelConfig& config, const TensorSource& source,
                                                    const PackOptions& options = {});

extern template struct Model<Int4>;
extern template struct Model<BFloat16>;
extern template std::shared_ptr<const Model<Int4>> build_model(const ModelConfig&, const TensorSource&,
                                                               const PackOptions&);
extern template std::shared_ptr<const Model<BFloat16>> build_model(const ModelConfig&, const TensorSource&,
                                                                   const PackOptions&);

}  // namespace kwker
