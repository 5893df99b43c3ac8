// Proposers guess the next tokens; a wrong guess costs time and never changes the text.
#pragma once

#include <span>
#include <vector>

#include "kwker/base/token.hpp"

namespace kwker {

class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual const char* name() const = 0;
  /// Appends up to `budget` guesses of what follows `history` to `out`; none is a good answer.
  virtual void propose(std::span<const Token> history, int budget, std::vector<Token>& out) = 0;
};

}  // namespace kwker
