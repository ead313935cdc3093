// GeGLU: gelu(a) times b for rows [a | b]. CPU twin: geglu in kernels/src/cpu/gelu.rs.
#include "chunk.cuh"
#include "gelu.cuh"

// x is [rows, 2 * width] and out [rows, width]: bf16, or times `inverse` in e4m3 if that is not 0.
// `width` is a multiple of 8; any grid works.
KERNEL __launch_bounds__(256) glu(const bf16 *x, void *out, float inverse, int rows, int width) {
  wait_for_previous_kernels();
  const int chunks = width / CHUNK;
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  const long long end = static_cast<long long>(rows) * chunks;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < end;
       i += step) {
    const bf16 *row = x + i / chunks * 2 * width + i % chunks * CHUNK;
    const uint4 first = load_16(row, true), second = load_16(row + width, true);
    float activated[CHUNK], other[CHUNK];
    unpack_chunk(activated, first);
    unpack_chunk(other, second);
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) activated[j] = gelu_of<false>(activated[j]) * other[j];
    if (!HAS_E4M3 || inverse == 0.0f)
      store_chunk(static_cast<bf16 *>(out) + i * CHUNK, activated, true);
    else
      store_chunk(static_cast<e4m3 *>(out) + i * CHUNK, activated, inverse, true);
  }
}
