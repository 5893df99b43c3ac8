// The tables of the levels, each made in a source file of its own.
#pragma once

#include "kwker/kernels/table.hpp"

namespace kwker {
namespace portable {
const KernelTable& table();
}
namespace avx2 {
const KernelTable& table();
}
namespace avx512 {
const KernelTable& table();
}
namespace amx {
const KernelTable& table();
}
}  // namespace kwker
