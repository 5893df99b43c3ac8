// Sharing attention out to threads.
#include "kwker/model/attention_plan.hpp"

#include <algorithm>

#include "kwker/base/round_up.hpp"

namespace kwker {
namespace {

/// Positions a thread reads in the time that splitting costs (one more barrier, weights computed twice).
constexpr double kSplitCost = 200;

/// Work of a part, in positions read by one pass of the kernel. Starting costs as much as some of them.
double cost(const AttentionPart& part, int group) {
  return (16.0 + part.end - part.begin) * ceil_div(part.rows * group, 8);
}

/// Positions before those of the block of the first new row. The rest is one piece: whoever has it appends the keys.
int old_positions(const AttentionPart& part) { return std::max(part.begin, part.position / 32 * 32) - part.begin; }

/// Deals units out in contiguous, equal ranges: f(thread, part, first unit, last unit).
template <class Units, class F>
void deal(const std::vector<AttentionPart>& parts, int threads, const Units& units, const F& f) {
  std::int64_t total = 0;
  for (const AttentionPart& part : parts) total += units(part);
  std::int64_t before = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t count = units(parts[i]);
    for (int thread = 0; thread < threads; ++thread) {
      const std::int64_t first = std::max<std::int64_t>(0, total * thread / threads - before);
      const std::int64_t last = std::min(count, total * (thread + 1) / threads - before);
      if (first < last) f(thread, static_cast<int>(i), static_cast<int>(first), static_cast<int>(last));
    }
    before += count;
  }
}

std::vector<AttentionPart> make_parts(std::span<const Run> runs, const AttentionShape& shape) {
  std::vector<AttentionPart> parts;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (int first = 0; first < runs[run].rows; first += kAttentionRows) {
      const int rows = std::min(kAttentionRows, runs[run].rows - first), position = runs[run].position + first;
      const int begin = shape.window == 0 ? 0 : std::max(0, position + 1 - shape.window) / 32 * 32;
      for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
        parts.push_back({static_cast<int>(run), runs[run].first_row + first, rows, position, head, begin,
                         round_up(position + rows, 32), 0});
      }
    }
  }
  return parts;
}

/// Gives each thread a contiguous range of whole parts of about equal cost; returns by how much the largest is above
/// the mean.
double deal_whole(AttentionPlan& plan, int group) {
  double total = 0;
  for (const AttentionPart& part : plan.parts) total += cost(part, group);
  const double share = total / static_cast<double>(plan.threads.size());
  double done = 0, most = 0;
  std::size_t next = 0;
  for (std::size_t thread = 0; thread < plan.threads.size(); ++thread) {
    const double before = done;
    plan.threads[thread].first_part = static_cast<int>(next);
    // A part goes to the thread in whose share its middle lies.
    while (next < plan.parts.size()) {
      const double part = cost(plan.parts[next], group);
      if (thread + 1 < plan.threads.size() && done + part / 2 > share * static_cast<double>(thread + 1)) break;
      done += part;
      ++next;
    }
    plan.threads[thread].last_part = static_cast<int>(next);
    most = std::max(most, done - before);
  }
  return most - share;
}

void deal_split(AttentionPlan& plan, const AttentionShape& shape) {
  const int threads = static_cast<int>(plan.threads.size());
  for (AttentionPart& part : plan.parts) {
    part.first_score = plan.scores;
    plan.scores += std::int64_t{part.rows} * shape.group * (part.end - part.begin);
  }
  for (AttentionPlan::Thread& thread : plan.threads) thread.first_part = thread.last_part = 0;
  const auto score_units = [](const AttentionPart& part) { return std::int64_t{old_positions(part)} / 32 + 1; };
  deal(plan.parts, threads, score_units, [&](int thread, int index, int first, int last) {
    const AttentionPart& part = plan.parts[static_cast<std::size_t>(index)];
    const int end = last == score_units(part) ? part.end : part.begin + 32 * last;
    plan.threads[static_cast<std::size_t>(thread)].scores.push_back({index, part.begin + 32 * first, end});
  });
  // A column costs what the part's positions do: units of columns times blocks of positions, rounded to columns.
  constexpr int kColumns = 32;  // as the kernel takes them
  const int columns = shape.head_dim / kColumns;
  const auto sum_units = [&](const AttentionPart& part) {
    return std::int64_t{columns} * ((part.end - part.begin) / 32);
  };
  deal(plan.parts, threads, sum_units, [&](int thread, int index, int first, int last) {
    const AttentionPart& part = plan.parts[static_cast<std::size_t>(index)];
    const int blocks = (part.end - part.begin) / 32;
    const auto column = [&](int unit) { return (unit + blocks / 2) / blocks * kColumns; };
    if (column(first) < column(last)) {
      plan.threads[static_cast<std::size_t>(thread)].sums.push_back({index, column(first), column(last)});
    }
  });
}

}  // namespace

AttentionPlan plan_attention(std::span<const Run> runs, const AttentionShape& shape, int threads) {
  AttentionPlan plan;
  plan.parts = make_parts(runs, shape);
  plan.threads.resize(static_cast<std::size_t>(threads));
  for (const Run& run : runs) plan.append_first |= run.rows > kAttentionRows;
  const double excess = deal_whole(plan, shape.group);
  plan.split = !plan.append_first && threads > 1 && excess > kSplitCost;
  if (plan.split) deal_split(plan, shape);
  return plan;
}

}  // namespace kwker
