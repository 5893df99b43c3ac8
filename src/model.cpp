// Builds a packed model from named tensors.
#include "kwker/model/model.hpp"

#include <string>
#include <utility>

#include "kwker/base/error.hpp"
#include "kwker/base/round_up.hpp"

namespace kwker {
namespace {

/// Fetches tensors by name and describes the packed matrices made of them.
class Builder {
 public:
  Builder(const ModelConfig& config, const TensorSource& source) : config_(config), shape_(config), source_(source) {}

  MatrixSource::Part part(const std::string& name, const std::vector<std::int64_t>& shape) const {
    TensorView tensor = source_.tensor(name);
    if (tensor.shape != shape) {
      throw Error(concat("the tensor ", name, " has the shape ", shape_string(tensor.shape), ", expected ",
                         shape_string(shape)));
    }
    return {name, std::move(tensor)};
  }

  AlignedBuffer<float> vector(const std::string& name) const {
    const MatrixSource::Part from = part(name, {config_.hidden_size});
    AlignedBuffer<float> values(static_cast<std::size_t>(shape_.hidden));
    read_row(from.tensor, 0, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] - values[i] != 0) {  // NaN or infinite
        throw std::invalid_argument(concat("the weights of ", name, " hold a value that is NaN or infinite"));
      }
    }
    return values;
  }

  MatrixSource qkv(const std::string& prefix) const {
    MatrixSource matrix;
    matrix.inputs = config_.hidden_size;
    const std::int64_t h = config_.hidden_size, d = config_.head_dim;
    matrix.parts = {part(prefix + "q_proj.weight", {config_.num_heads * d, h}),
                    part(prefix + "k_proj.weight", {config_.num_kv_heads * d, h}),
                    part(prefix + "v_proj.weight", {config_.num_kv_heads * d, h})};
    add_heads(matrix, 0, config_.num_heads, true);
    add_heads(matrix, 1, config_.num_kv_heads, true);
    add_heads(matrix, 2, config_.num_kv_heads, false);
    return matrix;
  }

  MatrixSource attention_out(const std::string& prefix) const {
    MatrixSource matrix;
    matrix.inputs = shape_.queries;
    matrix.parts = {part(prefix + "o_proj.weight", {config_.hidden_size, config_.num_heads * config_.head_dim})};
    add_rows(matrix, 0, config_.hidden_size);
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
        matrix.columns.push_back(d < config_.head_dim ? head * config_.head_dim + d : -1);
      }
    }
    return matrix;
  }

  MatrixSource gate_up(const std::string& prefix) const {
    MatrixSource matrix;
    matrix.inputs = config_.hidden_size;
    matrix.parts = {part(prefix + "gate_proj.weight", {config_.intermediate_size, config_.hidden_size}),
                    part(prefix + "up_proj.weight", {config_.intermediate_size, config_.hidden_size})};
    for (std::int64_t run = 0; run < shape_.mlp_runs; ++run) {
      for (const int which : {0, 1}) {
        for (std::int64_t row = run * 16; row < run * 16 + 16; ++row) {
          const bool real = row < config_.intermediate_size;
          matrix.outputs.push_back({real ? which : -1, row});
        }
      }
    }
    return matrix;
  }

  /// A matrix packed as it is.
  MatrixSource plain(const std::string& name, std::int64_t outputs, std::int64_t inputs) const {
    MatrixSource matrix;
    matrix.inputs = inputs;
    matrix.parts = {part(name, {outputs, inputs})};
    add_rows(matrix, 0, outputs);
    return matrix;
  }

  AlignedBuffer<bfloat16> embedding(const std::string& name) const {
    const MatrixSource matrix = plain(name, config_.vocab_size, config_.hidden_size);
    AlignedBuffer<bfloat16> table(static_cast<std::size_t>(config_.vocab_size * shape_.hidden));
    std::vector<float> row, scratch;
    for (std::int64_t token = 0; token < config_.vocab_size; ++token) {
      matrix.read(token, row, scratch);
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (row[i] - row[i] != 0) {
          throw std::invalid_argument(concat("the weights of ", name, " hold a value that is NaN or infinite"));
        }
        table[static_cast<std::size_t>(token * shape_.hidden) + i] = to_bfloat16(row[i]);
      }
    }
    return table;
  }

 private:
  static void add_rows(MatrixSource& matrix, int part, std::int64_t rows) {
    for (std::int64_t row = 0; row < rows; ++row) matrix.outputs.push_back({part, row});
  }

  /// Heads padded to shape_.head_dim. In rotated heads each half is padded by itself, so that the halves of every
  /// pair are at the same lane; the order of a head's values cancels out in query times key.
  void add_heads(MatrixSource& matrix, int part, std::int64_t heads, bool rotated) const {
    const std::int64_t dim = config_.head_dim, half = dim / 2;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
        std::int64_t from = i < dim ? i : -1;
        if (rotated) {
          const std::int64_t lane = i % shape_.half_head;
          from = lane < half ? i / shape_.half_head * half + lane : -1;
        }
        matrix.outputs.push_back({from < 0 ? -1 : part, from < 0 ? 0 : head * dim + from});
      }
    }
  }

  const ModelConfig& config_;
  ModelShape shape_;
  const TensorSource& source_;
};

}  // namespace

