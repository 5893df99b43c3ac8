// A draft model as a proposer: a smaller decoder continues the text, greedily.
#pragma once

#include <span>
#include <vector>

#include "kwker/model/decoder.hpp"
#include "kwker/speculate/proposer.hpp"

namespace kwker {

/// Uses the draft's own sequence for drafting, under the draft's mutex, and takes up whatever that sequence already
/// holds of the history: nothing has to be kept in step with rejections, and several generations may share a draft.
class DraftProposer final : public Proposer {
 public:
  /// Throws std::invalid_argument if the draft cannot have the target's vocabulary. Vocabularies that differ by at most
  /// kMaxPadding entries are taken for the same one with other padding: the tokens both have are the same.
  DraftProposer(DecoderBase& draft, const ModelConfig& target);

  /// Of padding: 128 covers the models of known families (llama.cpp allows the same).
  static constexpr int kMaxPadding = 128;

  const char* name() const override { return "draft"; }
  /// Nothing where the history has outgrown the draft's cache or holds a token the draft does not have.
  void propose(std::span<const Token> history, int budget, std::vector<Token>& out) override;

 private:
  DecoderBase& draft_;
  std::int64_t target_vocab_;
};

}  // namespace kwker
