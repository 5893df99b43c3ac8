// Speed of the matmul kernels: every level of this machine, 1 to 16 rows and a prefill chunk, over more weights than
// any cache holds. Before a kernel is timed its results are compared, bit by bit, with those of the portable level, one
// row at a time.
//
// Counters are medians over passes. GB/s counts bytes of weights; `share` is that over the read bandwidth measured
// before each pass; GMAC/s counts multiply-accumulates. Rows against one row: divide the times of two lines. Lines
// named `cached` multiply a matrix that stays in the second-level caches: the pace of the arithmetic alone.
//   kernel_benchmark --benchmark_filter='int4/.*/8$' --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/cpu/bandwidth.hpp"
#include "kwker/cpu/thread_pool.hpp"
#include "kwker/model/precision.hpp"

namespace kwker {
namespace {

constexpr std::int64_t kOutputs = 8192, kInputs = 2048;
constexpr int kMostRows = 128, kGroup = 32;
constexpr std::int64_t kWeightBytes = std::int64_t{512} << 20;
constexpr int kProbeMegabytes = 512;
constexpr int kPasses = 15;
constexpr std::int64_t kCachedTilesPerThread = 8;
constexpr int kCachedRepeats = 200;

/// Random values, the same each time.
class Random {
 public:
  std::vector<float> values(std::int64_t count) {
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& value : result) value = normal_(engine_);
    return result;
  }

 private:
  std::mt19937 engine_{1};
  std::normal_distribution<float> normal_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Matrices of kWeightBytes together, rows to multiply them with, and what that should give.
template <class Precision>
class Bench {
 public:
  static Bench& instance() {
    static Bench bench;
    return bench;
  }

  std::size_t matrices() const { return matrices_.size(); }
  std::int64_t bytes() const { return matrices_[0].bytes(); }

  /// y = w x for matrix `index` and the first `rows` rows, by all threads.
  void multiply(const KernelTable& kernels, std::size_t index, int rows) {
    const auto& matrix = matrices_[index];
    parallel(0, [&](const Worker& worker) {
      const auto [first, last] = worker.part(matrix.layout().tiles());
      rows_.multiply(kernels, matrix, rows, {y_.data(), kOutputs, Store::kSet, first, last});
    });
  }

  /// The first tiles of a matrix, the same for each thread every time; returns the bytes of weights read.
  std::int64_t multiply_cached(const KernelTable& kernels, int rows) {
    const auto& matrix = matrices_[0];
    parallel(0, [&](const Worker& worker) {
      const std::int64_t first = worker.index() * kCachedTilesPerThread;
      for (int i = 0; i < kCachedRepeats; ++i) {
        rows_.multiply(kernels, matrix, rows, {y_.data(), kOutputs, Store::kSet, first, first + kCachedTilesPerThread});
      }
    });
    return matrix.bytes() / matrix.layout().tiles() * kCachedTilesPerThread * num_threads() * kCachedRepeats;
  }

  bool right(const KernelTable& kernels, int rows) {
    multiply(kernels, 0, rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* expected = expected_.data() + row * kOutputs;
      if (std::memcmp(y_.data() + row * kOutputs, expected, kOutputs * sizeof(float)) != 0) return false;
    }
    return true;
  }

 private:
  Bench() : rows_(kInputs, kGroup, kMostRows), y_(kMostRows * kOutputs), expected_(kMostRows * kOutputs) {
    Random random;
    const std::vector<float> weights = random.values(kOutputs * kInputs);
    MatrixSource source;
    source.inputs = kInputs;
    source.parts = {
        {"weights",
         {reinterpret_cast<const std::byte*>(weights.data()), DType::kFloat32, {kOutputs, kInputs}, {kInputs, 1}}}};
    for (std::int64_t row = 0; row < kOutputs; ++row) source.outputs.push_back({0, row});
    do {
      matrices_.push_back(Precision::pack(source, kGroup));
    } while (static_cast<std::int64_t>(matrices_.size()) * bytes() < kWeightBytes);

    const KernelTable& portable = kernel_table(Isa::kPortable);
    for (std::int64_t row = 0; row < kMostRows; ++row) {
      const std::vector<float> x = random.values(kInputs);
      rows_.set(portable, row, x.data());
      typename Precision::Rows one(kInputs, kGroup, 1);
      one.set(portable, 0, x.data());
      parallel(0, [&](const Worker& worker) {
        const auto [first, last] = worker.part(matrices_[0].layout().tiles());
        one.multiply(portable, matrices_[0], 1,
                     {expected_.data() + row * kOutputs, kOutputs, Store::kSet, first, last});
      });
    }
  }

