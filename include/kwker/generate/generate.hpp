// Generation: the loop propose -> step -> accept -> roll back over one sequence of a decoder.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kwker/model/decoder.hpp"
#include "kwker/speculate/proposer.hpp"
#include "kwker/speculate/stats.hpp"

namespace kwker {

struct GenerateOptions {
  std::optional<int> max_new_tokens{};  ///< None: until the cache is full.
  int lookup = 8;                       ///< Most tokens prompt lookup proposes per step; 0 turns it off.
  DecoderBase* draft = nullptr;         ///< A decoder with the same vocabulary that proposes tokens, or none.
  int draft_tokens = 4;                 ///< Most tokens the draft proposes per step.
  std::optional<std::vector<Token>> eos_token_ids{};  ///< None: the model's own; empty: no token ends the text.
};

/// A generation that advances one step at a time. Whoever needs it whole calls `advance` until `done`.
class Generation {
 public:
  /// Checks everything and throws std::invalid_argument before the decoder is touched: an empty prompt, a token outside
  /// the vocabulary, a prompt longer than the cache, a draft with another vocabulary, negative counts.
  Generation(DecoderBase& decoder, std::span<const Token> prompt, const GenerateOptions& options, int sequence = 0);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  bool done() const { return stats_.finish_reason != FinishReason::kNone; }
  /// Runs one step (the prompt's, the first time) and returns the tokens it added, at least one unless done.
  std::span<const Token> advance();
  /// Prompt and text so far.
  const std::vector<Token>& tokens() const { return tokens_; }
  const GenerateStats& stats() const { return stats_; }

 private:
  void prefill();
  void decode();
  /// Fills proposal_ from the first proposer that has something, at most `room` tokens; null if none has.
  ProposerStats* propose(int room);
  /// Adds tokens for as long as they equal the proposal, and one more; returns how many were proposed.
  std::int64_t accept(const LogitsView& logits);
  void push(Token token);

  DecoderBase& decoder_;
  int sequence_;
  std::size_t limit_;  // length at which the text ends
  std::vector<Token> eos_;
  std::vector<Token> tokens_;
  struct Source {
    std::unique_ptr<Proposer> proposer;
    int budget;  // most tokens per step
  };
  std::vector<Source> proposers_;  // in order of preference, as stats_.by_proposer
  std::vector<Token> proposal_;
  std::vector<Row> rows_;
  GenerateStats stats_;
};

/// Logits of every position of `tokens`, [tokens, vocab], in steps of `chunk` rows (0: a
/// size that suits the machine). Overwrites sequence 0 and throws as Generation does.
void logits(DecoderBase& decoder, std::span<const Token> tokens, int chunk, float* out);

}  // namespace kwker
