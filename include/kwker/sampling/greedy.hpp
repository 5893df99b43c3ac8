// Greedy choice of a token.
#pragma once

#include <span>

#include "kwker/base/token.hpp"
#include "kwker/cpu/isa.hpp"
#include "kwker/kernels/table.hpp"

namespace kwker {

/// The most likely token, the lowest of several equal ones.
inline Token greedy(std::span<const float> logits) {
  return static_cast<Token>(
      kernel_table(current_isa()).argmax(logits.data(), static_cast<std::int64_t>(logits.size())));
}

}  // namespace kwker
