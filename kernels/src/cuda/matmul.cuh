// Epilogues of matrix products, applied before writing, for matmul.cu and matmul_hopper.cu.
#pragma once
#include "gelu.cuh"

enum Epilogue {
  BIAS,      // + bias
  GELU,      // GELU(+ bias), by erf
  RESIDUAL,  // + bias + residual
};

// Applies the epilogue to two values of neighbouring columns, with `residual` of the same place.
template <int EPILOGUE>
DEVICE void finish_pair(float &first, float &second, unsigned bias, unsigned residual) {
  first += first_of(bias), second += second_of(bias);
  if constexpr (EPILOGUE == GELU) first = gelu_of(first), second = gelu_of(second);
  if constexpr (EPILOGUE == RESIDUAL) first += first_of(residual), second += second_of(residual);
}
