// The twin of the device part of kernels/src/cuda/hopper.cuh: products of a warpgroup.
#pragma once
#include "sim.cuh"

namespace sim {

// hopper.cpp
unsigned long long matrix_descriptor(const void *tile);
void warpgroup_fence();
void shared_memory_fence();
void warpgroup_finish();
// `offset` in bytes from the start of the tile `b`.
void warpgroup_multiply(float *acc, const unsigned *a, unsigned long long b, int offset,
                        bool by_rows, bool add);

// e4m3 has a sign, 4 bits of exponent (bias 7) and 3 of mantissa; its largest number is 448 = 0x7e,
// its only NaN 0x7f, and below 2^-6 it counts in steps of 2^-9.
inline unsigned round_to_e4m3(float value) {
  if (value != value) return 0x7fu;
  const unsigned sign = __float_as_uint(value) >> 24 & 0x80u;
  const float size = std::fmin(std::fabs(value), 448.0f);
  if (size < 0x1p-6f) return sign | static_cast<unsigned>(std::nearbyint(size * 0x1p9f));
  const unsigned bits = __float_as_uint(size);
  return sign | (((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - ((127u - 7u) << 3));
}

}  // namespace sim

DEVICE unsigned pack_e4m3(float first, float second) {
  return sim::round_to_e4m3(first) | sim::round_to_e4m3(second) << 8;
}

DEVICE unsigned long long matrix_descriptor(const void *tile) {
  return sim::matrix_descriptor(tile);
}
DEVICE void warpgroup_fence() { sim::warpgroup_fence(); }
DEVICE void shared_memory_fence() { sim::shared_memory_fence(); }
DEVICE void warpgroup_finish() { sim::warpgroup_finish(); }
DEVICE void warpgroup_multiply_columns(float (&acc)[8][4], const unsigned (&a)[4],
                                       unsigned long long b, int column, bool add) {
  sim::warpgroup_multiply(acc[0], a, b, column * 2, false, add);
}
DEVICE void warpgroup_multiply_rows(float (&acc)[8][4], const unsigned (&a)[4],
                                    unsigned long long b, int row) {
  sim::warpgroup_multiply(acc[0], a, b, row / 8 * 1024, true, true);
}
