// GELU of one value, for a result that is rounded to bf16, or with NARROW to e4m3.
#pragma once
#include "device.cuh"

// Computes x Phi(x) with the normal distribution Phi; Phi(-t) is 2 to a polynomial in t >= 0 (see
// kernels/coefficients.py). No result is larger than x. The error for bf16 x is at most the larger of
// 2^-15 of the value and 2^-23; half a unit of bf16 is at least 2^-9. With NARROW the degree is lower
// and the error 2^-8.7 of the value or 2^-16.7; half a unit of e4m3 is at least 2^-5. inf, -inf and
// NaN give inf, NaN and NaN.
template <bool NARROW>
DEVICE float gelu_of(float x) {
  const float t = fabsf(x);
  float exponent;
  if constexpr (NARROW) {
    exponent = fmaf(-0.021332966f, t, -0.50793457f);
    exponent = fmaf(exponent, t, -1.1281823f);
  } else {
    exponent = fmaf(-0.00041456803f, t, 0.0066711479f);
    exponent = fmaf(exponent, t, -0.050868809f);
    exponent = fmaf(exponent, t, -0.46078742f);
    exponent = fmaf(exponent, t, -1.1506653f);
  }
  const float below = exp2_approximate(fmaf(exponent, t, -1.0f));
  return x * (x < 0.0f ? below : 1.0f - below);
}
