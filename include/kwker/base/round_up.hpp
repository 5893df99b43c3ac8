// Integer rounding that layouts need everywhere.
#pragma once

namespace kwker {

template <class T>
constexpr T ceil_div(T value, T divisor) {
  return (value + divisor - 1) / divisor;
}

template <class T>
constexpr T round_up(T value, T multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace kwker