  std::vector<typename Precision::Matrix> matrices_;
  typename Precision::Rows rows_;
  AlignedBuffer<float> y_, expected_;
};

template <class Precision>
void matmul(benchmark::State& state, Isa isa) {
  auto& bench = Bench<Precision>::instance();
  const KernelTable& kernels = kernel_table(isa);
  const int rows = static_cast<int>(state.range(0));
  if (!bench.right(kernels, rows)) return state.SkipWithError("other bits than the portable level, one row at a time");
  // Passes over the weights and over a probe of memory in turn.
  static ReadProbe probe(kProbeMegabytes);
  const double bytes = static_cast<double>(bench.bytes()) * static_cast<double>(bench.matrices());
  std::vector<double> seconds, shares;
  for ([[maybe_unused]] const auto& _ : state) {
    const double read = probe.run() * 1e9;
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < bench.matrices(); ++i) bench.multiply(kernels, i, rows);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(taken.count());
    seconds.push_back(taken.count());
    shares.push_back(bytes / taken.count() / read);
  }
  const double typical = median(seconds);
  const double products = static_cast<double>(rows * kOutputs * kInputs) * static_cast<double>(bench.matrices());
  state.counters["ms"] = typical * 1e3;
  state.counters["GB/s"] = bytes / typical / 1e9;
  state.counters["share"] = median(shares);
  state.counters["GMAC/s"] = products / typical / 1e9;
}

template <class Precision>
void matmul_cached(benchmark::State& state, Isa isa) {
  auto& bench = Bench<Precision>::instance();
  const KernelTable& kernels = kernel_table(isa);
  const int rows = static_cast<int>(state.range(0));
  std::vector<double> seconds;
  std::int64_t bytes = 0;
  for ([[maybe_unused]] const auto& _ : state) {
    const auto start = std::chrono::steady_clock::now();
    bytes = bench.multiply_cached(kernels, rows);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(taken.count());
    seconds.push_back(taken.count());
  }
  const double rate = static_cast<double>(bytes) / median(seconds);
  state.counters["GB/s"] = rate / 1e9;
  state.counters["GMAC/s"] =
      rate / static_cast<double>(bench.bytes()) * static_cast<double>(rows * kOutputs * kInputs) / 1e9;
}

template <class Precision>
void add_benchmarks() {
  for (const Isa isa : isa_levels()) {
    const std::string name = std::string(Precision::kName) + "/" + std::string(isa_name(isa));
    auto* entry = benchmark::RegisterBenchmark(name.c_str(), matmul<Precision>, isa);
    entry->Unit(benchmark::kMillisecond)->UseManualTime();
    if (isa == Isa::kPortable) {
      entry->Arg(1)->Iterations(1);
    } else {
      entry->Iterations(kPasses);
      auto* cached = benchmark::RegisterBenchmark((name + "/cached").c_str(), matmul_cached<Precision>, isa);
      cached->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(kPasses);
      for (const int rows : {1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 32, kMostRows}) {
        entry->Arg(rows);
        cached->Arg(rows);
      }
    }
  }
}

}  // namespace
}  // namespace kwker

int main(int argc, char** argv) {
  kwker::add_benchmarks<kwker::Int4>();
  kwker::add_benchmarks<kwker::BFloat16>();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
