// Elementary functions of doubles from plain arithmetic: the same bits on every machine, unlike the C library's, whose
// variants are chosen by CPU. Accurate to a few units in the last place on the ranges that the library uses.
#pragma once

namespace kwker {

/// Natural logarithm of a positive normal x.
double portable_log(double x);
/// e^x for |x| < 700.
double portable_exp(double x);

struct SinCos {
  double sin;
  double cos;
};
/// Sine and cosine of |x| < 2^30.
SinCos portable_sin_cos(double x);

}  // namespace kwker
