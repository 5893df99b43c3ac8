// The kernels in plain C++.
#include "kernels.hpp"
#include "kwker/kernels/prelude.hpp"

namespace kwker::portable {
namespace {
#include "kwker/simd/portable.inl.hpp"

#include "kwker/kernels/all.inl.hpp"
}  // namespace

const KernelTable& table() {
  static const KernelTable instance = make_table(Isa::kPortable);
  return instance;
}
}  // namespace kwker::portable
