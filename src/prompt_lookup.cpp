// Search for the longest repeated suffix.
#include "kwker/speculate/prompt_lookup.hpp"

#include <algorithm>

namespace kwker {

void PromptLookup::propose(std::span<const Token> history, int budget, std::vector<Token>& out) {
  const int length = static_cast<int>(history.size());
  int best_match = 0, best_end = 0;
  // `end` is one past an earlier occurrence of the last token; later places come first and win ties.
  for (int end = length - 1; end >= kMinMatch && best_match < kMaxMatch; --end) {
    const int most = std::min(kMaxMatch, end);
    int match = 0;
    while (match < most && history[static_cast<std::size_t>(end - 1 - match)] ==
                               history[static_cast<std::size_t>(length - 1 - match)]) {
      ++match;
    }
    if (match > best_match) {
      best_match = match;
      best_end = end;
    }
  }
  if (best_match < kMinMatch) return;
  const int count = std::min(budget, length - best_end);
  out.insert(out.end(), history.begin() + best_end, history.begin() + best_end + count);
}

}  // namespace kwker
