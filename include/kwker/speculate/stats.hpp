// What a generation did: counts by proposer and times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kwker {

enum class FinishReason { kNone, kEos, kLength };

struct ProposerStats {
  std::string name;
  std::int64_t proposed = 0;
  std::int64_t accepted = 0;
};

struct GenerateStats {
  std::int64_t steps = 0;   ///< Steps after the prompt.
  std::int64_t tokens = 0;  ///< New tokens.
  std::int64_t proposed = 0;
  std::int64_t accepted = 0;
  std::int64_t max_proposed = 0;  ///< Most tokens proposed in one step.
  std::int64_t cached = 0;        ///< Prompt tokens found in the cache.
  std::vector<ProposerStats> by_proposer;
  double prefill_s = 0;  ///< Seconds for the prompt, the first token included.
  double decode_s = 0;   ///< Seconds for everything after.
  FinishReason finish_reason = FinishReason::kNone;

  /// Tokens after the first, over the seconds they took; 0 where there are none.
  double tokens_per_s() const { return tokens > 1 && decode_s > 0 ? static_cast<double>(tokens - 1) / decode_s : 0.0; }
};

}  // namespace kwker
