// The attention of a step: rotates queries and keys, appends keys and values to the cache, attends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/cpu/thread_pool.hpp"
#include "kwker/kernels/table.hpp"
#include "kwker/model/attention_plan.hpp"
#include "kwker/model/config.hpp"
#include "kwker/model/decoder.hpp"
#include "kwker/model/kv_cache.hpp"
#include "kwker/model/model.hpp"
#include "kwker/model/rope.hpp"

namespace kwker {

class StepAttention {
 public:
  StepAttention(const ModelConfig& config, const ModelShape& shape, const RopeTable& rope, KvCache& cache);

  /// Plans for these rows. Throws std::bad_alloc.
  void prepare(std::span<const Row> rows, int threads, const KernelTable& kernels);
  /// Asks for the memory that this thread will append to first. For a moment of waiting.
  void prefetch(const Worker& worker, std::int64_t layer) const;
  /// out = attention, both [rows, ...] as the fused matrix gives them; a barrier must stand before and after.
  void run(const Worker& worker, std::int64_t layer, float* qkv, float* out);

 private:
  /// What one thread works with.
  struct Scratch {
    AlignedBuffer<float> queries;  ///< [rows, group, head_dim] of a part, rotated
    AlignedBuffer<float> weights;
  };

  Scratch& scratch(const Worker& worker) { return scratch_[static_cast<std::size_t>(worker.index())]; }
  const AttentionPlan::Thread& duty(const Worker& worker) const {
    return plan_.threads[static_cast<std::size_t>(worker.index())];
  }
  int sequence(const AttentionPart& part) const { return runs_[static_cast<std::size_t>(part.run)].sequence; }
  void rotate(float* head, int position) const;
  void append(const AttentionPart& part, std::int64_t layer, float* qkv);
  void prefetch_appends(int part, std::int64_t layer) const;
  /// Rotated copies of the part's queries, in this thread's scratch.
  void rotate_queries(const Worker& worker, const AttentionPart& part, const float* qkv);
  AttentionArgs arguments(const Worker& worker, const AttentionPart& part, std::int64_t layer, float* out);
  void run_whole(const Worker& worker, std::int64_t layer, float* qkv, float* out);
  void run_split(const Worker& worker, std::int64_t layer, float* qkv, float* out);

  const ModelShape& shape_;
  const RopeTable& rope_;
  KvCache& cache_;
  int group_;
  AttentionShape plan_shape_;
  float scale_;
  const KernelTable* kernels_ = nullptr;
  std::vector<Run> runs_;
  AttentionPlan plan_;
  std::vector<Scratch> scratch_;
  AlignedBuffer<float> scores_;
};

}  // namespace kwker