ModelShape::ModelShape(const ModelConfig& config)
    : hidden(round_up<std::int64_t>(config.hidden_size, 32)),
      half_head(round_up<std::int64_t>(config.head_dim / 2, 16)),
      head_dim(2 * half_head),
      heads(config.num_heads),
      kv_heads(config.num_kv_heads),
      queries(heads * head_dim),
      qkv((heads + 2 * kv_heads) * head_dim),
      intermediate(round_up<std::int64_t>(config.intermediate_size, 32)),
      mlp_runs(ceil_div<std::int64_t>(config.intermediate_size, 16)),
      vocab(round_up<std::int64_t>(config.vocab_size, 16)) {}

template <class Precision>
void Model<Precision>::embed(Token token, float* x) const {
  if (embedding.size() == 0) {
    output.read_row(token, x);
    return;
  }
  const bfloat16* row = embedding.data() + token * shape.hidden;
  for (std::int64_t i = 0; i < shape.hidden; ++i) x[i] = to_float(row[i]);
}

template <class Precision>
std::int64_t Model<Precision>::bytes() const {
  std::int64_t total = static_cast<std::int64_t>(embedding.bytes() + final_norm.bytes()) + output.bytes();
  for (const Layer<Precision>& layer : layers) {
    total += static_cast<std::int64_t>(layer.attention_norm.bytes() + layer.mlp_norm.bytes()) + layer.qkv.bytes() +
             layer.attention_out.bytes() + layer.gate_up.bytes() + layer.down.bytes();
  }
  return total;
}

template <class Precision>
std::shared_ptr<const Model<Precision>> build_model(const ModelConfig& config, const TensorSource& source,
                                                    const PackOptions& options) {
  config.validate();
  const int group = options.group_size;
  if (group != 32 && group != 64 && group != 128) {
    throw std::invalid_argument(concat("group_size is 32, 64 or 128, got ", group));
  }
  const Builder builder(config, source);
  auto model = std::make_shared<Model<Precision>>(
      Model<Precision>{config, ModelShape(config), group, {}, {}, builder.vector("model.norm.weight"), {}});
  const std::int64_t total = config.num_layers * 4 + 1;
  std::int64_t done = 0;
  const auto pack = [&](const MatrixSource& matrix) {
    if (options.progress && done == 0) options.progress(0, total);
    typename Precision::Matrix packed = Precision::pack(matrix, group);
    if (options.progress) options.progress(++done, total);
    return packed;
  };
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = concat("model.layers.", i, ".");
    Layer<Precision> layer;
    layer.attention_norm = builder.vector(prefix + "input_layernorm.weight");
    layer.mlp_norm = builder.vector(prefix + "post_attention_layernorm.weight");
    layer.qkv = pack(builder.qkv(prefix + "self_attn."));
    layer.attention_out = pack(builder.attention_out(prefix + "self_attn."));
    layer.gate_up = pack(builder.gate_up(prefix + "mlp."));
    layer.down = pack(builder.plain(prefix + "mlp.down_proj.weight", config.hidden_size, config.intermediate_size));
    model->layers.push_back(std::move(layer));
  }
  const std::string embedding = "model.embed_tokens.weight";
  if (!config.tie_word_embeddings) model->embedding = builder.embedding(embedding);
  model->output = pack(
      builder.plain(config.tie_word_embeddings ? embedding : "lm_head.weight", config.vocab_size, config.hidden_size));
  return model;
}

template struct Model<Int4>;
template struct Model<BFloat16>;
template std::shared_ptr<const Model<Int4>> build_model(const ModelConfig&, const TensorSource&, const PackOptions&);
template std::shared_ptr<const Model<BFloat16>> build_model(const ModelConfig&, const TensorSource&,
                                                            const PackOptions&);

}  // namespace kwker
