// Rotary position embedding (RoPE), which rotates queries and keys in place: value i of a head with
// value i + head_size / 2. CPU twin: kernels/src/cpu/rotate.rs.
#include "chunk.cuh"

constexpr int ROTATE_THREADS = 256;
constexpr int ROTATE_ROWS = 16;  // rows per unit of work
constexpr int ROTATE_SLICES = 8;  // units of work per tile of 128 queries

// qkv is [tokens, 3 * heads * head_size]; angles is [places, head_size]: for each place in a
// sequence the cosines, then the sines. attention.cuh describes `tiles` and `counts`; every token
// of a sequence is in one tile. `head_size` is a multiple of 16; any grid works.
KERNEL __launch_bounds__(ROTATE_THREADS)
    rotate(bf16 *qkv, const float *angles, const int *tiles, const int *counts, int heads,
           int head_size) {
  wait_for_previous_kernels();
  const int half = head_size / 2, chunks = half / CHUNK, width = heads * head_size;
  const int row_chunks = 2 * heads * chunks;  // keys lie beside queries
  const int num_items = counts[1] * ROTATE_SLICES;
  for (int index = blockIdx.x; index < num_items; index += gridDim.x) {
    const int4 tile = reinterpret_cast<const int4 *>(tiles)[index / ROTATE_SLICES];
    const int first = tile.z + index % ROTATE_SLICES * ROTATE_ROWS;
    const int rows = min(ROTATE_ROWS, tile.y - first);
    for (int i = threadIdx.x; i < rows * row_chunks; i += ROTATE_THREADS) {
      const int place = first + i / row_chunks, chunk = i % row_chunks;
      const int column = chunk % chunks * CHUNK;
      bf16 *values = qkv + static_cast<long long>(tile.x + place) * (3 * width) +
                     chunk / chunks * head_size + column;
      const float *turn = angles + static_cast<long long>(place) * head_size + column;
      const uint4 words = load_16(values, true), others = load_16(values + half, true);
      float x[CHUNK], y[CHUNK], cosines[CHUNK], sines[CHUNK], turned[CHUNK];
      unpack_chunk(cosines, load_16(turn, true), load_16(turn + CHUNK / 2, true));
      unpack_chunk(sines, load_16(turn + half, true), load_16(turn + half + CHUNK / 2, true));
      unpack_chunk(x, words);
      unpack_chunk(y, others);
#pragma unroll
      for (int j = 0; j < CHUNK; ++j) {
        turned[j] = x[j] * cosines[j] - y[j] * sines[j];
        y[j] = y[j] * cosines[j] + x[j] * sines[j];
      }
      store_chunk(values, turned, true);
      store_chunk(values + half, y, true);
    }
  }
}
