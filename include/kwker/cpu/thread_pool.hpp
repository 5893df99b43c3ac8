// A pool of threads that runs one parallel region at a time, with a barrier inside the region.
#pragma once

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
  std::pair<std::int64_t, std::int64_t> part(std::int64_t n) const {
    return {n * index_ / count_, n * (index_ + 1) / count_};
  }

 private:
  int index_;
  int count_;
};

/// Calls `body` once on each of `threads` threads (0: num_threads()), the caller among them, and returns when all have.
/// Denormals are flushed inside. Regions of different callers take turns; a region must not start another.
/// `body` must not throw.
void parallel(int threads, const std::function<void(const Worker&)>& body);

}  // namespace kwker
