// CPU detection and the level in use.
#include "kwker/cpu/isa.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kwker/base/error.hpp"
#include "kwker/cpu/amx.hpp"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kwker {
namespace {

constexpr std::array kLevels = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

#if defined(__x86_64__)
/// Register state that the operating system saves (XCR0).
unsigned long long saved_state() {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<unsigned long long>(high) << 32) | low;
}

Isa detect() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return Isa::kPortable;
  constexpr unsigned kFma = 1u << 12, kOsXsave = 1u << 27, kAvx = 1u << 28;
  if ((c & (kFma | kOsXsave | kAvx)) != (kFma | kOsXsave | kAvx)) return Isa::kPortable;
  constexpr unsigned long long kYmmState = 0x6, kZmmState = 0xe6;
  const unsigned long long state = saved_state();
  if ((state & kYmmState) != kYmmState) return Isa::kPortable;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return Isa::kPortable;
  constexpr unsigned kAvx2 = 1u << 5;
  if ((b & kAvx2) == 0) return Isa::kPortable;
  constexpr unsigned kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31, kVnni = 1u << 11;
  constexpr unsigned kWide = kF | kDq | kBw | kVl;
  const bool avx512 = (state & kZmmState) == kZmmState && (b & kWide) == kWide && (c & kVnni) != 0;
  if (!avx512) return Isa::kAvx2;
  return amx_usable() ? Isa::kAmx : Isa::kAvx512;
}
#else
Isa detect() { return Isa::kPortable; }
#endif

Isa highest() {
  static const Isa level = [] {
    const Isa machine = detect();
    const char* cap = std::getenv("KWKER_MAX_ISA");
    if (cap == nullptr || *cap == '\0') return machine;
    const Isa wanted = parse_isa(cap);
    return wanted < machine ? wanted : machine;
  }();
  return level;
}

/// -1 until somebody asks or chooses, so that a bad KWKER_MAX_ISA throws at a call and not while the library loads.
std::atomic<int> chosen{-1};

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

Isa parse_isa(std::string_view name) {
  std::string names;
  for (const Isa isa : kLevels) {
    if (name == isa_name(isa)) return isa;
    names += concat(names.empty() ? "" : ", ", isa_name(isa));
  }
  throw std::invalid_argument(concat("unknown instruction-set level \"", name, "\": expected one of ", names));
}

std::vector<Isa> isa_levels() {
  std::vector<Isa> levels;
  for (const Isa isa : kLevels) {
    if (isa <= highest()) levels.push_back(isa);
  }
  return levels;
}

Isa current_isa() {
  const int level = chosen.load(std::memory_order_relaxed);
  return level < 0 ? highest() : static_cast<Isa>(level);
}

void set_isa(Isa isa) {
  if (isa > highest()) {
    throw Error(concat("this machine cannot run the instruction-set level ", isa_name(isa), ": the highest is ",
                       isa_name(highest())));
  }
  chosen.store(static_cast<int>(isa), std::memory_order_relaxed);
}

ScopedIsa::~ScopedIsa() { chosen.store(static_cast<int>(previous_), std::memory_order_relaxed); }

}  // namespace kwker
