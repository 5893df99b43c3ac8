// Attention is shared out whole, once, and about evenly.
#include "kwker/model/attention_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace kwker {
namespace {

struct Case {
  std::vector<Run> runs;
  std::int64_t kv_heads;
  int group;
};

const std::vector<Case> kCases = {
    {{{0, 0, 1, 500}}, 3, 3},                                 // a small model's decode step
    {{{0, 0, 1, 0}}, 1, 1},                                   // a single query
    {{{0, 0, 9, 40}}, 32, 1},                                 // a verification
    {{{0, 0, 128, 0}}, 5, 3},                                 // a prompt
    {{{0, 0, 1, 10}, {1, 1, 17, 0}, {2, 18, 3, 3000}}, 2, 4}  // a batch
};

TEST(AttentionPlan, EveryQueryOnce) {
  for (const Case& c : kCases) {
    for (const int threads : {1, 2, 3, 8, 40}) {
      const AttentionPlan plan = plan_attention(c.runs, c.kv_heads, c.group, threads);
      ASSERT_EQ(plan.threads.size(), static_cast<std::size_t>(threads));
      std::set<std::tuple<int, int, std::int64_t, int>> seen;  // run, row, kv head, head of the group
      for (const auto& parts : plan.threads) {
        for (const AttentionPart& part : parts) {
          ASSERT_LE(part.rows, kAttentionRows);
          ASSERT_LE(part.last_query, part.rows * c.group);
          ASSERT_LT(part.first_query, part.last_query);
          for (int i = part.first_query; i < part.last_query; ++i) {
            ASSERT_TRUE(seen.emplace(part.run, part.first_row + i / c.group, part.kv_head, i % c.group).second);
          }
        }
      }
      std::size_t queries = 0;
      for (const kwker::Run& run : c.runs) queries += static_cast<std::size_t>(run.rows * c.kv_heads * c.group);
      EXPECT_EQ(seen.size(), queries);
    }
  }
}

TEST(AttentionPlan, SelfContainedMeansThatNobodyElseReadsWhatAThreadAppends) {
  int self_contained = 0, not_so = 0;
  for (const Case& c : kCases) {
    for (const int threads : {1, 2, 3}) {
      const AttentionPlan plan = plan_attention(c.runs, c.kv_heads, c.group, threads);
      std::map<std::pair<int, std::int64_t>, std::set<std::size_t>> readers;
      for (std::size_t thread = 0; thread < plan.threads.size(); ++thread) {
        for (const AttentionPart& part : plan.threads[thread]) readers[{part.run, part.kv_head}].insert(thread);
      }
      bool one_reader = true;
      for (const auto& [key, threads_of_head] : readers) one_reader &= threads_of_head.size() == 1;
      EXPECT_TRUE(!plan.self_contained || one_reader);
      ++(plan.self_contained ? self_contained : not_so);
    }
  }
  EXPECT_GT(self_contained, 0);
  EXPECT_GT(not_so, 0);
}

TEST(AttentionPlan, ThreadsHaveAboutTheSameToDo) {
  for (const Case& c : kCases) {
    for (const int threads : {2, 3}) {
      const AttentionPlan plan = plan_attention(c.runs, c.kv_heads, c.group, threads);
      double most = 0, total = 0, query = 0;
      for (const auto& parts : plan.threads) {
        double work = 0;
        for (const AttentionPart& part : parts) {
          const double cost = c.runs[static_cast<std::size_t>(part.run)].position + part.first_row + part.rows;
          work += cost * (part.last_query - part.first_query);
          query = std::max(query, cost);
        }
        most = std::max(most, work);
        total += work;
      }
      EXPECT_LE(most, 1.1 * total / threads + query);
    }
  }
}

}  // namespace
}  // namespace kwker
