// Instruction-set levels: what this machine can run, which level is in use, and how to switch.
#pragma once

#include <string_view>
#include <vector>

namespace kwker {

/// Ordered: a machine that runs a level runs all below it. Every level gives the same bits.
enum class Isa {
  kPortable,  ///< Plain C++ for the baseline target.
  kAvx2,      ///< AVX2, FMA.
  kAvx512,    ///< AVX-512 F, BW, DQ, VL, VNNI.
  kAmx,       ///< The same and AMX tiles with int8 and bf16, if `amx_usable()`.
};

const char* isa_name(Isa isa);

/// Throws std::invalid_argument, listing the names, if `name` is none of them.
Isa parse_isa(std::string_view name);

/// Levels this machine can run, lowest first. The environment variable KWKER_MAX_ISA caps them.
std::vector<Isa> isa_levels();

/// The level in use: the highest one, unless `set_isa` chose another.
Isa current_isa();

/// Throws kwker::Error if this machine cannot run `isa`.
void set_isa(Isa isa);

/// Uses a level for as long as it lives, for the whole process.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa) : previous_(current_isa()) { set_isa(isa); }
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  Isa previous_;
};

}  // namespace kwker
