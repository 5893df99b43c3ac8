// Prompt lookup: proposes what followed the last tokens where they stood before.
#pragma once

#include <span>
#include <vector>

#include "kwker/speculate/proposer.hpp"

namespace kwker {

/// Finds the longest suffix of the history, of kMinMatch to kMaxMatch tokens, that occurred earlier, the latest such
/// place where there are several, and proposes the tokens after it (Saxena 2023, prompt lookup decoding).
class PromptLookup final : public Proposer {
 public:
  /// A single token recurs everywhere and says little about what follows.
  static constexpr int kMinMatch = 2;
  /// Longer matches hardly ever differ in what follows.
  static constexpr int kMaxMatch = 8;

  const char* name() const override { return "lookup"; }
  void propose(std::span<const Token> history, int budget, std::vector<Token>& out) override;
};

}  // namespace kwker
