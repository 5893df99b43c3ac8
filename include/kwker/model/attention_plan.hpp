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

/// What the plan needs to know of a model.
struct AttentionShape {
  std::int64_t kv_heads;
  int group;     ///< Query heads per key-value head.
  int head_dim;  ///< As stored, a multiple of 32.
  int window;    ///< Positions a row sees, the latest; 0: all.
};

/// Rows of a run that one call of the attention kernel handles, at most: few enough to share a long prompt among
/// threads, many enough to read keys and values seldom.
constexpr int kAttentionRows = 16;

/// All queries of some rows of a run for one key-value head. They see positions of [begin, end), whole blocks of 32.
struct AttentionPart {
  int run;
  int first_row;  ///< In the step.
  int rows;
  int position;  ///< Of the first row.
  std::int64_t kv_head;
  int begin;
  int end;
  std::int64_t first_score;  ///< Of this part in a buffer for all parts' scores, [queries, end - begin].
};

/// A range of positions (of scores) or of values' columns that a thread does of a part.
struct AttentionSlice {
  int part;
  int begin;
  int end;
};

struct AttentionPlan {
  struct Thread {
    int first_part = 0;  ///< Of those it does alone.
    int last_part = 0;
    std::vector<AttentionSlice> scores;  ///< Of those all threads do together: first all scores, then all sums.
    std::vector<AttentionSlice> sums;
  };
  std::vector<AttentionPart> parts;
  std::vector<Thread> threads;
  /// Every part is done by all threads together: few parts would leave some threads waiting for others.
  bool split = false;
  /// Some rows see keys of other rows that another thread may append: all keys come first, then a barrier.
  bool append_first = false;
  std::int64_t scores = 0;  ///< Size of the buffer for all parts' scores; 0 unless split.
};

AttentionPlan plan_attention(std::span<const Run> runs, const AttentionShape& shape, int threads);

}  // namespace kwker
