// The pool: every thread runs once, barriers hold, any number of threads, callers take turns.
#include "kwker/cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <thread>
#include <vector>

#include "kwker/cpu/usable_cpus.hpp"

namespace kwker {
namespace {

TEST(ThreadPool, EveryThreadRunsOnce) {
  for (const int threads : {1, 2, 3, 8, 2, 1, 5}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(threads));
    for (int round = 0; round < 50; ++round) {
      parallel(threads, [&](const Worker& worker) {
        EXPECT_EQ(worker.count(), threads);
        ++calls[static_cast<std::size_t>(worker.index())];
      });
    }
    for (const auto& count : calls) EXPECT_EQ(count, 50);
  }
}

TEST(ThreadPool, BarrierSeparatesPhases) {
  for (const int threads : {2, 3, 6}) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(threads), 0);
    std::atomic<int> wrong{0};
    parallel(threads, [&](const Worker& worker) {
      for (std::int64_t phase = 1; phase <= 500; ++phase) {
        values[static_cast<std::size_t>(worker.index())] = phase;
        worker.barrier();
        for (const std::int64_t value : values) wrong += value != phase;
        worker.barrier();
      }
    });
    EXPECT_EQ(wrong, 0);
  }
}

TEST(ThreadPool, PartsCoverEverythingOnce) {
  for (const int count : {1, 2, 3, 7, 64}) {
    for (const std::int64_t n : {0, 1, 2, 5, 63, 64, 1000}) {
      std::int64_t next = 0;
      for (int i = 0; i < count; ++i) {
        const auto [begin, end] = Worker(i, count).part(n);
        EXPECT_EQ(begin, next);
        EXPECT_LE(end - begin, n / count + 1);
        next = end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(ThreadPool, CallersTakeTurns) {
  std::atomic<int> inside{0}, overlaps{0}, total{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 100; ++round) {
        parallel(1 + i % 3, [&](const Worker& worker) {
          if (worker.index() == 0) overlaps += inside.fetch_add(1) != 0;
          ++total;
          worker.barrier();
          if (worker.index() == 0) --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(total, 100 * (1 + 2 + 3 + 1));
}

TEST(ThreadPool, FlushesDenormalsInsideAndRestoresOutside) {
  const unsigned before = _mm_getcsr();
  std::atomic<int> flushed{0};
  parallel(3, [&](const Worker&) { flushed += (_mm_getcsr() & 0x8040u) == 0x8040u; });
  EXPECT_EQ(flushed, 3);
  EXPECT_EQ(_mm_getcsr(), before);
}

TEST(ThreadPool, WorksInAForkedChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "thread sanitizer does not follow threads made after a fork";
#endif
  parallel(2, [](const Worker&) {});
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> calls{0};
    parallel(2, [&](const Worker&) { ++calls; });
    _exit(calls == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ThreadPool, NumberOfThreadsIsChecked) {
  const int before = num_threads();
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_THROW(set_num_threads(0), std::invalid_argument);
  EXPECT_THROW(set_num_threads(1025), std::invalid_argument);
  EXPECT_EQ(num_threads(), before);
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(before);
}

}  // namespace
}  // namespace kwker
