// Permission and self-test. Some virtual machines announce AMX without having it (no palette), or lose tile state.
#include "kwker/cpu/amx.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kwker/cpu/flush_denormals.hpp"

namespace kwker {
namespace {

bool announced() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1u << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & (kBf16 | kTile | kInt8)) != (kBf16 | kTile | kInt8)) return false;
  constexpr unsigned kGfni = 1u << 8;  // a hypervisor may hide it
  if ((c & kGfni) == 0) return false;
  if (__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) == 0 || a < 1) return false;  // no palette
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 0x60000;
  return (low & kTileState) == kTileState;
}

bool permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// The operands of one test: 16 rows of 64 bytes, twice, and the sums of both multiplications.
struct Operands {
  alignas(64) std::uint32_t a[16][16];
  alignas(64) std::uint32_t b[16][16];
  alignas(64) std::int32_t integers[16][16];
  alignas(64) float floats[16][16];
};

__attribute__((target("amx-tile,amx-int8,amx-bf16"))) void multiply(Operands& operands) {
  alignas(64) std::uint8_t config[64] = {1};
  for (int tile = 0; tile < 4; ++tile) {
    config[16 + 2 * tile] = 64;
    config[48 + tile] = 16;
  }
  __asm__ volatile("" ::: "memory");  // the compiler does not see that tile instructions read memory
  _tile_loadconfig(config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_loadd(2, operands.a, 64);
  _tile_loadd(3, operands.b, 64);
  _tile_dpbsud(0, 2, 3);
  _tile_dpbf16ps(1, 2, 3);
  _tile_stored(0, operands.integers, 64);
  _tile_stored(1, operands.floats, 64);
  _tile_release();
  __asm__ volatile("" ::: "memory");
}

float half_of(std::uint32_t pair, int which) {
  return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u);
}

bool as_defined(const Operands& operands) {
  const ScopedFlushDenormals flush;
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      std::int32_t sum = 0;
      float even = 0, odd = 0;
      for (int k = 0; k < 16; ++k) {
        for (int i = 0; i < 4; ++i) {
          sum += static_cast<std::int8_t>(operands.a[m][k] >> (8 * i)) *
                 static_cast<std::uint8_t>(operands.b[k][n] >> (8 * i));
        }
        even = std::fma(half_of(operands.a[m][k], 0), half_of(operands.b[k][n], 0), even);
        odd = std::fma(half_of(operands.a[m][k], 1), half_of(operands.b[k][n], 1), odd);
      }
      const float expected = 0.0f + (even + odd);
      if (sum != operands.integers[m][n] || std::memcmp(&expected, &operands.floats[m][n], sizeof expected) != 0) {
        return false;
      }
    }
  }
  return true;
}

bool self_test() {
  std::uint32_t state = 12345;
  const auto random = [&state] { return state = state * 1664525u + 1013904223u; };
  for (int round = 0; round < 16; ++round) {
    Operands operands{};
    for (int i = 0; i < 256; ++i) {
      // Any bytes do for integers; as bfloat16 they must be finite: exponents around the middle, wider every round.
      const auto value = [&] {
        const std::uint32_t bits = random(), spread = static_cast<std::uint32_t>(2 + 3 * round);
        const std::uint32_t low = (127 - spread / 2 + (bits >> 8) % spread) << 7,
                            high = (127 - spread / 2 + (bits >> 20) % spread) << 7;
        return (bits & 0x807f807fu) | low | (high << 16);
      };
      operands.a[i / 16][i % 16] = value();
      operands.b[i / 16][i % 16] = value();
    }
    multiply(operands);
    if (!as_defined(operands)) return false;
  }
  return true;
}

}  // namespace

bool amx_usable() {
  static const bool usable = announced() && permitted() && self_test();
  return usable;
}

}  // namespace kwker

#else
namespace kwker {
bool amx_usable() { return false; }
}  // namespace kwker
#endif
