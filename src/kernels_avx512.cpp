// The kernels for AVX-512 with VNNI.
#include "kernels.hpp"
#include "kwker/kernels/prelude.hpp"
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// GCC 12 warns about its own intrinsics, whose "undefined" operands are meant (gcc.gnu.org/PR105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#endif

namespace kwker::avx512 {
namespace {
// The vector comes before what is written with it.
// clang-format off
#include "kwker/simd/avx512.inl.hpp"
#include "kwker/kernels/all.inl.hpp"
// clang-format on
}  // namespace
}  // namespace kwker::avx512

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kwker::avx512 {
const KernelTable& table() {
  static const KernelTable instance = make_table(Isa::kAvx512);
  return instance;
}
}  // namespace kwker::avx512
#endif
