// Sharing attention out to threads.
#include "kwker/model/attention_plan.hpp"

#include <algorithm>
#include <cmath>

namespace kwker {
namespace {

/// Work of one query at the end of `positions`, in positions: starting costs as much as some of them.
double query_cost(int positions) { return 16.0 + positions; }

template <class F>
void each_part(std::span<const Run> runs, std::int64_t kv_heads, int group, const F& f) {
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (int first = 0; first < runs[run].rows; first += kAttentionRows) {
      const int rows = std::min(kAttentionRows, runs[run].rows - first);
      for (std::int64_t head = 0; head < kv_heads; ++head) {
        f(AttentionPart{static_cast<int>(run), first, rows, head, 0, rows * group},
          query_cost(runs[run].position + first + rows));
      }
    }
  }
}

}  // namespace

AttentionPlan plan_attention(std::span<const Run> runs, std::int64_t kv_heads, int group, int threads) {
  double total = 0;
  each_part(runs, kv_heads, group,
            [&](const AttentionPart& part, double cost) { total += cost * (part.last_query - part.first_query); });
  AttentionPlan plan;
  plan.threads.resize(static_cast<std::size_t>(threads));
  std::size_t thread = 0;
  double done = 0;
  each_part(runs, kv_heads, group, [&](AttentionPart part, double cost) {
    const int queries = part.last_query;
    plan.self_contained &= part.rows == runs[static_cast<std::size_t>(part.run)].rows;
    while (part.first_query < queries) {
      const double share = total * static_cast<double>(thread + 1) / threads;
      const bool last_thread = thread + 1 == plan.threads.size();
      const int fit = last_thread ? queries : static_cast<int>(std::lround((share - done) / cost));
      part.last_query = std::clamp(part.first_query + fit, part.first_query, queries);
      if (part.last_query > part.first_query) {
        plan.threads[thread].push_back(part);
        plan.self_contained &= part.last_query - part.first_query == queries;
        done += cost * (part.last_query - part.first_query);
      }
      part.first_query = part.last_query;
      if (part.first_query < queries) ++thread;
    }
  });
  return plan;
}

}  // namespace kwker
