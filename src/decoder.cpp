// The part of a decoder that knows no precision: what is in the cache, and which steps are allowed.
#include "kwker/model/decoder.hpp"

#include <stdexcept>

#include "kwker/base/error.hpp"

namespace kwker {

DecoderBase::DecoderBase(const ModelConfig& config, const DecoderOptions& options)
    : config_(config), options_(options) {
  constexpr int kMostPositions = 1 << 24, kMostSequences = 4096;  // keeps every index within its type
  const auto check = [](const char* name, int value, int low, int high) {
    if (value < low || value > high) {
      throw std::invalid_argument(concat(name, " is ", low, " to ", high, ", got ", value));
    }
  };
  check("max_cache_len", options.max_cache_len, 1, kMostPositions);
  check("max_batch", options.max_batch, 1, kMostSequences);
  check("num_threads", options.num_threads, 0, 1024);
  history_.resize(static_cast<std::size_t>(options.max_batch) + 1);
}

void DecoderBase::truncate(int sequence, int length) {
  std::vector<Token>& tokens = history_.at(static_cast<std::size_t>(sequence));
  if (length < 0 || length > static_cast<int>(tokens.size())) {
    throw std::invalid_argument(
        concat("sequence ", sequence, " has ", tokens.size(), " positions and cannot be cut to ", length));
  }
  tokens.resize(static_cast<std::size_t>(length));
}

void DecoderBase::check_rows(std::span<const Row> rows) const {
  if (rows.empty()) throw std::invalid_argument("a step needs at least one row");
  std::vector<bool> seen(history_.size(), false);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (row.sequence < 0 || row.sequence > options_.max_batch) {
      throw std::invalid_argument(
          concat("row ", i, ": the sequence is 0 to ", options_.max_batch, ", got ", row.sequence));
    }
    if (row.token < 0 || row.token >= config_.vocab_size) {
      throw std::invalid_argument(
          concat("row ", i, ": token ", row.token, " is outside the vocabulary of ", config_.vocab_size));
    }
    if (row.position < 0 || row.position >= options_.max_cache_len) {
      throw std::invalid_argument(concat("row ", i, ": position ", row.position, " is outside the cache of ",
                                         options_.max_cache_len, " positions"));
    }
    if (i > 0 && rows[i - 1].sequence == row.sequence) {
      if (row.position != rows[i - 1].position + 1) {
        throw std::invalid_argument(
            concat("row ", i, ": position ", row.position, " does not follow ", rows[i - 1].position));
      }
      continue;
    }
    if (seen[static_cast<std::size_t>(row.sequence)]) {
      throw std::invalid_argument(concat("row ", i, ": the rows of sequence ", row.sequence, " do not stand together"));
    }
    seen[static_cast<std::size_t>(row.sequence)] = true;
    if (row.position > length(row.sequence)) {
      throw std::invalid_argument(concat("row ", i, ": position ", row.position, " leaves a gap after the ",
                                         length(row.sequence), " positions of sequence ", row.sequence));
    }
  }
}

void DecoderBase::record(std::span<const Row> rows) {
  for (const Row& row : rows) {
    std::vector<Token>& tokens = history_[static_cast<std::size_t>(row.sequence)];
    tokens.resize(static_cast<std::size_t>(row.position));
    tokens.push_back(row.token);
  }
}

}  // namespace kwker
