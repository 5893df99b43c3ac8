// Simple rounding to int4.
#include <algorithm>
#include <bit>
#include <cmath>

#include "kwker/quant/int4.hpp"

namespace kwker {
namespace {

/// The smallest half that is not below x >= 0, so that the widest group fits its range.
float16 half_not_below(float x) {
  float16 half = to_float16(x);
  if (to_float(half) < x) ++half.bits;
  constexpr std::uint16_t kLargest = 0x7bff;
  half.bits = std::min(half.bits, kLargest);
  return half;
}

std::uint8_t clamp_round(float x, float low, float high) {
  return static_cast<std::uint8_t>(std::clamp(std::nearbyint(x), low, high));
}

}  // namespace

void quantize_block(const float* weights, const Int4Block& block, QuantizedBlock& out) {
  out.values.assign(static_cast<std::size_t>(block.inputs), 0);
  out.meta.assign(static_cast<std::size_t>(block.groups), 0);
  const auto bounds = [&](int group) {
    float low = 0, high = 0;
    for (int i = group * block.group; i < std::min((group + 1) * block.group, block.inputs); ++i) {
      low = std::min(low, weights[i]);
      high = std::max(high, weights[i]);
    }
    return std::pair(low, high);
  };
  float widest = 0;
  for (int g = 0; g < block.groups; ++g) {
    const auto [low, high] = bounds(g);
    widest = std::max(widest, high / 15 - low / 15);
  }
  out.scale = half_not_below(widest / 16);
  const float scale = to_float(out.scale);
  if (scale == 0) return;  // all zero: q = z = 0
  for (int g = 0; g < block.groups; ++g) {
    const auto [low, high] = bounds(g);
    const std::uint8_t sub_scale = clamp_round((high / 15 - low / 15) / scale, 1, 16);
    const float step = scale * static_cast<float>(sub_scale);
    const std::uint8_t zero = clamp_round(-low / step, 0, 15);
    out.meta[static_cast<std::size_t>(g)] = static_cast<std::uint8_t>((sub_scale - 1) | (zero << 4));
    for (int i = g * block.group; i < std::min((g + 1) * block.group, block.inputs); ++i) {
      out.values[static_cast<std::size_t>(i)] = clamp_round(weights[i] / step + static_cast<float>(zero), 0, 15);
    }
  }
}

}  // namespace kwker
