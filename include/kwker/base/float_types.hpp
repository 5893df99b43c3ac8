// bfloat16 and IEEE half as storage types, with exact conversions in plain integer code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kwker {

/// The upper 16 bits of an IEEE float.
struct bfloat16 {
  std::uint16_t bits = 0;
};

/// An IEEE 754 binary16.
struct float16 {
  std::uint16_t bits = 0;
};

inline float to_float(float x) { return x; }

inline float to_float(bfloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

inline float to_float(float16 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1fu;
  std::uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  std::uint32_t shifted = 113;  // a subnormal half is a normal float: bring its leading bit to place
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --shifted;
  }
  return std::bit_cast<float>(sign | (shifted << 23) | ((mantissa & 0x3ffu) << 13));
}

/// Rounds to nearest, ties to even; NaN stays a (quiet) NaN.
inline bfloat16 to_bfloat16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Rounds to nearest, ties to even; too large becomes infinity.
inline float16 to_float16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65520 and above
  if (magnitude < 0x38800000u) {  // below the smallest normal half: a multiple of 2^-24
    const float steps = std::nearbyint(std::bit_cast<float>(magnitude) * 16777216.0f);
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps))};
  }
  const std::uint32_t rebased = magnitude - (112u << 23);
  return {static_cast<std::uint16_t>(sign | ((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13))};
}

}  // namespace kwker
