// Epilogues of matrix products, applied before writing, for matmul.cu and matmul_hopper.cu.
#pragma once
#include "gelu.cuh"

enum Epilogue {
  BIAS,      // + bias
  GELU,      // GELU(+ bias), by erf
  RESIDUAL,  // + bias + residual
};

// Applies the epilogue to two values of neighbouring columns, with `residual` of the same place. The
// values count times `scale`, which is 1 in bf16; NARROW results are rounded to e4m3.
template <int EPILOGUE, bool NARROW = false>
DEVICE void finish_pair(float &first, float &second, float2 scale, unsigned bias,
                        unsigned residual) {
  first = fmaf(first, scale.x, first_of(bias)), second = fmaf(second, scale.y, second_of(bias));
  if constexpr (EPILOGUE == GELU) first = gelu_of<NARROW>(first), second = gelu_of<NARROW>(second);
  if constexpr (EPILOGUE == RESIDUAL) first += first_of(residual), second += second_of(residual);
}
