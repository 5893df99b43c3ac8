// Feeding tokens.
#include "kwker/model/feed.hpp"

#include <algorithm>
#include <vector>

namespace kwker {

LogitsView feed(DecoderBase& decoder, int sequence, std::span<const Token> history, int from) {
  LogitsView logits;
  std::vector<Row> rows;
  const int length = static_cast<int>(history.size());
  for (int position = from; position < length;) {
    rows.clear();
    for (const int end = std::min(position + kPrefillRows, length); position < end; ++position) {
      rows.push_back({sequence, history[static_cast<std::size_t>(position)], position, position == length - 1});
    }
    logits = decoder.step(rows);
  }
  return logits;
}

int common_prefix(const DecoderBase& decoder, int sequence, std::span<const Token> tokens) {
  const std::span<const Token> cached = decoder.history(sequence);
  const auto [a, b] = std::mismatch(cached.begin(), cached.end(), tokens.begin(), tokens.end());
  return static_cast<int>(a - cached.begin());
}

}  // namespace kwker
