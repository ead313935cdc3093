// Both kinds of matrix products with warpgroup instructions use this: a warpgroup computes 128 rows of
// 192 outputs, in steps of 128 bytes of inputs that lie in shared memory, and writes them by way of
// boxes of 64 columns.
#pragma once
#include "hopper.cuh"

constexpr int GROUP_THREADS = 4 * WARP;
constexpr int TILE_ROWS = 128;
constexpr int TILE_OUTPUTS = 192;
constexpr int BOX_OUTPUTS = 64;  // columns per box: 128 bytes of bf16, written together
constexpr int TILE_BOXES = TILE_OUTPUTS / BOX_OUTPUTS;

// acc[i][n] is a thread's part of the fragment of rows 64 i + 16 warp and columns 8 n.
using TileSums = float[2][TILE_OUTPUTS / 8][4];

// Issues the products of one step, of x [128 rows] and w [192 rows], as a group of products. They
// replace the sums unless `add`.
template <class T>
DEVICE void multiply_step(TileSums &acc, const unsigned char *x, const unsigned char *w, bool add) {
  warpgroup_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      warpgroup_multiply<T>(acc[i], matrix_descriptor(x, i * 64 * 128 + k * 32),
                            matrix_descriptor(w, k * 32), add || k > 0);
  warpgroup_commit();
}

// One lane arrives for its warp.
DEVICE void warp_arrive(Barrier *barrier) {
  if (threadIdx.x % WARP == 0) barrier_arrive(barrier);
}

// Returns row `i` of the four rows of a tile for which a thread has sums.
DEVICE int matmul_row(int i) {
  const int thread = threadIdx.x % GROUP_THREADS;
  return i / 2 * 64 + thread / WARP * 16 + i % 2 * 8 + thread % WARP / 4;
}

// Returns where a box with rows of `ROW_BYTES`, 64 (e4m3) or 128 (bf16), has the thread's two
// values of row `matmul_row(i)` and fragment `n`, as an offset in bytes. A thread's rows are equal
// modulo 8, so the swizzle flips the same bits of `n` in all of them. 64-byte rows share a place in
// the swizzle in pairs, two fragments share a chunk.
template <int ROW_BYTES>
DEVICE int box_place(int i, int n) {
  const int first_row = matmul_row(0);
  const int place = first_row * 128 + first_row % 8 * 16 + threadIdx.x % 4 * 4;
  const int row = (i / 2 * 64 + i % 2 * 8) * ROW_BYTES;
  if constexpr (ROW_BYTES == 64) return row + ((place / 2 & ~8) ^ n / 2 * 16) + n % 2 * 8;
  return row + (place ^ n * 16);
}
