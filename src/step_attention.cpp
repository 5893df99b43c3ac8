// Attention within a step.
#include "step_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kwker {
namespace {

/// Parts between asking for memory to append to and doing so.
constexpr int kAppendsAhead = 3;

}  // namespace

StepAttention::StepAttention(const ModelConfig& config, const ModelShape& shape, const RopeTable& rope, KvCache& cache)
    : shape_(shape),
      rope_(rope),
      cache_(cache),
      group_(static_cast<int>(shape.heads / shape.kv_heads)),
      plan_shape_{shape.kv_heads, group_, static_cast<int>(shape.head_dim),
                  static_cast<int>(std::min<std::int64_t>(config.sliding_window, 1 << 30))},
      scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))) {}

void StepAttention::prepare(std::span<const Row> rows, int threads, const KernelTable& kernels) {
  kernels_ = &kernels;
  runs_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (runs_.empty() || runs_.back().sequence != rows[i].sequence) {
      cache_.reserve(rows[i].sequence);
      runs_.push_back({rows[i].sequence, static_cast<int>(i), 0, rows[i].position});
    }
    ++runs_.back().rows;
  }
  plan_ = plan_attention(runs_, plan_shape_, threads);
  while (static_cast<int>(scratch_.size()) < threads) {
    Scratch scratch;
    scratch.queries = AlignedBuffer<float>(static_cast<std::size_t>(kAttentionRows * group_ * shape_.head_dim));
    scratch.weights = AlignedBuffer<float>(static_cast<std::size_t>(kAttentionTile * cache_.capacity()));
    scratch_.push_back(std::move(scratch));
  }
  const auto scores = static_cast<std::size_t>(plan_.scores);
  if (scores_.size() < scores) scores_ = AlignedBuffer<float>(std::max(scores, 2 * scores_.size()));
}

void StepAttention::prefetch(const Worker& worker, std::int64_t layer) const {
  if (plan_.split || plan_.append_first) return;
  for (int i = 0; i < kAppendsAhead; ++i) {
    if (duty(worker).first_part + i < duty(worker).last_part) prefetch_appends(duty(worker).first_part + i, layer);
  }
}

void StepAttention::run(const Worker& worker, std::int64_t layer, float* qkv, float* out) {
  if (plan_.split) {
    run_split(worker, layer, qkv, out);
  } else {
    run_whole(worker, layer, qkv, out);
  }
}

void StepAttention::rotate(float* head, int position) const {
  kernels_->rotate(head, rope_.cos(position), rope_.sin(position), rope_.half());
}

void StepAttention::append(const AttentionPart& part, std::int64_t layer, float* qkv) {
  for (int i = 0; i < part.rows; ++i) {
    float* key = qkv + (part.first_row + i) * shape_.qkv + shape_.queries + part.kv_head * shape_.head_dim;
    rotate(key, part.position + i);
    cache_.append(sequence(part), layer, part.kv_head, part.position + i, key, key + shape_.kv_heads * shape_.head_dim);
  }
}

void StepAttention::prefetch_appends(int part_index, std::int64_t layer) const {
  const AttentionPart& part = plan_.parts[static_cast<std::size_t>(part_index)];
  cache_.prefetch(sequence(part), layer, part.kv_head, part.position);
}

void StepAttention::rotate_queries(const Worker& worker, const AttentionPart& part, const float* qkv) {
  const std::int64_t width = group_ * shape_.head_dim;
  float* queries = scratch(worker).queries.data();
  for (int i = 0; i < part.rows; ++i, queries += width) {
    std::memcpy(queries, qkv + (part.first_row + i) * shape_.qkv + part.kv_head * width,
                static_cast<std::size_t>(width) * sizeof(float));
    for (int head = 0; head < group_; ++head) rotate(queries + head * shape_.head_dim, part.position + i);
  }
}

AttentionArgs StepAttention::arguments(const Worker& worker, const AttentionPart& part, std::int64_t layer,
                                       float* out) {
  AttentionArgs args;
  args.queries = scratch(worker).queries.data();
  args.keys = cache_.keys(sequence(part), layer, part.kv_head);
  args.values = cache_.values(sequence(part), layer, part.kv_head);
  args.rows = part.rows;
  args.position = part.position;
  args.window = plan_shape_.window;
  args.group = group_;
  args.head_dim = plan_shape_.head_dim;
  args.scale = scale_;
  args.out = out + part.first_row * shape_.queries + part.kv_head * group_ * shape_.head_dim;
  args.out_stride = shape_.queries;
  args.weights = scratch(worker).weights.data();
  args.scores = {scores_.data() + part.first_score, part.begin, part.end - part.begin};
  return args;
}

void StepAttention::run_whole(const Worker& worker, std::int64_t layer, float* qkv, float* out) {
  const AttentionPlan::Thread& mine = duty(worker);
  if (plan_.append_first) {
    for (int i = mine.first_part; i < mine.last_part; ++i) append(plan_.parts[static_cast<std::size_t>(i)], layer, qkv);
    worker.barrier();
  }
  for (int i = mine.first_part; i < mine.last_part; ++i) {
    const AttentionPart& part = plan_.parts[static_cast<std::size_t>(i)];
    if (!plan_.append_first) {
      if (i + kAppendsAhead < mine.last_part) prefetch_appends(i + kAppendsAhead, layer);
      append(part, layer, qkv);
    }
    rotate_queries(worker, part, qkv);
    AttentionArgs args = arguments(worker, part, layer, out);
    const AttentionPart& next = plan_.parts[static_cast<std::size_t>(std::min(i + 1, mine.last_part - 1))];
    args.next = cache_.keys(sequence(next), layer, next.kv_head) + next.begin * shape_.head_dim;
    kernels_->attention(args);
  }
}

void StepAttention::run_split(const Worker& worker, std::int64_t layer, float* qkv, float* out) {
  for (const AttentionSlice& slice : duty(worker).scores) {
    const AttentionPart& part = plan_.parts[static_cast<std::size_t>(slice.part)];
    if (slice.end == part.end) append(part, layer, qkv);
    rotate_queries(worker, part, qkv);
    kernels_->attention_scores(arguments(worker, part, layer, out), slice.begin, slice.end);
  }
  worker.barrier();
  for (const AttentionSlice& slice : duty(worker).sums) {
    const AttentionPart& part = plan_.parts[static_cast<std::size_t>(slice.part)];
    kernels_->attention_sums(arguments(worker, part, layer, out), slice.begin, slice.end);
  }
}

}  // namespace kwker
