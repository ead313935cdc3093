// Quantise rows to e4m3 (8 bits) with an f32 scale per row: the rows that layer norm computes, which it
// also writes in bf16, or the rows of a bf16 tensor. Only the matrix units of Hopper (sm_90a) read e4m3.
//
// scale = largest magnitude / 448, the largest number of e4m3. A value is stored as value * (448 /
// largest magnitude), rounded to nearest even. Everything is computed from f32 values.
#include "layer_norm.cuh"

#if defined(POLYSIFT_SIM) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "hopper.cuh"

constexpr float E4M3_LARGEST = 448.0f;
// Rows with nothing larger are stored as zeros with scale 1, because 448 / largest could overflow.
constexpr float SMALLEST_ROW = 0x1p-100f;

struct RowScale {
  float scale, inverse;
};
// NaN is ignored in `largest` and stored as NaN. With an infinity, every value times the scale is
// NaN.
DEVICE RowScale row_scale(float largest) {
  if (largest <= SMALLEST_ROW) return {1.0f, 1.0f};
  return {largest / E4M3_LARGEST, E4M3_LARGEST / largest};
}

DEVICE float largest_of(float largest, const float (&values)[CHUNK]) {
#pragma unroll
  for (int i = 0; i < CHUNK; ++i) largest = fmaxf(largest, fabsf(values[i]));
  return largest;
}

DEVICE void store_e4m3_chunk(unsigned char *to, const float (&values)[CHUNK], float inverse) {
  unsigned pairs[CHUNK / 2];
#pragma unroll
  for (int i = 0; i < CHUNK / 2; ++i)
    pairs[i] = pack_e4m3(values[2 * i] * inverse, values[2 * i + 1] * inverse);
  *reinterpret_cast<uint2 *>(to) = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

template <int N, bool EXACT>
DEVICE void write_e4m3_rows(const Rows<N, EXACT> &own, unsigned char *out, float *scales) {
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (has_chunk(own, i)) largest = largest_of(largest, own.values[r][i]);
    const RowScale row = row_scale(warp_max(largest));
    unsigned char *to = out + static_cast<long long>(own.index[r]) * own.width;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (has_chunk(own, i)) store_e4m3_chunk(to + column_of(i), own.values[r][i], row.inverse);
    if (threadIdx.x % WARP == 0) scales[own.index[r]] = row.scale;
  }
}

#define FP8_LAYER_NORM_KERNELS(NAME, N, EXACT)                                                    \
  KERNEL NORM_BOUNDS(N)                                                                            \
      embed_layer_norm_fp8_##NAME(const int *input_ids, const int *position_ids,                  \
                                   const bf16 *words, const float *positions, const float *gamma,  \
                                   const float *beta, float eps, bf16 *hidden,                     \
                                   unsigned char *quantised, float *scales, int rows, int width) { \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    read_embeddings(own, input_ids, position_ids, words, positions);                               \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, hidden);                                                                       \
    write_e4m3_rows(own, quantised, scales);                                                       \
  }                                                                                                \
  KERNEL NORM_BOUNDS(N)                                                                            \
      layer_norm_fp8_##NAME(const bf16 *x, const float *gamma, const float *beta, float eps,      \
                             bf16 *out, unsigned char *quantised, float *scales, int rows,         \
                             int width) {                                                          \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    read_rows(own, x);                                                                             \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, out);                                                                          \
    write_e4m3_rows(own, quantised, scales);                                                       \
  }                                                                                                \
  KERNEL NORM_BOUNDS(N)                                                                            \
      add_norm_fp8_##NAME(const bf16 *update, float *states, int first, const float *gamma,        \
                           const float *beta, float eps, bf16 *hidden, unsigned char *quantised,   \
                           float *scales, int rows, int width) {                                   \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    add_rows(own, update, states, hidden, first);                                                  \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, hidden);                                                                       \
    write_e4m3_rows(own, quantised, scales);                                                       \
  }

FOR_NORM_WIDTHS(FP8_LAYER_NORM_KERNELS)

constexpr int QUANTISE_CHUNKS = 4;  // chunks per thread
constexpr int QUANTISE_WARPS = 4;
constexpr int QUANTISE_THREADS = QUANTISE_WARPS * WARP;

// Quantises one row per block, which stays in registers between its maximum and the rounding. A
// block has a thread per 32 values or part of them, rounded up to whole warps.
KERNEL __launch_bounds__(QUANTISE_THREADS)
    quantise_rows(const bf16 *x, unsigned char *quantised, float *scales, int width) {
  SHARED float of_warps[QUANTISE_WARPS];
  wait_for_previous_kernels();
  const long long start = static_cast<long long>(blockIdx.x) * width;
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  uint4 words[QUANTISE_CHUNKS];
#pragma unroll
  for (int i = 0; i < QUANTISE_CHUNKS; ++i) {
    const int column = (thread + threads * i) * CHUNK;
    words[i] = load_16(x + start + column, column < width);
  }
  float values[QUANTISE_CHUNKS][CHUNK], largest = 0.0f;
#pragma unroll
  for (int i = 0; i < QUANTISE_CHUNKS; ++i) {
    unpack_chunk(values[i], words[i]);
    largest = largest_of(largest, values[i]);
  }
  largest = warp_max(largest);
  if (threads > WARP) {
    if (thread % WARP == 0) of_warps[thread / WARP] = largest;
    block_barrier();
    for (int warp = 0; warp < threads / WARP; ++warp) largest = fmaxf(largest, of_warps[warp]);
  }
  const RowScale row = row_scale(largest);
#pragma unroll
  for (int i = 0; i < QUANTISE_CHUNKS; ++i) {
    const int column = (thread + threads * i) * CHUNK;
    if (column < width) store_e4m3_chunk(quantised + start + column, values[i], row.inverse);
  }
  if (thread == 0) scales[blockIdx.x] = row.scale;
}
#endif
