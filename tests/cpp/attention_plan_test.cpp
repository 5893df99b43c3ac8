// Attention is shared out whole, once, about evenly, and with barriers where threads depend on each other.
#include "kwker/model/attention_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace kwker {
namespace {

struct Case {
  std::vector<Run> runs;
  AttentionShape shape;
};

const std::vector<Case> kCases = {
    {{{0, 0, 1, 1000}}, {3, 3, 64, 0}},                                 // a small model's decode step, long context
    {{{0, 0, 1, 5000}}, {3, 3, 64, 100}},                               // the same with a window
    {{{0, 0, 1, 0}}, {1, 1, 32, 0}},                                    // a single query
    {{{0, 0, 9, 1600}}, {5, 3, 96, 0}},                                 // a verification
    {{{0, 0, 9, 40}}, {32, 1, 64, 0}},                                  // the same, many heads
    {{{0, 0, 128, 0}}, {5, 3, 64, 0}},                                  // a prompt
    {{{0, 0, 1, 10}, {1, 1, 16, 0}, {2, 17, 3, 3000}}, {2, 4, 128, 0}}  // a batch
};

/// Calls check(case, plan, threads).
template <class F>
void each_plan(const F& check) {
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    for (const int threads : {1, 2, 3, 8, 40}) {
      SCOPED_TRACE("case " + std::to_string(i) + ", " + std::to_string(threads) + " threads");
      const AttentionPlan plan = plan_attention(kCases[i].runs, kCases[i].shape, threads);
      ASSERT_EQ(plan.threads.size(), static_cast<std::size_t>(threads));
      check(kCases[i], plan, threads);
    }
  }
}

TEST(AttentionPlan, PartsAreAllRowsAndHeadsOnceWithAllTheySee) {
  each_plan([](const Case& c, const AttentionPlan& plan, int) {
    std::set<std::pair<int, std::int64_t>> seen;  // row, head
    for (const AttentionPart& part : plan.parts) {
      const kwker::Run& run = c.runs[static_cast<std::size_t>(part.run)];
      ASSERT_LE(part.rows, kAttentionRows);
      ASSERT_EQ(part.position - run.position, part.first_row - run.first_row);
      ASSERT_EQ(part.begin % 32, 0);
      ASSERT_EQ(part.end % 32, 0);
      ASSERT_GE(part.end, part.position + part.rows);
      ASSERT_LE(part.begin, c.shape.window == 0 ? 0 : std::max(0, part.position + 1 - c.shape.window));
      for (int i = 0; i < part.rows; ++i) ASSERT_TRUE(seen.emplace(part.first_row + i, part.kv_head).second);
    }
    std::size_t expected = 0;
    for (const kwker::Run& run : c.runs) expected += static_cast<std::size_t>(run.rows * c.shape.kv_heads);
    EXPECT_EQ(seen.size(), expected);
  });
}

TEST(AttentionPlan, ThreadsDoEverythingOnce) {
  int split = 0, whole = 0;
  each_plan([&](const Case& c, const AttentionPlan& plan, int threads) {
    ++(plan.split ? split : whole);
    if (!plan.split) {
      int next = 0;
      for (const auto& thread : plan.threads) {
        EXPECT_EQ(thread.first_part, next);
        EXPECT_TRUE(thread.scores.empty() && thread.sums.empty());
        next = thread.last_part;
      }
      EXPECT_EQ(next, static_cast<int>(plan.parts.size()));
      return;
    }
    EXPECT_GT(threads, 1);
    std::map<int, int> positions, columns;  // done so far, of each part
    for (const auto& thread : plan.threads) {
      EXPECT_EQ(thread.first_part, thread.last_part);
      for (const AttentionSlice& slice : thread.scores) {
        const AttentionPart& part = plan.parts[static_cast<std::size_t>(slice.part)];
        EXPECT_EQ(slice.begin, part.begin + positions[slice.part]);
        EXPECT_EQ(slice.begin % 32, 0);
        EXPECT_LT(slice.begin, slice.end);
        positions[slice.part] = slice.end - part.begin;
        // Who appends reads it alone: no other slice reaches the block of the first new row.
        EXPECT_TRUE(slice.end == part.end || slice.end <= part.position / 32 * 32);
      }
      for (const AttentionSlice& slice : thread.sums) {
        EXPECT_EQ(slice.begin, columns[slice.part]);
        EXPECT_EQ(slice.begin % 32, 0);
        EXPECT_LT(slice.begin, slice.end);
        columns[slice.part] = slice.end;
      }
    }
    std::int64_t scores = 0;
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      EXPECT_EQ(positions[static_cast<int>(i)], plan.parts[i].end - plan.parts[i].begin);
      EXPECT_EQ(columns[static_cast<int>(i)], c.shape.head_dim);
      EXPECT_EQ(plan.parts[i].first_score, scores);
      scores += std::int64_t{plan.parts[i].rows} * c.shape.group * (plan.parts[i].end - plan.parts[i].begin);
    }
    EXPECT_EQ(plan.scores, scores);
  });
  EXPECT_GT(split, 0);
  EXPECT_GT(whole, 0);
}

TEST(AttentionPlan, KeysComeFirstWhereOthersNeedThem) {
  each_plan([](const Case& c, const AttentionPlan& plan, int) {
    std::map<std::pair<int, std::int64_t>, std::set<std::size_t>> readers;  // of the keys of a run and head
    for (std::size_t thread = 0; thread < plan.threads.size(); ++thread) {
      for (int i = plan.threads[thread].first_part; i < plan.threads[thread].last_part; ++i) {
        const AttentionPart& part = plan.parts[static_cast<std::size_t>(i)];
        readers[{part.run, part.kv_head}].insert(thread);
      }
    }
    const bool alone = std::all_of(readers.begin(), readers.end(), [](const auto& r) { return r.second.size() <= 1; });
    EXPECT_TRUE(alone || plan.append_first);
    EXPECT_FALSE(plan.split && plan.append_first);
    EXPECT_EQ(plan.append_first, std::any_of(c.runs.begin(), c.runs.end(),
                                             [](const kwker::Run& run) { return run.rows > kAttentionRows; }));
  });
}

TEST(AttentionPlan, ThreadsReadAboutAsMuch) {
  for (const Case& c : kCases) {
    for (const int threads : {2, 3}) {
      const AttentionPlan plan = plan_attention(c.runs, c.shape, threads);
      double most = 0, total = 0, longest = 0;
      for (const auto& thread : plan.threads) {
        double work = 0;
        for (int i = thread.first_part; i < thread.last_part; ++i) {
          const AttentionPart& part = plan.parts[static_cast<std::size_t>(i)];
          work += part.end - part.begin;
        }
        for (const AttentionSlice& slice : thread.scores) work += 0.5 * (slice.end - slice.begin);
        for (const AttentionSlice& slice : thread.sums) {
          const AttentionPart& part = plan.parts[static_cast<std::size_t>(slice.part)];
          work += 0.5 * (part.end - part.begin) * (slice.end - slice.begin) / c.shape.head_dim;
        }
        most = std::max(most, work);
        total += work;
      }
      for (const AttentionPart& part : plan.parts) longest = std::max<double>(longest, part.end - part.begin);
      EXPECT_LE(most, 1.1 * total / threads + std::min(longest, 260.0));
    }
  }
}

}  // namespace
}  // namespace kwker
