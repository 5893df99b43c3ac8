// The pool: every thread runs once, barriers hold, any number of threads, callers take turns.
#include "kwker/cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
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

TEST(ThreadPool, SharesGiveEveryPieceOnceAndOwnPartsFirst) {
  for (const int threads : {1, 2, 3, 7}) {
    for (const std::int64_t n : {0, 1, 7, 64, 1000}) {
      constexpr std::int64_t kSize = 4;
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(n));
      std::atomic<int> wrong{0};
      parallel(threads, [&](const Worker& worker) {
        for (int round = 1; round <= 20; ++round) {
          bool own = true;
          const auto [first, last] = worker.part((n + kSize - 1) / kSize);
          worker.share(n, kSize, [&, first = first, last = last](std::int64_t begin, std::int64_t end) {
            wrong += begin % kSize != 0 || end - begin > kSize || end <= begin || (end % kSize != 0 && end != n);
            const bool mine = begin / kSize >= first && begin / kSize < last;
            wrong += mine && !own;  // somebody else's pieces come last
            own = mine;
            for (std::int64_t i = begin; i < end; ++i) ++taken[static_cast<std::size_t>(i)];
          });
          worker.barrier();
          for (const auto& count : taken) wrong += count != round;
          worker.barrier();
        }
      });
      EXPECT_EQ(wrong, 0) << threads << " threads, " << n << " items";
    }
  }
}

TEST(ThreadPool, SharesTakeOverWhatASlowThreadHasNotBegun) {
  std::vector<std::atomic<int>> by(16);
  for (auto& worker : by) worker = -1;
  std::atomic<int> others_done{0};
  parallel(2, [&](const Worker& worker) {
    worker.share(16, 1, [&](std::int64_t piece, std::int64_t) {
      by[static_cast<std::size_t>(piece)] = worker.index();
      // The first thread is stuck in its first piece until all the others are done.
      if (worker.index() == 0) {
        while (others_done < 15) std::this_thread::yield();
      } else {
        ++others_done;
        if (piece == 8) {
          while (by[0] != 0) std::this_thread::yield();
        }
      }
    });
  });
  EXPECT_EQ(std::count(by.begin(), by.end(), 1), 15);
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
