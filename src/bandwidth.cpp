// Measures the speed of reading memory with plain wide loads.
#include "kwker/cpu/bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "kwker/base/error.hpp"
#include "kwker/base/round_up.hpp"
#include "kwker/cpu/thread_pool.hpp"

namespace kwker {
namespace {

typedef std::uint64_t Lanes __attribute__((vector_size(64), may_alias));

constexpr std::int64_t kStep = 32;  ///< Words that `fold` reads at a time.

/// XORs the buffer together, which needs every byte and costs less than reading them.
std::uint64_t fold(const Lanes* data, std::int64_t count) {
  Lanes sums[4] = {};
  for (std::int64_t i = 0; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) {
      // As the kernels do it: a page ahead into the second-level cache, a little ahead into the first.
      __builtin_prefetch(data + i + j + 64, 0, 2);
      __builtin_prefetch(data + i + j + 16, 0, 3);
      __asm__ volatile("" ::: "memory");
      sums[j] ^= data[i + j];
    }
  }
  const Lanes all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  std::uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result ^= all[i];
  return result;
}

}  // namespace

ReadProbe::ReadProbe(int megabytes) {
  if (megabytes < 1) throw std::invalid_argument(concat("megabytes is at least 1, got ", megabytes));
  buffer_ =
      AlignedBuffer<std::uint64_t>(round_up(static_cast<std::size_t>(megabytes) * 1000000 / 8, std::size_t{kStep}));
  // Untouched pages all map to one page of zeros: write them, each by the thread that will read it.
  parallel(0, [&](const Worker& worker) {
    const auto [begin, end] = worker.part(static_cast<std::int64_t>(buffer_.size() / kStep));
    std::fill(buffer_.data() + begin * kStep, buffer_.data() + end * kStep, 1);
  });
}

double ReadProbe::run() {
  std::atomic<std::uint64_t> sink{0};  // keeps the compiler from dropping the reads
  const auto start = std::chrono::steady_clock::now();
  parallel(0, [&](const Worker& worker) {
    const auto [begin, end] = worker.part(static_cast<std::int64_t>(buffer_.size() / kStep));
    const auto* lines = reinterpret_cast<const Lanes*>(buffer_.data());
    constexpr std::int64_t kLines = kStep * sizeof(std::uint64_t) / sizeof(Lanes);
    sink.fetch_xor(fold(lines + begin * kLines, (end - begin) * kLines), std::memory_order_relaxed);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(buffer_.bytes()) / seconds.count() / 1e9;
}

double read_bandwidth(int megabytes) {
  ReadProbe probe(megabytes);
  double best = 0;
  constexpr int kPasses = 5;
  for (int pass = 0; pass < kPasses; ++pass) best = std::max(best, probe.run());
  return best;
}

}  // namespace kwker
