// The kernels for AMX: those of AVX-512, but for matmuls of many rows.
#include "kernels.hpp"
#include "kwker/cpu/amx.hpp"
#include "kwker/kernels/prelude.hpp"
#if defined(__x86_64__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                                                    \
    __attribute__((                                                                                              \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,gfni,avx2,fma,f16c,amx-tile,amx-int8,amx-bf16"))), \
    apply_to = function)
#else
// GCC 12 warns about its own intrinsics, whose "undefined" operands are meant (gcc.gnu.org/PR105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,gfni,avx2,fma,f16c,amx-tile,amx-int8,amx-bf16")
#endif

namespace kwker::amx {
namespace {
// The vector comes before what is written with it.
// clang-format off
#define KWKER_SIMD_GFNI  // every CPU with AMX has it
#include "kwker/simd/avx512.inl.hpp"
#include "kwker/kernels/all.inl.hpp"
#include "kwker/kernels/amx_tiles.inl.hpp"
#include "kwker/kernels/matmul_amx.inl.hpp"
// clang-format on
}  // namespace
}  // namespace kwker::amx

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kwker::amx {
const KernelTable& table() {
  static const KernelTable instance = [] {
    amx_usable();  // asks the operating system for the tiles, if nobody has
    KernelTable result = make_table(Isa::kAmx);
    result.matmul_int4 = amx_matmul_int4;
    result.matmul_bf16 = amx_matmul_bf16;
    return result;
  }();
  return instance;
}
}  // namespace kwker::amx
#endif
