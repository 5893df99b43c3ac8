// The ragged step: embedding, layers over the cache, logits, as one parallel region with barriers.
#include <algorithm>
#include <utility>

#include "kwker/base/round_up.hpp"
#include "kwker/cpu/isa.hpp"
#include "kwker/cpu/thread_pool.hpp"
#include "kwker/model/decoder.hpp"
#include "step_attention.hpp"

namespace kwker {
namespace {

/// Up to this many rows every thread prepares all of them for itself: that costs less than the barrier it spares.
constexpr int kPrivateRows = 2;

}  // namespace

/// Everything a step needs besides model and cache; grows with the largest step so far.
template <class Precision>
struct Decoder<Precision>::Step {
  using Rows = typename Precision::Rows;
  /// Prepared rows for the matrices: one set that the threads share and one for each thread.
  struct Prepared {
    std::vector<Rows> sets;
  };

  const Model<Precision>& model;
  const KernelTable* kernels = nullptr;
  std::span<const Row> rows;
  StepAttention self_attention;
  std::vector<int> wanted;  // rows whose logits are asked for

  std::int64_t capacity = 0;         // rows there is room for
  std::int64_t logits_capacity = 0;  // rows of logits there is room for
  int threads = 0;
  AlignedBuffer<float> hidden, qkv, attention, gate_up, activation, logits;
  std::vector<AlignedBuffer<float>> row_scratch;  // per thread: one row, normalised
  Prepared from_hidden, from_attention, from_activation;

  Step(const Model<Precision>& model_, const RopeTable& rope, KvCache& cache)
      : model(model_), self_attention(model_.config, model_.shape, rope, cache) {}

