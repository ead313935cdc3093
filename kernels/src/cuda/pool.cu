// Token states to one vector per sequence, in f32: their mean, or the state of the first token.
//
// A block takes 256 columns of a sequence; its 8 warps take every eighth token, and their sums are
// added in the order of the warps. Which tokens are added in which order depends on the length of
// the sequence alone. CPU twin: kernels/src/pool.rs.
#include "chunk.cuh"

constexpr int POOL_WARPS = 8;
constexpr int POOL_COLUMNS = WARP * CHUNK;

// The grid is (ceil(width / 256), any); `width` is a multiple of 8.
KERNEL __launch_bounds__(POOL_WARPS *WARP)
    pool(const bf16 *hidden, const int *cu_seqlens, const int *counts, float *embeddings, int width,
         int cls) {
  SHARED float sums[POOL_WARPS][POOL_COLUMNS];
  const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  const int first_column = blockIdx.x * POOL_COLUMNS;
  const int column = first_column + lane * CHUNK;
  for (int sequence = blockIdx.y; sequence < counts[0]; sequence += gridDim.y) {
    const int start = cu_seqlens[sequence];
    const int length = cls ? 1 : cu_seqlens[sequence + 1] - start;
    float sum[CHUNK] = {};
    if (column < width) {
      for (int token = warp; token < length; token += POOL_WARPS) {
        const long long at = static_cast<long long>(start + token) * width + column;
        add_chunk(sum, load_16(hidden + at, true));
      }
    }
#pragma unroll
    for (int i = 0; i < CHUNK; ++i) sums[warp][lane * CHUNK + i] = sum[i];
    block_barrier();
    const int own = first_column + static_cast<int>(threadIdx.x);
    if (own < width) {
      float total = 0.0f;
#pragma unroll
      for (int i = 0; i < POOL_WARPS; ++i) total += sums[i][threadIdx.x];
      embeddings[static_cast<long long>(sequence) * width + own] =
          total / static_cast<float>(length);
    }
    block_barrier();  // before the next sequence overwrites the sums
  }
}
