// Chooses the kernels of a level.
#include "kernels.hpp"
#include "kwker/kernels/table.hpp"

namespace kwker {

const KernelTable& kernel_table(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return amx::table();
  if (isa == Isa::kAvx512) return avx512::table();
  if (isa == Isa::kAvx2) return avx2::table();
#endif
  static_cast<void>(isa);
  return portable::table();
}

}  // namespace kwker
