// The kernels for AVX2 with FMA.
#include "kernels.hpp"
#include "kwker/kernels/prelude.hpp"
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace kwker::avx2 {
namespace {
// The vector comes before what is written with it.
// clang-format off
#include "kwker/simd/avx2.inl.hpp"
#include "kwker/kernels/all.inl.hpp"
// clang-format on
}  // namespace
}  // namespace kwker::avx2

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kwker::avx2 {
const KernelTable& table() {
  static const KernelTable instance = make_table(Isa::kAvx2);
  return instance;
}
}  // namespace kwker::avx2
#endif
