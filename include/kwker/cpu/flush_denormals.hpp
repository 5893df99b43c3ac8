// Scoped floating-point environment of the kernels: denormals count as zero, on input and output.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kwker {

/// Sets FTZ and DAZ in the calling thread, as the AMX instructions have them built in, and restores what was there.
class ScopedFlushDenormals {
 public:
#if defined(__x86_64__)
  ScopedFlushDenormals() : saved_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000u, kDenormalsAreZero = 0x0040u, kRounding = 0x6000u;
    _mm_setcsr((saved_ & ~kRounding) | kFlushToZero | kDenormalsAreZero);
  }
  ~ScopedFlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  ScopedFlushDenormals() = default;
#endif
 public:
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;
};

}  // namespace kwker
