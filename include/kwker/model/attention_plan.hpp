// Which thread does which part of the attention of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kwker {

/// Consecutive rows of one sequence in a step.
struct Run {
  int sequence;
  int first_row;
  int rows;
  int position;  ///< Of the first row.
};

/// Rows of a run that one call of the attention kernel handles, at most: few enough to share a long prompt among
/// threads, many enough to read keys and values seldom.
constexpr int kAttentionRows = 16;

/// The queries [first_query, last_query) of some rows of a run for one key-value head. Query i is head i % group of row
/// i / group.
struct AttentionPart {
  int run;
  int first_row;  ///< Within the run.
  int rows;
  std::int64_t kv_head;
  int first_query;
  int last_query;
};

struct AttentionPlan {
  std::vector<std::vector<AttentionPart>> threads;
  /// A thread has all rows and query heads that share a run and a key-value head: it can append their keys and values
  /// itself, and needs no barrier before it reads them.
  bool self_contained = true;
};

/// Shares the queries of all heads out to the threads: about equal work (queries times positions), neighbours
/// together, since they read the same keys and values.
AttentionPlan plan_attention(std::span<const Run> runs, std::int64_t kv_heads, int group, int threads);

}  // namespace kwker
