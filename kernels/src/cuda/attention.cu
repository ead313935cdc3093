// Attention with the matrix products of a warp (mma.sync), for every card from sm_80 on.
//
// Each of 4 warps owns 32 queries, so that a fragment of keys or values read from shared memory
// serves two matrix instructions.
#include "attention.cuh"

template <int D>
struct WarpProducts {
  static constexpr int HEAD = D;
  static constexpr int FRAGMENTS = 2;
  static constexpr int THREADS = 4 * WARP;
  static constexpr int UNIT_THREADS = WARP;
  // Rows are 16 bytes longer than their data: eight consecutive ones start in different banks.
  static constexpr int ROW = D + 8;

  // Place of 16-byte chunk `chunk` of row `row` in a tile.
  DEVICE int place(int row, int chunk) { return row * ROW + chunk * 8; }

  DEVICE void publish() {}

  // scores[f][n] = queries of fragment f times keys 8n to 8n + 7.
  DEVICE void multiply_keys(float (&scores)[FRAGMENTS][KEY_FRAGMENTS][4],
                            const unsigned (&queries)[FRAGMENTS][D / 16][4], const bf16 *keys) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < KEY_FRAGMENTS; ++n) {
#pragma unroll
      for (int f = 0; f < FRAGMENTS; ++f)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[f][n][i] = 0.0f;
#pragma unroll
      for (int d = 0; d < D / 32; ++d) {
        unsigned key[4];
        load_matrices(key, keys + place(n * 8 + lane % 8, d * 4 + lane / 8));
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f) {
          multiply_add(scores[f][n], queries[f][2 * d], key[0], key[1]);
          multiply_add(scores[f][n], queries[f][2 * d + 1], key[2], key[3]);
        }
      }
    }
  }

  // sums[f] += probabilities of fragment f times values.
  DEVICE void multiply_values(float (&sums)[FRAGMENTS][D / 8][4],
                              const unsigned (&probabilities)[FRAGMENTS][KEYS / 16][4],
                              const bf16 *values) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        unsigned value[4];
        load_matrices_transposed(value, values + place(k * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f) {
          multiply_add(sums[f][2 * d], probabilities[f][k], value[0], value[1]);
          multiply_add(sums[f][2 * d + 1], probabilities[f][k], value[2], value[3]);
        }
      }
    }
  }
};

KERNEL __launch_bounds__(WarpProducts<32>::THREADS)
    attention_32(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts, int heads,
                 float scale_log2) {
  attention<WarpProducts<32>>(qkv, context, tiles, counts, heads, scale_log2);
}

KERNEL __launch_bounds__(WarpProducts<64>::THREADS)
    attention_64(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts, int heads,
                 float scale_log2) {
  attention<WarpProducts<64>>(qkv, context, tiles, counts, heads, scale_log2);
}