  void prepare(std::span<const Row> new_rows, int new_threads) {
    kernels = &kernel_table(current_isa());
    rows = new_rows;
    self_attention.prepare(rows, new_threads, *kernels);
    wanted.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].wants_logits) wanted.push_back(static_cast<int>(i));
    }
    const std::int64_t count = static_cast<std::int64_t>(rows.size());
    const ModelShape& shape = model.shape;
    if (count > capacity || new_threads > threads) grow(std::max(count, capacity), std::max(new_threads, threads));
    if (static_cast<std::int64_t>(wanted.size()) > logits_capacity) {
      logits = AlignedBuffer<float>(wanted.size() * static_cast<std::size_t>(shape.vocab));
      logits_capacity = static_cast<std::int64_t>(wanted.size());
    }
  }

  void grow(std::int64_t new_capacity, int new_threads) {
    const ModelShape& shape = model.shape;
    const auto buffer = [&](std::int64_t width) {
      return AlignedBuffer<float>(static_cast<std::size_t>(new_capacity * width));
    };
    capacity = 0;  // should an allocation fail, the next step starts over
    hidden = buffer(shape.hidden);
    qkv = buffer(shape.qkv);
    attention = buffer(shape.queries);
    gate_up = buffer(shape.mlp_runs * 32);
    activation = buffer(shape.intermediate);
    const auto prepared = [&](std::int64_t inputs) {
      Prepared result;
      result.sets.emplace_back(inputs, model.group_size, new_capacity);
      for (int i = 0; i < new_threads; ++i) result.sets.emplace_back(inputs, model.group_size, kPrivateRows);
      return result;
    };
    from_hidden = prepared(shape.hidden);
    from_attention = prepared(shape.queries);
    from_activation = prepared(shape.intermediate);
    row_scratch.clear();
    for (int i = 0; i < new_threads; ++i) {
      row_scratch.emplace_back(static_cast<std::size_t>(shape.hidden));
    }
    capacity = new_capacity;
    threads = new_threads;
  }

  /// Gives `make(row, i)` every row to prepare, and returns the set that holds them all.
  template <class Source>
  const Rows& prepare_rows(const Worker& worker, Prepared& prepared, int count, const Source& source) {
    if (count <= kPrivateRows) {
      Rows& own = prepared.sets[static_cast<std::size_t>(worker.index()) + 1];
      for (int i = 0; i < count; ++i) own.set(*kernels, i, source(i));
      return own;
    }
    Rows& shared = prepared.sets[0];
    const auto [begin, end] = worker.part(count);
    for (std::int64_t i = begin; i < end; ++i) shared.set(*kernels, i, source(static_cast<int>(i)));
    worker.barrier();
    return shared;
  }

  void multiply(const Worker& worker, const Rows& inputs, const typename Precision::Matrix& matrix, int count, float* y,
                std::int64_t stride, Store store) const {
    worker.share(matrix.layout().tiles(), matrix.tiles_at_once(), [&](std::int64_t first, std::int64_t last) {
      inputs.multiply(*kernels, matrix, count, MatmulTarget{y, stride, store, first, last});
    });
  }

  const float* normalised(const Worker& worker, const AlignedBuffer<float>& weight, int row) {
    float* out = row_scratch[static_cast<std::size_t>(worker.index())].data();
    kernels->rms_norm(hidden.data() + row * model.shape.hidden, weight.data(),
                      static_cast<float>(model.config.rms_norm_eps), model.config.hidden_size, model.shape.hidden, out);
    return out;
  }

  void run_layer(const Worker& worker, std::int64_t index) {
    const Layer<Precision>& layer = model.layers[static_cast<std::size_t>(index)];
    const ModelShape& shape = model.shape;
    const int count = static_cast<int>(rows.size());

    const Rows& attention_in = prepare_rows(worker, from_hidden, count,
                                            [&](int row) { return normalised(worker, layer.attention_norm, row); });
    multiply(worker, attention_in, layer.qkv, count, qkv.data(), shape.qkv, Store::kSet);
    self_attention.prefetch(worker, index);
    worker.barrier();
    self_attention.run(worker, index, qkv.data(), attention.data());
    worker.barrier();
    const Rows& attended =
        prepare_rows(worker, from_attention, count, [&](int row) { return attention.data() + row * shape.queries; });
    multiply(worker, attended, layer.attention_out, count, hidden.data(), shape.hidden, Store::kAdd);
    worker.barrier();

    const Rows& mlp_in =
        prepare_rows(worker, from_hidden, count, [&](int row) { return normalised(worker, layer.mlp_norm, row); });
    const std::int64_t width = shape.mlp_runs * 32;
    worker.share(2 * shape.mlp_runs, layer.gate_up.tiles_at_once(), [&](std::int64_t first, std::int64_t last) {
      mlp_in.multiply(*kernels, layer.gate_up, count, MatmulTarget{gate_up.data(), width, Store::kSet, first, last});
      for (int row = 0; row < count; ++row) {
        kernels->swiglu(gate_up.data() + row * width + first * 16, (last - first) / 2,
                        activation.data() + row * shape.intermediate + first * 8);
      }
    });
    worker.barrier();
    const Rows& activated = prepare_rows(worker, from_activation, count,
                                         [&](int row) { return activation.data() + row * shape.intermediate; });
    multiply(worker, activated, layer.down, count, hidden.data(), shape.hidden, Store::kAdd);
    worker.barrier();
  }

  void run(const Worker& worker) {
    const auto [begin, end] = worker.part(static_cast<std::int64_t>(rows.size()));
    for (std::int64_t i = begin; i < end; ++i) {
      model.embed(rows[static_cast<std::size_t>(i)].token, hidden.data() + i * model.shape.hidden);
    }
    worker.barrier();
    for (std::int64_t layer = 0; layer < model.config.num_layers; ++layer) run_layer(worker, layer);
    const int count = static_cast<int>(wanted.size());
    if (count == 0) return;
    const Rows& last = prepare_rows(worker, from_hidden, count, [&](int i) {
      return normalised(worker, model.final_norm, wanted[static_cast<std::size_t>(i)]);
    });
    multiply(worker, last, model.output, count, logits.data(), model.shape.vocab, Store::kSet);
  }
};

template <class Precision>
Decoder<Precision>::Decoder(std::shared_ptr<const Model<Precision>> model, const DecoderOptions& options)
    : DecoderBase(model->config, options),
      model_(std::move(model)),
      rope_(model_->config, options.max_cache_len),
      cache_(options.max_batch + 1, model_->config.num_layers, model_->shape.kv_heads, model_->shape.head_dim,
             options.max_cache_len),
      step_(std::make_unique<Step>(*model_, rope_, cache_)) {}

template <class Precision>
Decoder<Precision>::~Decoder() = default;

template <class Precision>
LogitsView Decoder<Precision>::step(std::span<const Row> rows) {
  check_rows(rows);
  const int threads = options().num_threads > 0 ? options().num_threads : num_threads();
  step_->prepare(rows, threads);
  parallel(threads, [this](const Worker& worker) { step_->run(worker); });
  record(rows);
  return {step_->logits.data(), static_cast<int>(step_->wanted.size()), config().vocab_size, model_->shape.vocab};
}

template <class Precision>
std::int64_t Decoder<Precision>::memory_bytes() const {
  return model_->bytes() + cache_.bytes();
}

template <class Precision>
std::int64_t Decoder<Precision>::weight_bytes() const {
  return model_->bytes() - static_cast<std::int64_t>(model_->embedding.bytes());
}

template class Decoder<Int4>;
template class Decoder<BFloat16>;

}  // namespace kwker
