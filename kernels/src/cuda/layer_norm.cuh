// Code that the layer norm kernels share, for every input and output.
//
// A warp has two rows, so that gamma and beta are read once for both; a lane has the chunks
// `lane + 32 * i` of each. All inputs of a row are requested before any of them is used. The rows
// stay in registers between the mean and the variance (two passes, f32, biased variance as in
// PyTorch). A row's result depends on that row alone. CPU twin: kernels/src/cpu/layer_norm.rs.
#pragma once
#include "chunk.cuh"

constexpr int NORM_ROWS = 2;   // rows per warp
constexpr int NORM_WARPS = 4;  // warps per block
constexpr int NORM_THREADS = NORM_WARPS * WARP;

// Two rows of up to 256 * N values; with EXACT they have 256 * N values and need no guards.
template <int N, bool EXACT>
struct Rows {
  int width;
  int index[NORM_ROWS];  // contains the last row twice if the number of rows is odd
  float values[NORM_ROWS][N][CHUNK];
};

DEVICE int column_of(int chunk) {
  return (static_cast<int>(threadIdx.x) % WARP + WARP * chunk) * CHUNK;
}

template <int N, bool EXACT>
DEVICE bool has_chunk(const Rows<N, EXACT> &own, int chunk) {
  return EXACT || column_of(chunk) < own.width;
}

// Assigns this warp its rows; returns false if there are none.
template <int N, bool EXACT>
DEVICE bool take_rows(Rows<N, EXACT> &own, int rows, int width) {
  wait_for_previous_kernels();
  const int warp = static_cast<int>(blockIdx.x) * NORM_WARPS + static_cast<int>(threadIdx.x) / WARP;
  own.width = EXACT ? 256 * N : width;
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) own.index[r] = min(warp * NORM_ROWS + r, rows - 1);
  return warp * NORM_ROWS < rows;
}

// Reads this lane's chunks of the rows `index` of `from`.
template <int N, bool EXACT>
DEVICE void load_rows(uint4 (&words)[NORM_ROWS][N], const Rows<N, EXACT> &own,
                      const int (&index)[NORM_ROWS], const bf16 *from) {
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) {
    const bf16 *row = from + static_cast<long long>(index[r]) * own.width;
#pragma unroll
    for (int i = 0; i < N; ++i) words[r][i] = load_16(row + column_of(i), has_chunk(own, i));
  }
}

// Reads this lane's chunks of f32 rows, two words per chunk.
template <int N, bool EXACT>
DEVICE void load_rows(uint4 (&words)[NORM_ROWS][N][2], const Rows<N, EXACT> &own,
                      const int (&index)[NORM_ROWS], const float *from) {
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) {
    const float *row = from + static_cast<long long>(index[r]) * own.width;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      words[r][i][0] = load_16(row + column_of(i), has_chunk(own, i));
      words[r][i][1] = load_16(row + column_of(i) + CHUNK / 2, has_chunk(own, i));
    }
  }
}

template <int N, bool EXACT>
DEVICE void read_rows(Rows<N, EXACT> &own, const bf16 *x) {
  uint4 words[NORM_ROWS][N];
  load_rows(words, own, own.index, x);
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r)
#pragma unroll
    for (int i = 0; i < N; ++i) unpack_chunk(own.values[r][i], words[r][i]);
}

// Sums the embeddings of each row's token and position.
template <int N, bool EXACT>
DEVICE void read_embeddings(Rows<N, EXACT> &own, const int *input_ids, const int *position_ids,
                            const bf16 *words, const float *positions) {
  int ids[NORM_ROWS], places[NORM_ROWS];
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) {
    ids[r] = input_ids[own.index[r]];
    places[r] = position_ids[own.index[r]];
  }
  uint4 of_words[NORM_ROWS][N], of_positions[NORM_ROWS][N][2];
  load_rows(of_words, own, ids, words);
  load_rows(of_positions, own, places, positions);
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      unpack_chunk(own.values[r][i], of_positions[r][i][0], of_positions[r][i][1]);
      add_chunk(own.values[r][i], of_words[r][i]);
    }
}

