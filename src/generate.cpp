// The one decoding loop.
#include "kwker/generate/generate.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "kwker/base/error.hpp"
#include "kwker/model/feed.hpp"
#include "kwker/sampling/greedy.hpp"
#include "kwker/speculate/draft.hpp"
#include "kwker/speculate/prompt_lookup.hpp"

namespace kwker {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_prompt(const DecoderBase& decoder, std::span<const Token> prompt) {
  if (prompt.empty()) throw std::invalid_argument("the prompt is empty: at least one token is needed");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= decoder.config().vocab_size) {
      throw std::invalid_argument(concat("token ", prompt[i], " at position ", i, " of the prompt is outside the ",
                                         "vocabulary of ", decoder.config().vocab_size));
    }
  }
  if (prompt.size() > static_cast<std::size_t>(decoder.max_cache_len())) {
    throw std::invalid_argument(concat("the prompt has ", prompt.size(), " tokens and the cache room for ",
                                       decoder.max_cache_len(), ": raise max_cache_len or shorten the prompt"));
  }
}

void check_count(const char* name, int value) {
  if (value < 0) throw std::invalid_argument(concat(name, " is at least 0, got ", value));
}

}  // namespace

Generation::Generation(DecoderBase& decoder, std::span<const Token> prompt, const GenerateOptions& options,
                       int sequence)
    : decoder_(decoder),
      sequence_(sequence),
      limit_(static_cast<std::size_t>(decoder.max_cache_len())),
      eos_(options.eos_token_ids.value_or(decoder.config().eos_token_ids)) {
  check_prompt(decoder, prompt);
  check_count("lookup", options.lookup);
  check_count("draft_tokens", options.draft_tokens);
  if (sequence < 0 || sequence >= decoder.max_batch()) {
    throw std::invalid_argument(concat("the sequence is 0 to ", decoder.max_batch() - 1, ", got ", sequence));
  }
  if (options.max_new_tokens) {
    check_count("max_new_tokens", *options.max_new_tokens);
    limit_ = std::min(limit_, prompt.size() + static_cast<std::size_t>(*options.max_new_tokens));
  }
  const auto add = [this](std::unique_ptr<Proposer> proposer, int budget) {
    stats_.by_proposer.push_back({proposer->name(), 0, 0});
    proposers_.push_back({std::move(proposer), budget});
  };
  // Lookup first: its proposals cost nothing, and where it has one it is right more often than most drafts.
  if (options.lookup > 0) add(std::make_unique<PromptLookup>(), options.lookup);
  if (options.draft != nullptr) {
    auto draft = std::make_unique<DraftProposer>(*options.draft, decoder.config());
    if (options.draft_tokens > 0) add(std::move(draft), options.draft_tokens);
  }
  tokens_.reserve(limit_);
  tokens_.assign(prompt.begin(), prompt.end());
  if (tokens_.size() >= limit_) stats_.finish_reason = FinishReason::kLength;
}

Generation::~Generation() = default;

std::span<const Token> Generation::advance() {
  if (done()) return {};
  const std::size_t before = tokens_.size();
  const Clock::time_point start = Clock::now();
  if (stats_.tokens == 0) {
    prefill();
    stats_.prefill_s += seconds_since(start);
  } else {
    decode();
    stats_.decode_s += seconds_since(start);
  }
  return std::span<const Token>(tokens_).subspan(before);
}

void Generation::prefill() {
  const std::lock_guard lock(decoder_.step_mutex());
  const int last = static_cast<int>(tokens_.size()) - 1;
  int from = 0;
  if (decoder_.options().prefix_cache) from = std::min(common_prefix(decoder_, sequence_, tokens_), last);
  stats_.cached = from;
  proposal_.clear();
  accept(feed(decoder_, sequence_, tokens_, from));
}

void Generation::decode() {
  const int length = static_cast<int>(tokens_.size());
  ProposerStats* source = propose(static_cast<int>(limit_) - length - 1);
  rows_.clear();
  rows_.push_back({sequence_, tokens_.back(), length - 1});
  for (const Token token : proposal_) rows_.push_back({sequence_, token, rows_.back().position + 1});

  const std::lock_guard lock(decoder_.step_mutex());
  const std::int64_t accepted = accept(decoder_.step(rows_));
  // The last token is not in the cache yet; what was rejected no longer is.
  decoder_.truncate(sequence_, static_cast<int>(tokens_.size()) - 1);
  ++stats_.steps;
  if (source == nullptr) return;
  const std::int64_t proposed = static_cast<std::int64_t>(proposal_.size());
  stats_.proposed += proposed;
  stats_.accepted += accepted;
  stats_.max_proposed = std::max(stats_.max_proposed, proposed);
  source->proposed += proposed;
  source->accepted += accepted;
}

ProposerStats* Generation::propose(int room) {
  proposal_.clear();
  for (std::size_t i = 0; i < proposers_.size(); ++i) {
    const int budget = std::min(proposers_[i].budget, room);
    if (budget <= 0) continue;
    proposers_[i].proposer->propose(tokens_, budget, proposal_);
    if (!proposal_.empty()) return &stats_.by_proposer[i];
  }
  return nullptr;
}

std::int64_t Generation::accept(const LogitsView& logits) {
  for (std::size_t i = 0;; ++i) {
    const Token token = greedy(logits.row(static_cast<int>(i)));
    const bool proposed = i < proposal_.size() && token == proposal_[i];
    push(token);
    if (!proposed || done()) return static_cast<std::int64_t>(i) + (proposed ? 1 : 0);
  }
}

void Generation::push(Token token) {
  tokens_.push_back(token);
  ++stats_.tokens;
  if (std::find(eos_.begin(), eos_.end(), token) != eos_.end()) {
    stats_.finish_reason = FinishReason::kEos;
  } else if (tokens_.size() >= limit_) {
    stats_.finish_reason = FinishReason::kLength;
  }
}

std::vector<Token> DecoderBase::generate(std::span<const Token> prompt, const GenerateOptions& options) {
  Generation generation(*this, prompt, options);
  while (!generation.done()) generation.advance();
  return generation.tokens();
}

void logits(DecoderBase& decoder, std::span<const Token> tokens, int chunk, float* out) {
  check_prompt(decoder, tokens);
  check_count("chunk", chunk);
  const int step = chunk > 0 ? chunk : kPrefillRows;
  const std::lock_guard lock(decoder.step_mutex());
  std::vector<Row> rows;
  const int length = static_cast<int>(tokens.size());
  for (int position = 0; position < length;) {
    rows.clear();
    for (const int end = std::min(position + step, length); position < end; ++position) {
      rows.push_back({0, tokens[static_cast<std::size_t>(position)], position});
    }
    const LogitsView view = decoder.step(rows);
    for (int i = 0; i < view.rows; ++i) out = std::copy_n(view.row(i).data(), view.vocab_size, out);
  }
}

}  // namespace kwker
