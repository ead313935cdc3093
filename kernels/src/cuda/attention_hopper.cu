// Attention for head size 64 with the matrix products of a warpgroup (wgmma), for sm_90a.
//
// Two warpgroups of a block own 64 queries each. Keys and values are read by the matrix units from
// shared memory, so a thread holds little and two blocks fit a multiprocessor: while one waits for its
// products, the other computes exponentials.
#include "attention.cuh"

#if defined(POLYSIFT_SIM) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "hopper.cuh"

struct GroupProducts {
  static constexpr int HEAD = 64;
  static constexpr int FRAGMENTS = 1;
  static constexpr int THREADS = 8 * WARP;
  static constexpr int UNIT_THREADS = 4 * WARP;
  static constexpr int ROW = HEAD;

  // Place of 16-byte chunk `chunk` of row `row` in a tile: the order that the matrix units expect.
  DEVICE int place(int row, int chunk) { return row * ROW + (chunk ^ row % 8) * 8; }

  // What cp.async wrote is to be seen by the matrix units.
  DEVICE void publish() { shared_memory_fence(); }

  DEVICE void multiply_keys(float (&scores)[1][KEY_FRAGMENTS][4],
                            const unsigned (&queries)[1][HEAD / 16][4], const bf16 *keys) {
    const unsigned long long tile = matrix_descriptor(keys);
    warpgroup_fence();
#pragma unroll
    for (int d = 0; d < HEAD / 16; ++d)
      warpgroup_multiply_columns(scores[0], queries[0][d], tile, d * 16, d > 0);
    warpgroup_finish();
  }

  DEVICE void multiply_values(float (&sums)[1][HEAD / 8][4],
                              const unsigned (&probabilities)[1][KEYS / 16][4],
                              const bf16 *values) {
    const unsigned long long tile = matrix_descriptor(values);
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k)
      warpgroup_multiply_rows(sums[0], probabilities[0][k], tile, k * 16);
    warpgroup_finish();
  }
};

KERNEL __launch_bounds__(GroupProducts::THREADS, 2)
    attention_64_hopper(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts,
                        int heads, float scale_log2) {
  attention<GroupProducts>(qkv, context, tiles, counts, heads, scale_log2);
}
#endif
