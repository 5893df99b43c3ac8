// The kernels in plain C++.
#include "kernels.hpp"
#include "kwker/kernels/prelude.hpp"

namespace kwker::portable {
namespace {
// The vector comes before what is written with it.
// clang-format off
#include "kwker/simd/portable.inl.hpp"
#include "kwker/kernels/all.inl.hpp"
// clang-format on
}  // namespace

const KernelTable& table() {
  static const KernelTable instance = make_table(Isa::kPortable);
  return instance;
}
}  // namespace kwker::portable
