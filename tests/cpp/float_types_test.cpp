// Conversions of 16-bit floats against their definition: sign, exponent and fraction, in double arithmetic.
#include "kwker/base/float_types.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace kwker {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Half {
  using Type = float16;
  static constexpr int kFractionBits = 10;
  static constexpr int kBias = 15;
  static Type from(float x) { return to_float16(x); }
};

struct Brain {
  using Type = bfloat16;
  static constexpr int kFractionBits = 7;
  static constexpr int kBias = 127;
  static Type from(float x) { return to_bfloat16(x); }
};

template <class Format>
class FloatTypes : public ::testing::Test {
 protected:
  using Type = typename Format::Type;
  static constexpr std::uint32_t kInfinityBits = 0x7fffu >> Format::kFractionBits << Format::kFractionBits;

  static Type of_bits(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }

  /// The value of a positive number. Infinity counts as the number that would come next: where rounding gives it.
  static double magnitude(std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> Format::kFractionBits);
    const double fraction = std::ldexp(bits & ((1u << Format::kFractionBits) - 1), -Format::kFractionBits);
    return exponent == 0 ? std::ldexp(fraction, 1 - Format::kBias)
                         : std::ldexp(1.0 + fraction, exponent - Format::kBias);
  }

  /// The nearest of all numbers, by search; between two, the one with an even last bit.
  static std::uint32_t nearest(float x) {
    static const std::vector<double> all = [] {
      std::vector<double> values;
      for (std::uint32_t bits = 0; bits <= kInfinityBits; ++bits) values.push_back(magnitude(bits));
      return values;
    }();
    const std::uint32_t sign = std::signbit(x) ? 0x8000u : 0u;
    const double target = std::fabs(static_cast<double>(x));
    const auto above = std::lower_bound(all.begin(), all.end(), target);
    if (above == all.end()) return sign | kInfinityBits;
    const auto bits = static_cast<std::uint32_t>(above - all.begin());
    if (*above == target) return sign | bits;
    const double up = *above - target;
    const double down = target - *(above - 1);
    const bool goes_up = up < down || (up == down && bits % 2 == 0);
    return sign | (goes_up ? bits : bits - 1);
  }

  static void expect_nearest(float x) {
    ASSERT_EQ(Format::from(x).bits, nearest(x)) << x << " = 0x" << std::hex << std::bit_cast<std::uint32_t>(x);
    ASSERT_EQ(Format::from(-x).bits, nearest(-x)) << -x;
  }
};

using Formats = ::testing::Types<Half, Brain>;
TYPED_TEST_SUITE(FloatTypes, Formats);

TYPED_TEST(FloatTypes, EveryNumberToFloatIsItsValue) {
  for (std::uint32_t bits = 0; bits < TestFixture::kInfinityBits; ++bits) {
    const double value = TestFixture::magnitude(bits);
    ASSERT_EQ(to_float(TestFixture::of_bits(bits)), value) << bits;
    ASSERT_EQ(to_float(TestFixture::of_bits(bits | 0x8000u)), -value) << bits;
    ASSERT_TRUE(std::signbit(to_float(TestFixture::of_bits(bits | 0x8000u)))) << bits;
  }
  EXPECT_EQ(to_float(TestFixture::of_bits(TestFixture::kInfinityBits)), kInfinity);
  EXPECT_EQ(to_float(TestFixture::of_bits(TestFixture::kInfinityBits | 0x8000u)), -kInfinity);
}

TYPED_TEST(FloatTypes, EveryNumberComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = to_float(TestFixture::of_bits(bits));
    const std::uint32_t back = TypeParam::from(value).bits;
    if ((bits & 0x7fffu) > TestFixture::kInfinityBits) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_GT(back & 0x7fffu, TestFixture::kInfinityBits) << bits;
      ASSERT_EQ(back & 0x8000u, bits & 0x8000u) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TYPED_TEST(FloatTypes, RoundsBetweenNeighbours) {
  for (std::uint32_t bits = 0; bits < TestFixture::kInfinityBits; ++bits) {
    const double middle = (TestFixture::magnitude(bits) + TestFixture::magnitude(bits + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(tie, middle);
    TestFixture::expect_nearest(tie);
    TestFixture::expect_nearest(std::nextafter(tie, 0.0f));
    TestFixture::expect_nearest(std::nextafter(tie, kInfinity));
  }
}

TYPED_TEST(FloatTypes, RoundsRandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 300'000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(x)) TestFixture::expect_nearest(x);
  }
  // Random bits seldom hit a half's range: the same within it, subnormal halves included.
  std::uniform_real_distribution<float> exponent(-27.0f, 17.0f);
  for (int i = 0; i < 300'000; ++i) TestFixture::expect_nearest(std::exp2(exponent(random)));
}

TYPED_TEST(FloatTypes, NanStaysNan) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(to_float(TypeParam::from(std::bit_cast<float>(bits))))) << bits;
  }
}

}  // namespace
}  // namespace kwker
