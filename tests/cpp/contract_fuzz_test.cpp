// The contract under fuzz: random shapes, rows, chunkings, threads, slot mixes, roll-backs, levels, group sizes and
// precisions, each against the plainest path there is, one row at a time in portable code.
//
// KWKER_FUZZ_CASES sets how many cases are drawn, KWKER_FUZZ_SEED where to start.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bits.hpp"
#include "kwker/cpu/usable_cpus.hpp"
#include "kwker/decoder.hpp"
#include "random_model.hpp"

namespace kwker::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDefaultCases = 12;
#else
constexpr int kDefaultCases = 60;
#endif

int from_environment(const char* name, int fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::atoi(value);
}

struct Sequence {
  std::vector<Token> tokens;
  std::vector<float> expected;  // logits of every position
  int next = 0;                 // positions in the cache
};

template <class Precision>
void expected_logits(const std::shared_ptr<const Model<Precision>>& model, Sequence& sequence) {
  const ScopedIsa scope(Isa::kPortable);
  Decoder decoder(model, {.max_cache_len = static_cast<int>(sequence.tokens.size()), .num_threads = 1});
  sequence.expected.resize(sequence.tokens.size() * static_cast<std::size_t>(model->config.vocab_size));
  logits(decoder, sequence.tokens, 1, sequence.expected.data());
}

template <class Precision>
void run_case(std::mt19937& random, const std::string& name) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint32_t>(n)); };
  const ModelConfig config = random_config(random);
  const int group = std::vector<int>{32, 64, 128}[static_cast<std::size_t>(below(3))];
  const auto model = build_model<Precision>(config, RandomWeights(config, random()), PackOptions{group, nullptr});
  std::vector<Sequence> sequences(static_cast<std::size_t>(1 + below(4)));
  for (Sequence& sequence : sequences) {
    sequence.tokens = random_tokens(random, config.vocab_size, 1 + below(below(4) == 0 ? 150 : 40));
    expected_logits(model, sequence);
  }
  const std::vector<Isa> levels = isa_levels();
  const int most_rows = std::vector<int>{1, 2, 4, 9, 17, 40, 140}[static_cast<std::size_t>(below(7))];
  Decoder decoder(
      model,
      {.max_cache_len = 160, .max_batch = static_cast<int>(sequences.size()) + below(2), .num_threads = 1 + below(4)});
  for (bool more = true; more;) {
    const ScopedIsa scope(levels[static_cast<std::size_t>(below(static_cast<int>(levels.size())))]);
    std::vector<Row> rows;
    std::vector<const float*> expected;
    const int first = below(static_cast<int>(sequences.size()));
    for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
      const int s = (first + i) % static_cast<int>(sequences.size());
      Sequence& sequence = sequences[static_cast<std::size_t>(s)];
      if (below(4) == 0) sequence.next -= below(std::min(sequence.next, 5) + 1);
      const int left = static_cast<int>(sequence.tokens.size()) - sequence.next;
      const int good = std::min({left, 1 + below(most_rows), 140 - static_cast<int>(rows.size())});
      for (int k = 0; k < good; ++k, ++sequence.next) {
        const bool wanted = below(5) != 0;
        rows.push_back({s, sequence.tokens[static_cast<std::size_t>(sequence.next)], sequence.next, wanted});
        if (wanted) expected.push_back(sequence.expected.data() + sequence.next * config.vocab_size);
      }
      // Proposals that will be rejected: rows after the good ones with other tokens.
      for (int k = 0, wrong = good > 0 ? below(4) : 0; k < wrong && sequence.next + k < 160; ++k) {
        rows.push_back({s, static_cast<Token>(below(static_cast<int>(config.vocab_size))), sequence.next + k, false});
      }
    }
    if (!rows.empty()) {
      const LogitsView view = decoder.step(rows);
      ASSERT_EQ(view.rows, static_cast<int>(expected.size()));
      for (int i = 0; i < view.rows; ++i) {
        ASSERT_TRUE(same_bits(view.row(i), {expected[static_cast<std::size_t>(i)], view.row(i).size()}))
            << name << ", " << rows.size() << " rows on " << isa_name(current_isa());
      }
    }
    more = false;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      if (decoder.length(static_cast<int>(s)) > sequences[s].next)
        decoder.truncate(static_cast<int>(s), sequences[s].next);
      more = more || sequences[s].next < static_cast<int>(sequences[s].tokens.size());
    }
  }
}

TEST(ContractFuzz, NoPathChangesABit) {
  const int cases = from_environment("KWKER_FUZZ_CASES", kDefaultCases), seed = from_environment("KWKER_FUZZ_SEED", 1);
  for (int i = 0; i < cases; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(seed + i));
    const std::string name = "KWKER_FUZZ_SEED=" + std::to_string(seed + i) + " KWKER_FUZZ_CASES=1";
    if (random() % 2 == 0) {
      run_case<Int4>(random, name);
    } else {
      run_case<BFloat16>(random, name);
    }
    if (HasFatalFailure()) return;
    if (cases > 1000 && (i + 1) % 500 == 0) std::cout << i + 1 << " of " << cases << " cases" << std::endl;
  }
}

// Three times more threads than CPUs, so that every one of them loses its CPU within kernels, tiles and barriers.
TEST(ContractFuzz, NoBitIsLostToPreemption) {
  std::mt19937 random(99);
  ModelConfig config = tiny_config();
  config.hidden_size = 256;
  config.intermediate_size = 512;
  config.num_layers = 4;
  const auto run = [&](auto precision) {
    const auto model = build_model<decltype(precision)>(config, RandomWeights(config, 5), {});
    Sequence sequence{random_tokens(random, config.vocab_size, 64), {}, 0};
    expected_logits(model, sequence);
    std::vector<std::thread> busy;  // others who want the CPUs too
    std::atomic<bool> stop{false};
    for (int i = 0; i < usable_cpus(); ++i) {
      busy.emplace_back([&stop] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    Decoder decoder(model, {.max_cache_len = 64, .num_threads = 3 * usable_cpus()});
    std::vector<float> got(sequence.expected.size());
    const int rounds = from_environment("KWKER_FUZZ_CASES", kDefaultCases) / 10;
    for (int round = 0; round < rounds; ++round) {
      for (const int chunk : {9, 16, 64}) {
        logits(decoder, sequence.tokens, chunk, got.data());
        EXPECT_TRUE(same_bits(got, sequence.expected)) << "chunk " << chunk;
      }
    }
    stop = true;
    for (std::thread& thread : busy) thread.join();
  };
  run(Int4{});
  run(BFloat16{});
}

}  // namespace
}  // namespace kwker::testing
