// The ragged step: embedding, layers over the cache, logits, as one parallel region with barriers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kwker/base/round_up.hpp"
#include "kwker/cpu/isa.hpp"
#include "kwker/cpu/thread_pool.hpp"
#include "kwker/model/decoder.hpp"

namespace kwker {
namespace {

/// Consecutive rows of one sequence.
struct Run {
  int sequence;
  int first_row;
  int rows;
  int position;
};

/// Up to this many rows every thread prepares all of them for itself: that costs less than the barrier it spares.
constexpr int kPrivateRows = 2;

/// Rows of a run that one call of the attention kernel handles: few enough to share a long prompt among threads, many
/// enough to read keys and values seldom.
constexpr int kAttentionRows = 16;

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
  const RopeTable& rope;
  KvCache& cache;
  const KernelTable* kernels = nullptr;
  std::span<const Row> rows;
  std::vector<Run> runs;
  std::vector<int> wanted;  // rows whose logits are asked for

  std::int64_t capacity = 0;         // rows there is room for
  std::int64_t logits_capacity = 0;  // rows of logits there is room for
  int threads = 0;
  AlignedBuffer<float> hidden, qkv, attention, gate_up, activation, logits;
  std::vector<AlignedBuffer<float>> row_scratch;    // per thread: one row, normalised
  std::vector<AlignedBuffer<float>> score_scratch;  // per thread: attention scores
  Prepared from_hidden, from_attention, from_activation;

  Step(const Model<Precision>& model_, const RopeTable& rope_, KvCache& cache_)
      : model(model_), rope(rope_), cache(cache_) {}

  void prepare(std::span<const Row> new_rows, int new_threads) {
    kernels = &kernel_table(current_isa());
    rows = new_rows;
    runs.clear();
    wanted.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (runs.empty() || runs.back().sequence != rows[i].sequence) {
        cache.reserve(rows[i].sequence);
        runs.push_back({rows[i].sequence, static_cast<int>(i), 0, rows[i].position});
      }
      ++runs.back().rows;
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
    score_scratch.clear();
    for (int i = 0; i < new_threads; ++i) {
      row_scratch.emplace_back(static_cast<std::size_t>(shape.hidden));
      score_scratch.emplace_back(static_cast<std::size_t>(kAttentionTile * cache.capacity()));
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
    const auto [first, last] = worker.part(matrix.layout().tiles());
    inputs.multiply(*kernels, matrix, count, MatmulTarget{y, stride, store, first, last});
  }

  const float* normalised(const Worker& worker, const AlignedBuffer<float>& weight, int row) {
    float* out = row_scratch[static_cast<std::size_t>(worker.index())].data();
    kernels->rms_norm(hidden.data() + row * model.shape.hidden, weight.data(),
                      static_cast<float>(model.config.rms_norm_eps), model.config.hidden_size, model.shape.hidden, out);
    return out;
  }

  /// Rotates queries and keys and appends keys and values to the cache: a row of a run at a time.
  void rotate_and_append(const Worker& worker, std::int64_t layer) {
    const ModelShape& shape = model.shape;
    const auto [begin, end] = worker.part(static_cast<std::int64_t>(rows.size()));
    for (std::int64_t i = begin; i < end; ++i) {
      const Row& row = rows[static_cast<std::size_t>(i)];
      float* heads = qkv.data() + i * shape.qkv;
      for (std::int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        kernels->rotate(heads + head * shape.head_dim, rope.cos(row.position), rope.sin(row.position), rope.half());
      }
      const float* keys = heads + shape.queries;
      const float* values = keys + shape.kv_heads * shape.head_dim;
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        cache.append(row.sequence, layer, head, row.position, keys + head * shape.head_dim,
                     values + head * shape.head_dim);
      }
    }
  }

  /// Deals (run, rows, key-value head) out to the threads in turn: neighbours see about as many positions.
  void attend(const Worker& worker, std::int64_t layer) {
    const ModelShape& shape = model.shape;
    const int group = static_cast<int>(shape.heads / shape.kv_heads);
    int turn = 0;
    for (const Run& run : runs) {
      for (int first = 0; first < run.rows; first += kAttentionRows) {
        for (std::int64_t head = 0; head < shape.kv_heads; ++head, ++turn) {
          if (turn % worker.count() != worker.index()) continue;
          AttentionArgs args;
          const std::int64_t row = run.first_row + first;
          args.queries = qkv.data() + row * shape.qkv + head * group * shape.head_dim;
          args.query_stride = shape.qkv;
          args.keys = cache.keys(run.sequence, layer, head);
          args.values = cache.values(run.sequence, layer, head);
          args.capacity = cache.capacity();
          args.rows = std::min(kAttentionRows, run.rows - first);
          args.position = run.position + first;
          args.window = static_cast<int>(std::min<std::int64_t>(model.config.sliding_window, 1 << 30));
          args.group = group;
          args.head_dim = static_cast<int>(shape.head_dim);
          args.scale = attention_scale;
          args.out = attention.data() + row * shape.queries + head * group * shape.head_dim;
          args.out_stride = shape.queries;
          args.scratch = score_scratch[static_cast<std::size_t>(worker.index())].data();
          kernels->attention(args);
        }
      }
    }
  }

  void run_layer(const Worker& worker, std::int64_t index) {
    const Layer<Precision>& layer = model.layers[static_cast<std::size_t>(index)];
    const ModelShape& shape = model.shape;
    const int count = static_cast<int>(rows.size());

    const Rows& attention_in = prepare_rows(worker, from_hidden, count,
                                            [&](int row) { return normalised(worker, layer.attention_norm, row); });
    multiply(worker, attention_in, layer.qkv, count, qkv.data(), shape.qkv, Store::kSet);
    worker.barrier();
    rotate_and_append(worker, index);
    worker.barrier();
    attend(worker, index);
    worker.barrier();
    const Rows& attended =
        prepare_rows(worker, from_attention, count, [&](int row) { return attention.data() + row * shape.queries; });
    multiply(worker, attended, layer.attention_out, count, hidden.data(), shape.hidden, Store::kAdd);
    worker.barrier();

    const Rows& mlp_in =
        prepare_rows(worker, from_hidden, count, [&](int row) { return normalised(worker, layer.mlp_norm, row); });
    const auto [first, last] = worker.part(shape.mlp_runs);
    mlp_in.multiply(*kernels, layer.gate_up, count,
                    MatmulTarget{gate_up.data(), shape.mlp_runs * 32, Store::kSet, 2 * first, 2 * last});
    for (int row = 0; row < count; ++row) {
      kernels->swiglu(gate_up.data() + row * shape.mlp_runs * 32 + first * 32, last - first,
                      activation.data() + row * shape.intermediate + first * 16);
    }
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

  float attention_scale = 1.0f;
};

template <class Precision>
Decoder<Precision>::Decoder(std::shared_ptr<const Model<Precision>> model, const DecoderOptions& options)
    : DecoderBase(model->config, options),
      model_(std::move(model)),
      rope_(model_->config, options.max_cache_len),
      cache_(options.max_batch + 1, model_->config.num_layers, model_->shape.kv_heads, model_->shape.head_dim,
             options.max_cache_len),
      step_(std::make_unique<Step>(*model_, rope_, cache_)) {
  step_->attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(model_->config.head_dim)));
}

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
