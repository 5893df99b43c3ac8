// Series with textbook range reductions. Compiled without contraction, so every operation rounds as written.
#include "kwker/base/scalar_math.hpp"

#include <cmath>

namespace kwker {

double portable_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  // log m = 2 atanh((m - 1) / (m + 1)), |s| < 0.172
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double sum = 0;
  for (int n = 25; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return exponent * 0.69314718055994530942 + 2 * s * sum;
}

double portable_exp(double x) {
  const double n = std::nearbyint(x * 1.44269504088896340736);
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double sum = 1;
  for (int i = 16; i >= 1; --i) sum = 1 + sum * r / i;
  return std::ldexp(sum, static_cast<int>(n));
}

SinCos portable_sin_cos(double x) {
  // pi / 2 in three parts; the first two have 33 and 33 bits, so their products with n < 2^20 are exact.
  constexpr double kPart1 = 1.57079632673412561417, kPart2 = 6.07710050630396597660e-11,
                   kPart3 = 2.02226624879595063154e-21;
  const double n = std::nearbyint(x * 0.63661977236758134308);
  const double r = ((x - n * kPart1) - n * kPart2) - n * kPart3;
  const double square = r * r;
  double sine = 1, cosine = 1;
  for (int i = 20; i >= 2; i -= 2) {
    sine = 1 - sine * square / (i * (i + 1));
    cosine = 1 - cosine * square / (i * (i - 1));
  }
  sine *= r;
  switch (static_cast<long long>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace kwker
