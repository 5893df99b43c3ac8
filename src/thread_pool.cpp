// The pool: threads wait by spinning briefly and then sleeping, so that a short gap costs no system call and a long
// one costs no CPU that others could use.
#include "kwker/cpu/thread_pool.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kwker/base/error.hpp"
#include "kwker/cpu/flush_denormals.hpp"
#include "kwker/cpu/usable_cpus.hpp"

namespace kwker {
namespace {

/// Pauses before a waiter sleeps: about 20 us, longer than any gap inside a step and far shorter than a time slice.
/// With more threads than CPUs the one that is awaited may not be running: then spinning only keeps it away.
constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits until `value` is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

class Pool {
 public:
  void run(int threads, const std::function<void(const Worker&)>& body) {
    const std::lock_guard lock(region_);
    // Every helper takes part in every region, so none can mistake one region for the next. Regions of one thread
    // (a small draft) leave the helpers asleep; other changes of size are rare.
    if (threads > 1 && threads - 1 != static_cast<int>(helpers_.size())) resize(threads - 1);
    spins_ = threads <= cpus_ ? kSpins : 0;
    body_ = &body;
    count_ = threads;
    arrived_.store(0, std::memory_order_relaxed);
    if (threads > static_cast<int>(claims_.size())) claims_ = std::vector<Claims>(static_cast<std::size_t>(threads));
    for (Claims& claims : claims_) claims.taken[0] = claims.taken[1] = 0;
    if (threads > 1) {
      generation_.fetch_add(1, std::memory_order_release);
      generation_.notify_all();
    }
    {
      const ScopedFlushDenormals flush;
      body(Worker(0, threads));
    }
    // Every helper takes part in the closing barrier, so body_ and count_ are free again afterwards.
    if (threads > 1) barrier();
  }

  void barrier() {
    // All read before arriving: once the last one has arrived, the caller may start the next region and change them.
    const std::uint32_t phase = phase_.load(std::memory_order_relaxed);
    const int count = count_, spins = spins_;
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
    } else {
      wait_while(phase_, phase, spins);
    }
  }

  /// In the share after this one the other set is used. Nobody uses it now: the barrier since the last share has seen
  /// to that, and the one before the next share will let everybody see the zero.
  void begin_share(int index, int share) {
    claims_[static_cast<std::size_t>(index)].taken[(share + 1) % 2].store(0, std::memory_order_relaxed);
  }
  std::int64_t claim(int owner, int share) {
    return claims_[static_cast<std::size_t>(owner)].taken[share % 2].fetch_add(1, std::memory_order_relaxed);
  }

 private:
  /// How many pieces of a thread's part were taken, for the current and for the next share.
  struct alignas(64) Claims {
    std::atomic<std::int64_t> taken[2];
  };

  void resize(int helpers) {
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
    stop_ = false;
    const std::uint32_t generation = generation_.load(std::memory_order_relaxed);
    for (int i = 1; i <= helpers; ++i) helpers_.emplace_back([this, i, generation] { help(i, generation); });
  }

  void help(int index, std::uint32_t generation) {
    const ScopedFlushDenormals flush;
    while (true) {
      wait_while(generation_, generation, kSpins);
      ++generation;
      if (stop_) return;
      (*body_)(Worker(index, count_));
      barrier();
    }
  }

  std::mutex region_;
  const int cpus_ = usable_cpus();
  std::vector<std::thread> helpers_;
  std::vector<Claims> claims_;
  const std::function<void(const Worker&)>* body_ = nullptr;
  int count_ = 1;
  int spins_ = kSpins;
  bool stop_ = false;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
  alignas(64) std::atomic<int> arrived_{0};
};

/// Lives as long as the process: no thread outlives what it uses, and nothing is torn down while it is in use.
std::atomic<Pool*> pool_instance{nullptr};

Pool& pool() {
  static const bool created = [] {
    pool_instance.store(new Pool);
    // A forked child has none of its parent's threads and perhaps a locked mutex: it starts with a fresh pool.
    pthread_atfork(nullptr, nullptr, [] { pool_instance.store(new Pool); });
    return true;
  }();
  static_cast<void>(created);
  return *pool_instance.load(std::memory_order_acquire);
}

std::atomic<int> default_threads{0};  // 0: not chosen yet

}  // namespace

int num_threads() {
  const int chosen = default_threads.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : usable_cpus();
}

void set_num_threads(int n) {
  constexpr int kMost = 1024;
  if (n < 1 || n > kMost) throw std::invalid_argument(concat("the number of threads is 1 to ", kMost, ", got ", n));
  default_threads.store(n, std::memory_order_relaxed);
}

void Worker::barrier() const {
  if (count_ > 1) pool().barrier();
}

void Worker::begin_share() const { pool().begin_share(index_, ++shares_); }

std::int64_t Worker::claim(int owner) const { return pool().claim(owner, shares_); }

void parallel(int threads, const std::function<void(const Worker&)>& body) {
  pool().run(threads > 0 ? threads : num_threads(), body);
}

}  // namespace kwker
