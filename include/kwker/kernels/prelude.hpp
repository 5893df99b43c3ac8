// Everything the .inl.hpp files use, included before a target region opens: a standard-library function must never be
// compiled with one level's instructions, since the linker may keep that copy for everyone.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kwker/base/float_types.hpp"
#include "kwker/base/round_up.hpp"
#include "kwker/kernels/table.hpp"