// Adds the rows of `update` to the f32 states, and keeps the sums. If `first`, the states so far
// are the rows of `hidden`, whatever `states` holds.
template <int N, bool EXACT>
DEVICE void add_rows(Rows<N, EXACT> &own, const bf16 *update, float *states, const bf16 *hidden,
                     bool first) {
  uint4 updates[NORM_ROWS][N];
  load_rows(updates, own, own.index, update);
  if (first) {
    read_rows(own, hidden);
  } else {
    uint4 words[NORM_ROWS][N][2];
    load_rows(words, own, own.index, static_cast<const float *>(states));
#pragma unroll
    for (int r = 0; r < NORM_ROWS; ++r)
#pragma unroll
      for (int i = 0; i < N; ++i)
        unpack_chunk(own.values[r][i], words[r][i][0], words[r][i][1]);
  }
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) {
    float *row = states + static_cast<long long>(own.index[r]) * own.width;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      add_chunk(own.values[r][i], updates[r][i]);
      store_chunk(row + column_of(i), own.values[r][i], has_chunk(own, i));
    }
  }
}

// Computes the mean of each row's `sums` over the lanes, in a fixed order, for every lane.
DEVICE void warp_means(float (&sums)[NORM_ROWS], float share) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2)
#pragma unroll
    for (int r = 0; r < NORM_ROWS; ++r) sums[r] += shuffle_xor(sums[r], mask);
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) sums[r] *= share;
}

template <int N, bool EXACT>
DEVICE void normalise(Rows<N, EXACT> &own, const float *gamma, const float *beta, float eps) {
  const float share = 1.0f / static_cast<float>(own.width);
  float mean[NORM_ROWS] = {}, variance[NORM_ROWS] = {}, scale[NORM_ROWS];
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r)
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j < CHUNK; ++j) mean[r] += own.values[r][i][j];
  warp_means(mean, share);
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      // Chunks past the end hold zeros, which are not values of the row.
      const float centre = has_chunk(own, i) ? mean[r] : 0.0f;
#pragma unroll
      for (int j = 0; j < CHUNK; ++j)
        variance[r] += (own.values[r][i][j] - centre) * (own.values[r][i][j] - centre);
    }
  warp_means(variance, share);
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) scale[r] = rsqrtf(variance[r] + eps);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool valid = has_chunk(own, i);
    const float *weight = gamma + column_of(i), *bias = beta + column_of(i);
    float weights[CHUNK], biases[CHUNK];
    unpack_chunk(weights, load_16(weight, valid), load_16(weight + CHUNK / 2, valid));
    unpack_chunk(biases, load_16(bias, valid), load_16(bias + CHUNK / 2, valid));
#pragma unroll
    for (int r = 0; r < NORM_ROWS; ++r)
#pragma unroll
      for (int j = 0; j < CHUNK; ++j)
        own.values[r][i][j] =
            fmaf((own.values[r][i][j] - mean[r]) * scale[r], weights[j], biases[j]);
  }
}

template <int N, bool EXACT>
DEVICE void write_rows(const Rows<N, EXACT> &own, bf16 *out, e4m3 *copy, float inverse) {
#pragma unroll
  for (int r = 0; r < NORM_ROWS; ++r) {
    bf16 *row = out + static_cast<long long>(own.index[r]) * own.width;
#pragma unroll
    for (int i = 0; i < N; ++i)
      store_chunk(row + column_of(i), own.values[r][i], has_chunk(own, i));
  }
  if constexpr (HAS_E4M3) {
    if (!copy) return;
#pragma unroll
    for (int r = 0; r < NORM_ROWS; ++r) {
      e4m3 *row = copy + static_cast<long long>(own.index[r]) * own.width;
#pragma unroll
      for (int i = 0; i < N; ++i)
        store_chunk(row + column_of(i), own.values[r][i], inverse, has_chunk(own, i));
    }
  }
}

// Expands KERNELS(name, N, EXACT) for every width: up to 512, 768, 1,024, and others up to 1,024.
// NORM_BOUNDS sets how many blocks per multiprocessor hold their rows in registers.
#define NORM_BOUNDS(N) __launch_bounds__(NORM_THREADS, N == 4 ? 3 : 4)
#define FOR_NORM_WIDTHS(KERNELS) \
  KERNELS(upto_512, 2, false)    \
  KERNELS(768, 3, true)          \
  KERNELS(1024, 4, true)         \
  KERNELS(upto_1024, 4, false)
