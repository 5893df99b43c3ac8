// A pool of threads that runs one parallel region at a time, with a barrier inside the region.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace kwker {

/// Threads that parallel regions use unless told otherwise: at first the CPUs this process may use.
int num_threads();

/// Throws std::invalid_argument unless 1 <= n <= 1024.
void set_num_threads(int n);

/// What a thread sees of the region it is in.
class Worker {
 public:
  Worker(int index, int count) : index_(index), count_(count) {}

  int index() const { return index_; }
  int count() const { return count_; }
  /// Waits until every thread of the region is here.
  void barrier() const;
  /// This thread's part [begin, end) of n items: contiguous, disjoint, the same at every call.
  std::pair<std::int64_t, std::int64_t> part(std::int64_t n) const { return part_of(index_, n); }

  /// Calls f(begin, end) for the pieces of [0, n), each once, on some thread: `size` items at multiples of `size`. A
  /// thread takes the pieces of its own part first, part(pieces), in order, and then those that another has not yet
  /// begun. Every thread of the region must call this, with the same n and size, and a barrier must stand between two
  /// calls.
  template <class F>
  void share(std::int64_t n, std::int64_t size, const F& f) const {
    const std::int64_t pieces = (n + size - 1) / size;
    begin_share();
    for (int i = 0; i < count_; ++i) {
      const int owner = (index_ + i) % count_;
      const auto [first, last] = part_of(owner, pieces);
      for (std::int64_t piece; (piece = first + claim(owner)) < last;) f(piece * size, std::min(n, (piece + 1) * size));
    }
  }

 private:
  std::pair<std::int64_t, std::int64_t> part_of(int index, std::int64_t n) const {
    return {n * index / count_, n * (index + 1) / count_};
  }
  void begin_share() const;
  /// How many pieces of this thread's part were claimed before in this call of share().
  std::int64_t claim(int owner) const;

  int index_;
  int count_;
  mutable int shares_ = 0;  ///< Calls of share() so far: they use two sets of counters in turn.
};

/// Calls `body` once on each of `threads` threads (0: num_threads()), the caller among them, and returns when all have.
/// Denormals are flushed inside. Regions of different callers take turns; a region must not start another.
/// `body` must not throw.
void parallel(int threads, const std::function<void(const Worker&)>& body);

}  // namespace kwker
