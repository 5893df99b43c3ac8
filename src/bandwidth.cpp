// Measures the speed of reading memory with plain wide loads.
#include "kwker/cpu/bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "kwker/base/aligned_buffer.hpp"
#include "kwker/base/error.hpp"
#include "kwker/cpu/thread_pool.hpp"

namespace kwker {
namespace {

typedef std::uint64_t Lanes __attribute__((vector_size(64)));

/// XORs the buffer together, which needs every byte and costs less than reading them.
std::uint64_t fold(const Lanes* data, std::int64_t count) {
  Lanes sums[4] = {};
  for (std::int64_t i = 0; i + 4 <= count; i += 4) {
    __builtin_prefetch(data + i + 32);
    __builtin_prefetch(data + i + 33);
    __builtin_prefetch(data + i + 34);
    __builtin_prefetch(data + i + 35);
    for (int j = 0; j < 4; ++j) sums[j] ^= data[i + j];
  }
  const Lanes all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  std::uint64_t result = 0;
  for (int i = 0; i < 8; ++i) result ^= all[i];
  return result;
}

}  // namespace

double read_bandwidth(int megabytes) {
  if (megabytes < 1) throw std::invalid_argument(concat("megabytes is at least 1, got ", megabytes));
  const std::int64_t bytes = std::int64_t{megabytes} * 1000000 / 256 * 256;
  AlignedBuffer<Lanes> buffer(static_cast<std::size_t>(bytes) / sizeof(Lanes));
  // Untouched pages all map to one page of zeros: write them, each by the thread that will read it.
  parallel(0, [&](const Worker& worker) {
    const auto [begin, end] = worker.part(static_cast<std::int64_t>(buffer.size()) / 4);
    if (end > begin) std::memset(buffer.data() + begin * 4, 1, static_cast<std::size_t>(end - begin) * 256);
  });
  std::atomic<std::uint64_t> sink{0};  // keeps the compiler from dropping the reads
  double best = 0;
  constexpr int kPasses = 5;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    parallel(0, [&](const Worker& worker) {
      const auto [begin, end] = worker.part(static_cast<std::int64_t>(buffer.size()) / 4);
      sink.fetch_xor(fold(buffer.data() + begin * 4, (end - begin) * 4), std::memory_order_relaxed);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) / seconds.count() / 1e9);
  }
  return best;
}

}  // namespace kwker
