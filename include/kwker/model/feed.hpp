// Feeding a stretch of tokens to one sequence, in steps of limited size.
#pragma once

#include <span>

#include "kwker/model/decoder.hpp"

namespace kwker {

/// Rows of a prefill step: enough to use a weight many times while it is in the caches.
constexpr int kPrefillRows = 256;

/// Puts history[from..] into the cache after the `from` positions that are there. Returns the logits of the last token.
LogitsView feed(DecoderBase& decoder, int sequence, std::span<const Token> history, int from);

/// How many of the sequence's cached positions hold the beginning of `tokens`.
int common_prefix(const DecoderBase& decoder, int sequence, std::span<const Token> tokens);

}  // namespace kwker
