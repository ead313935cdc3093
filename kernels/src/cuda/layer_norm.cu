// Layer norm of rows, fused with what comes before it: the sum of embeddings, or the residual.
//
// One warp a row; the row stays in registers between the mean and the variance (two passes, f32,
// biased variance as in PyTorch). A lane holds chunks of 8 values: chunk `lane + 32 * i`.
// CPU twin: kernels/src/layer_norm.rs.
#include "chunk.cuh"

constexpr int ROWS_PER_BLOCK = 8;  // one warp each
constexpr int NORM_THREADS = ROWS_PER_BLOCK * WARP;

// Normalises a row of `width` values that the warp holds and writes it.
template <int N>
DEVICE void normalise_and_store(float (&row)[N][CHUNK], const float *gamma, const float *beta,
                                float eps, bf16 *out, int width) {
  const int lane = threadIdx.x % WARP;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) sum += row[i][j];
  const float mean = warp_sum(sum) / static_cast<float>(width);
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    // Chunks past the end hold zeros, which are no values of the row.
    if ((lane + WARP * i) * CHUNK >= width) continue;
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) squares += (row[i][j] - mean) * (row[i][j] - mean);
  }
  const float variance = warp_sum(squares) / static_cast<float>(width);
  const float scale = 1.0f / sqrtf(variance + eps);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int column = (lane + WARP * i) * CHUNK;
    if (column >= width) continue;
    float weights[CHUNK], biases[CHUNK];
    load_chunk(weights, gamma + column);
    load_chunk(biases, beta + column);
#pragma unroll
    for (int j = 0; j < CHUNK; ++j)
      row[i][j] = fmaf((row[i][j] - mean) * scale, weights[j], biases[j]);
    store_chunk(out + column, row[i]);
  }
}

template <int N>
DEVICE void embed_layer_norm(const int *input_ids, const int *position_ids, const bf16 *words,
                             const float *positions, const float *gamma, const float *beta,
                             float eps, bf16 *hidden, int rows, int width) {
  const int row_index = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / WARP;
  if (row_index >= rows) return;
  const int lane = threadIdx.x % WARP;
  const bf16 *word = words + static_cast<long long>(input_ids[row_index]) * width;
  const float *position = positions + static_cast<long long>(position_ids[row_index]) * width;
  float row[N][CHUNK] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int column = (lane + WARP * i) * CHUNK;
    if (column >= width) continue;
    load_chunk(row[i], position + column);
    add_chunk(row[i], word + column);
  }
  normalise_and_store<N>(row, gamma, beta, eps, hidden + static_cast<long long>(row_index) * width,
                         width);
}

template <int N>
DEVICE void add_layer_norm(const bf16 *x, bf16 *hidden, const float *gamma, const float *beta,
                           float eps, int rows, int width) {
  const int row_index = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / WARP;
  if (row_index >= rows) return;
  const int lane = threadIdx.x % WARP;
  const long long start = static_cast<long long>(row_index) * width;
  float row[N][CHUNK] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int column = (lane + WARP * i) * CHUNK;
    if (column >= width) continue;
    add_chunk(row[i], x + start + column);
    add_chunk(row[i], hidden + start + column);
  }
  normalise_and_store<N>(row, gamma, beta, eps, hidden + start, width);
}

#define LAYER_NORM_KERNELS(N)                                                                      \
  KERNEL __launch_bounds__(NORM_THREADS)                                                           \
      embed_layer_norm_##N(const int *input_ids, const int *position_ids, const bf16 *words,       \
                           const float *positions, const float *gamma, const float *beta,          \
                           float eps, bf16 *hidden, int rows, int width) {                         \
    embed_layer_norm<N>(input_ids, position_ids, words, positions, gamma, beta, eps, hidden, rows, \
                        width);                                                                    \
  }                                                                                                \
  KERNEL __launch_bounds__(NORM_THREADS)                                                           \
      add_layer_norm_##N(const bf16 *x, bf16 *hidden, const float *gamma, const float *beta,       \
                         float eps, int rows, int width) {                                         \
    add_layer_norm<N>(x, hidden, gamma, beta, eps, rows, width);                                   \
  }

// N chunks a lane: rows of up to 256 * N values.
LAYER_NORM_KERNELS(1)
LAYER_NORM_KERNELS(2)
LAYER_NORM_KERNELS(3)
LAYER_NORM_KERNELS(4)
