// What happens to the values of a matrix product before they are written, for the kernels of
// matmul.cu and matmul_hopper.cu.
#pragma once
#include "gelu.cuh"

enum Epilogue {
  BIAS,      // + bias
  GELU,      // GELU(+ bias), by erf
  RESIDUAL,  // + bias + residual
};

// What becomes of two values of neighbouring columns. `residual`: that of the same place.
template <int EPILOGUE>
DEVICE void finish_pair(float &first, float &second, unsigned bias, unsigned residual) {
  first += first_of(bias), second += second_of(bias);
  if constexpr (EPILOGUE == GELU) first = gelu_of(first), second = gelu_of(second);
  if constexpr (EPILOGUE == RESIDUAL) first += first_of(residual), second += second_of(residual);
}
