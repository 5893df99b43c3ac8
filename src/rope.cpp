// Rotary frequencies and tables.
#include "kwker/model/rope.hpp"

#include <vector>

#include "kwker/base/round_up.hpp"
#include "kwker/base/scalar_math.hpp"

namespace kwker {
namespace {

/// Radians per position for each pair of a head, [head_dim / 2].
std::vector<float> frequencies(const ModelConfig& config) {
  std::vector<float> result;
  const double log_theta = portable_log(config.rope_theta);
  const RopeScaling& scaling = config.rope_scaling;
  for (std::int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(config.head_dim);
    double frequency = static_cast<float>(portable_exp(-exponent * log_theta));
    if (scaling.kind == RopeScaling::Kind::kLinear) {
      frequency /= scaling.factor;
    } else if (scaling.kind == RopeScaling::Kind::kLlama3) {
      // Long waves are stretched, short ones kept, those between blended (Hugging Face, rope_type "llama3").
      constexpr double kTwoPi = 6.28318530717958647692;
      const double turns = static_cast<double>(scaling.original_max_position) * frequency / kTwoPi;
      if (turns < scaling.low_freq_factor) {
        frequency /= scaling.factor;
      } else if (turns <= scaling.high_freq_factor) {
        const double kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
        frequency = (1 - kept) * frequency / scaling.factor + kept * frequency;
      }
    }
    result.push_back(static_cast<float>(frequency));
  }
  return result;
}

}  // namespace

RopeTable::RopeTable(const ModelConfig& config, std::int64_t positions)
    : half_(round_up<std::int64_t>(config.head_dim / 2, 16)),
      cos_(static_cast<std::size_t>(positions * half_)),
      sin_(static_cast<std::size_t>(positions * half_)) {
  const std::vector<float> frequency = frequencies(config);
  for (std::int64_t position = 0; position < positions; ++position) {
    for (std::size_t i = 0; i < frequency.size(); ++i) {
      const float angle = static_cast<float>(position) * frequency[i];
      const SinCos value = portable_sin_cos(angle);
      const std::size_t at = static_cast<std::size_t>(position * half_) + i;
      cos_[at] = static_cast<float>(value.cos);
      sin_[at] = static_cast<float>(value.sin);
    }
  }
}

}  // namespace kwker
