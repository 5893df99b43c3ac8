// Drafting.
#include "kwker/speculate/draft.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "kwker/base/error.hpp"
#include "kwker/model/feed.hpp"
#include "kwker/sampling/greedy.hpp"

namespace kwker {

DraftProposer::DraftProposer(DecoderBase& draft, const ModelConfig& target)
    : draft_(draft), target_vocab_(target.vocab_size) {
  const std::int64_t vocab = draft.config().vocab_size;
  if (std::abs(vocab - target_vocab_) > kMaxPadding) {
    throw std::invalid_argument(concat("the draft has another vocabulary than the model: ", vocab, " tokens, not ",
                                       target_vocab_, "; a draft must use the same tokenizer"));
  }
}

void DraftProposer::propose(std::span<const Token> history, int budget, std::vector<Token>& out) {
  const int length = static_cast<int>(history.size());
  budget = std::min(budget, draft_.max_cache_len() - length + 1);
  if (budget <= 0) return;
  const std::lock_guard lock(draft_.step_mutex());
  const int sequence = draft_.draft_sequence();
  // The last token is fed again even if it is there: its logits are needed.
  const int from = std::min(common_prefix(draft_, sequence, history), length - 1);
  const std::int64_t vocab = draft_.config().vocab_size;
  if (std::any_of(history.begin() + from, history.end(), [&](Token token) { return token >= vocab; })) return;
  Token token = greedy(feed(draft_, sequence, history, from).row(0));
  for (int i = 0;; ++i) {
    if (token >= target_vocab_) return;
    out.push_back(token);
    if (i + 1 == budget) return;
    const Row row{sequence, token, length + i};
    token = greedy(draft_.step({&row, 1}).row(0));
  }
}

}  // namespace kwker
