// The type of a token id.
#pragma once

#include <cstdint>

namespace kwker {

using Token = std::int32_t;

}  // namespace kwker
