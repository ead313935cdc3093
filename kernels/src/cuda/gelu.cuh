// GELU of one value, for a result that is rounded to bf16.
#pragma once
#include "device.cuh"

// x Phi(x), Phi being the normal distribution: Phi(-t) is 2 to a polynomial in t >= 0, of
// kernels/coefficients.py. For every bf16 number x within 2^-15 of the exact value or 2^-23, whichever
// is more: half a unit of bf16 is 2^-9 at least. Of infinities and NaN what x Phi(x) is: inf, NaN, NaN.
DEVICE float gelu_of(float x) {
  const float t = fabsf(x);
  float exponent = fmaf(-0.00041456803f, t, 0.0066711479f);
  exponent = fmaf(exponent, t, -0.050868809f);
  exponent = fmaf(exponent, t, -0.46078742f);
  exponent = fmaf(exponent, t, -1.1506653f);
  const float below = exp2_approximate(fmaf(exponent, t, -1.0f));
  return x * (x < 0.0f ? below : 1.0f - below);
}
