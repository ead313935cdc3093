// Pools token states to one f32 vector per sequence: the mean, or the first or last token's state.
//
// A block takes 64 columns of a sequence with eight lanes per token: 32 tokens at a time, with four
// loads per lane in flight, so that few sequences fill a GPU. The order of the additions depends
// only on the length of the sequence. CPU twin: kernels/src/cpu/rows.rs.
#include "chunk.cuh"

constexpr int POOL_THREADS = 256;
constexpr int POOL_LANES = 8;  // lanes per token
constexpr int POOL_COLUMNS = POOL_LANES * CHUNK;
constexpr int POOL_TOKENS = POOL_THREADS / POOL_LANES;
constexpr int POOL_LOADS = 4;

// Values of PooledTokens in pool.rs.
constexpr int POOL_ALL = 0, POOL_LAST = 2;

// Sums every 32nd token of a sequence from `token` on.
DEVICE void sum_tokens(float (&sum)[CHUNK], const bf16 *states, int token, int length, int width) {
#pragma unroll
  for (int i = 0; i < CHUNK; ++i) sum[i] = 0.0f;
  for (; token < length; token += POOL_TOKENS * POOL_LOADS) {
    uint4 words[POOL_LOADS];
    // Past the end the last token is read again, but not added.
#pragma unroll
    for (int i = 0; i < POOL_LOADS; ++i) {
      const int own = min(token + POOL_TOKENS * i, length - 1);
      words[i] = load_16(states + static_cast<long long>(own) * width, true);
    }
#pragma unroll
    for (int i = 0; i < POOL_LOADS; ++i)
      if (token + POOL_TOKENS * i < length) add_chunk(sum, words[i]);
  }
}

// The grid is (ceil(width / 64), any); `width` is a multiple of 8.
KERNEL __launch_bounds__(POOL_THREADS)
    pool(const bf16 *hidden, const int *cu_seqlens, const int *counts, float *embeddings, int width,
         int tokens) {
  SHARED float sums[POOL_THREADS / WARP][POOL_COLUMNS];
  wait_for_previous_kernels();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / WARP, lane = thread % WARP;
  const int first_column = static_cast<int>(blockIdx.x) * POOL_COLUMNS;
  const int column = first_column + lane % POOL_LANES * CHUNK;
  for (int sequence = blockIdx.y; sequence < counts[0]; sequence += gridDim.y) {
    const int end = cu_seqlens[sequence + 1];
    const int start = tokens == POOL_LAST ? end - 1 : cu_seqlens[sequence];
    const int length = tokens == POOL_ALL ? end - start : 1;
    float sum[CHUNK];
    const bf16 *states = hidden + static_cast<long long>(start) * width + column;
    sum_tokens(sum, states, thread / POOL_LANES, column < width ? length : 0, width);
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) {
      // Add the four tokens of a warp.
      sum[i] += shuffle_xor(sum[i], POOL_LANES);
      sum[i] += shuffle_xor(sum[i], 2 * POOL_LANES);
      if (lane < POOL_LANES) sums[warp][lane * CHUNK + i] = sum[i];
    }
    block_barrier();
    if (thread < POOL_COLUMNS && first_column + thread < width) {
      float total = 0.0f;
#pragma unroll
      for (int i = 0; i < POOL_THREADS / WARP; ++i) total += sums[i][thread];
      embeddings[static_cast<long long>(sequence) * width + first_column + thread] =
          total / static_cast<float>(length);
    }
    block_barrier();  // before the next sequence overwrites the sums
  }
}
