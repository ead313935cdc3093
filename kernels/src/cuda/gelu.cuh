// GELU of one value, for a result that is rounded to bf16.
#pragma once
#include "device.cuh"

// Computes x Phi(x) with the normal distribution Phi; Phi(-t) is 2 to a polynomial in t >= 0 (see
// kernels/coefficients.py). The error for bf16 x is at most the larger of 2^-15 of the value and
// 2^-23; half a unit of bf16 is at least 2^-9. inf, -inf and NaN give inf, NaN and NaN.
DEVICE float gelu_of(float x) {
  const float t = fabsf(x);
  float exponent = fmaf(-0.00041456803f, t, 0.0066711479f);
  exponent = fmaf(exponent, t, -0.050868809f);
  exponent = fmaf(exponent, t, -0.46078742f);
  exponent = fmaf(exponent, t, -1.1506653f);
  const float below = exp2_approximate(fmaf(exponent, t, -1.0f));
  return x * (x < 0.0f ? below : 1.0f - below);
}
