// Speed of the step of a model: rows against one row, a long cache against a short one, prefill.
//
// Each line alternates what it measures with what it is compared to and with a probe of the read bandwidth, and gives
// medians: machines change within seconds. Before anything is timed, logits are compared, bit by bit, with those of the
// lowest level of this machine, one row at a time. KWKER_MAX_ISA caps the level.
//   step_benchmark MODEL_FOLDER --benchmark_filter=int4
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kwker/cpu/bandwidth.hpp"
#include "kwker/cpu/isa.hpp"
#include "kwker/decoder.hpp"
#include "kwker/model/feed.hpp"

namespace kwker {
namespace {

constexpr int kShortContext = 64;
constexpr int kRounds = 15;
constexpr int kStepsOfRound = 4;  ///< Their median is the round's time: a single step may be interrupted.
constexpr int kProbeMegabytes = 512;
constexpr int kMostRows = 16, kPrompt = 512;
constexpr int kCheckedRows = 9;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// A decoder with two sequences: 0 holds a short context, 1 the one that a line asks for.
template <class Precision>
class Bench {
 public:
  static Bench& of(const std::filesystem::path& folder, int longest) {
    static Bench bench(folder, longest);
    return bench;
  }

  Decoder<Precision>& decoder() { return decoder_; }

  std::vector<Token> tokens(int count) {
    std::vector<Token> result(static_cast<std::size_t>(count));
    std::uniform_int_distribution<Token> any(0, static_cast<Token>(decoder_.config().vocab_size) - 1);
    for (Token& token : result) token = any(engine_);
    return result;
  }

  /// Makes the sequence `length` tokens long.
  void fill(int sequence, int length) {
    const int have = std::min(decoder_.length(sequence), length);
    decoder_.truncate(sequence, have);
    if (have == length) return;
    std::vector<Token> history(decoder_.history(sequence).begin(), decoder_.history(sequence).end());
    for (const Token token : tokens(length - have)) history.push_back(token);
    feed(decoder_, sequence, history, have);
  }

  /// Seconds of a step of `rows` rows at the end of a context of `length`.
  double step_seconds(int sequence, int length, int rows) {
    std::vector<Row> step;
    for (int i = 0; i < rows; ++i) step.push_back({sequence, Token{1} + i, length + i, true});
    std::vector<double> seconds;
    for (int i = 0; i < kStepsOfRound; ++i) {
      const auto start = std::chrono::steady_clock::now();
      decoder_.step(step);
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return median(seconds);
  }

  /// Whether a step of several rows gives the bits of the lowest level, one row at a time.
  bool right() {
    if (checked_) return right_;
    checked_ = true;
    const std::vector<Token> text = tokens(kCheckedRows);
    std::vector<float> expected;
    {
      const ScopedIsa lowest(isa_levels().front());
      for (int i = 0; i < kCheckedRows; ++i) {
        const Row row{0, text[static_cast<std::size_t>(i)], i, true};
        const auto logits = decoder_.step({&row, 1}).row(0);
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
    }
    std::vector<Row> rows;
    for (int i = 0; i < kCheckedRows; ++i) rows.push_back({0, text[static_cast<std::size_t>(i)], i, true});
    const LogitsView logits = decoder_.step(rows);
    for (int i = 0; i < kCheckedRows; ++i) {
      const auto row = logits.row(i);
      right_ &=
          std::memcmp(row.data(), expected.data() + static_cast<std::size_t>(i) * row.size(), row.size_bytes()) == 0;
    }
    return right_;
  }

 private:
  Bench(const std::filesystem::path& folder, int longest)
      : decoder_(load<Precision>(folder), {.max_cache_len = longest + kMostRows, .max_batch = 2}) {}

  Decoder<Precision> decoder_;
  std::mt19937 engine_{1};
  bool checked_ = false, right_ = true;
};

ReadProbe& probe() {
  static ReadProbe instance(kProbeMegabytes);
  return instance;
}

/// `rows` rows at the end of a context, beside one row at the end of a short one.
template <class Precision>
void step(benchmark::State& state, Bench<Precision>& bench) {
  if (!bench.right()) return state.SkipWithError("other bits than the lowest level, one row at a time");
  const int rows = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  bench.fill(0, kShortContext);
  bench.fill(1, context);
  bench.step_seconds(1, context, rows);
  std::vector<double> seconds, shares, ratios, growths;
  const auto& config = bench.decoder().config();
  const double weights = static_cast<double>(bench.decoder().weight_bytes());
  // Keys and values, two bytes each, of the positions that the long context has more.
  const double cache =
      4.0 * static_cast<double>((context - kShortContext) * config.num_layers * config.num_kv_heads * config.head_dim);
  for ([[maybe_unused]] const auto& _ : state) {
    const double read = probe().run() * 1e9;
    const double one = bench.step_seconds(0, kShortContext, 1), taken = bench.step_seconds(1, context, rows);
    state.SetIterationTime(taken);
    seconds.push_back(taken);
    shares.push_back(weights / taken / read);
    ratios.push_back(taken / one);
    growths.push_back((taken - one) * read / cache);
  }
  state.counters["ms"] = median(seconds) * 1e3;
  state.counters["share"] = median(shares);
  state.counters["over_1_row"] = median(ratios);
  if (context > kShortContext) state.counters["growth_over_read"] = median(growths);
}

/// A prompt from nothing.
template <class Precision>
void prefill(benchmark::State& state, Bench<Precision>& bench) {
  const int count = static_cast<int>(state.range(0));
  const std::vector<Token> prompt = bench.tokens(count);
  std::vector<double> rates;
  for ([[maybe_unused]] const auto& _ : state) {
    const auto start = std::chrono::steady_clock::now();
    feed(bench.decoder(), 1, prompt, 0);
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    state.SetIterationTime(taken);
    rates.push_back(count / taken);
  }
  state.counters["tokens/s"] = median(rates);
}

template <class Precision>
void add_benchmarks(const std::filesystem::path& folder, int longest) {
  const std::string name = Precision::kName;
  const auto add = [&](const std::string& what, auto function) {
    auto run = [folder, longest, function](benchmark::State& state) {
      function(state, Bench<Precision>::of(folder, longest));
    };
    return benchmark::RegisterBenchmark((name + "/" + what).c_str(), run)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime();
  };
  auto* steps = add("step", step<Precision>)->Iterations(kRounds)->ArgNames({"rows", "context"});
  for (const int rows : {1, 2, 3, 4, 5, 6, 8, 9, 12, kMostRows}) steps->Args({rows, kShortContext});
  for (const int context : {183, 926, 4096}) {
    if (context <= longest) steps->Args({1, context});
  }
  add("prefill", prefill<Precision>)->Iterations(3)->Arg(kPrompt);
}

}  // namespace
}  // namespace kwker

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    std::cerr << "usage: step_benchmark MODEL_FOLDER [--benchmark_filter=...]\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  try {
    const std::int64_t most = kwker::HfFolder(folder).config().max_position_embeddings - kwker::kMostRows;
    const int longest = static_cast<int>(std::min<std::int64_t>(4096, most));
    kwker::add_benchmarks<kwker::Int4>(folder, longest);
    kwker::add_benchmarks<kwker::BFloat16>(folder, longest);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
