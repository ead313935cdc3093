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

// The tanh form: x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
DEVICE float gelu_tanh_of(float x) {
  constexpr float SCALE = -2.302208198f;  // -2 sqrt(2 / pi) log2(e)
  return x * reciprocal_approximate(1.0f + exp2_approximate(SCALE * fmaf(0.044715f * x * x, x, x)));
}

DEVICE unsigned gelu_of_pair(unsigned word) {
  return pack_bf16(gelu_of(first_of(word)), gelu_of(second_of(word)));
}
