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

}  // namespace sim

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
