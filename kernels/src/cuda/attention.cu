// Attention with warp instructions (mma.sync), for every GPU from sm_80 on.
//
// Each of 4 warps owns 32 queries, so that a fragment of keys or values read from shared memory
// serves two matrix instructions.
#include "attention.cuh"

template <int D>
struct WarpTile {
  static constexpr int HEAD = D;
  static constexpr int THREADS = 4 * WARP;
  // Rows are 16 bytes longer than their data: eight consecutive ones start in different banks.
  static constexpr int ROW = D + 8;

  // Returns the offset of 16-byte chunk `chunk` of row `row`.
  DEVICE int place(int row, int chunk) { return row * ROW + chunk * 8; }
};

constexpr int WARP_FRAGMENTS = 2;  // fragments of 16 queries per warp

// A thread's part of its warp's queries.
template <int D>
struct Queries {
  unsigned fragments[WARP_FRAGMENTS][D / 16][4];
  Sums<D> sums[WARP_FRAGMENTS];
};

template <int D>
DEVICE void begin(Queries<D> &state, const bf16 *rows) {
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * (16 * WARP_FRAGMENTS);
#pragma unroll
  for (int f = 0; f < WARP_FRAGMENTS; ++f) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
      load_matrices(state.fragments[f][d],
                    rows + WarpTile<D>::place(first + f * 16 + lane % 16, d * 2 + lane / 16));
    state.sums[f].reset();
  }
}

// Computes scores[f][n] = queries of fragment f times keys 8n to 8n + 7.
template <int D>
DEVICE void multiply_keys(float (&scores)[WARP_FRAGMENTS][KEY_FRAGMENTS][4],
                          const Queries<D> &state, const bf16 *keys) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n) {
#pragma unroll
    for (int f = 0; f < WARP_FRAGMENTS; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[f][n][i] = 0.0f;
#pragma unroll
    for (int d = 0; d < D / 32; ++d) {
      unsigned key[4];
      load_matrices(key, keys + WarpTile<D>::place(n * 8 + lane % 8, d * 4 + lane / 8));
#pragma unroll
      for (int f = 0; f < WARP_FRAGMENTS; ++f) {
        multiply_add(scores[f][n], state.fragments[f][2 * d], key[0], key[1]);
        multiply_add(scores[f][n], state.fragments[f][2 * d + 1], key[2], key[3]);
      }
    }
  }
}

// Adds the probabilities of each fragment times the values to the fragment's sums.
template <int D>
DEVICE void multiply_values(Queries<D> &state,
                            const unsigned (&probabilities)[WARP_FRAGMENTS][KEYS / 16][4],
                            const bf16 *values) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      unsigned value[4];
      load_matrices_transposed(value,
                               values + WarpTile<D>::place(k * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
      for (int f = 0; f < WARP_FRAGMENTS; ++f) {
        multiply_add(state.sums[f].values[2 * d], probabilities[f][k], value[0], value[1]);
        multiply_add(state.sums[f].values[2 * d + 1], probabilities[f][k], value[2], value[3]);
      }
    }
  }
}

// Adds the keys and values in `first_key`..`end` for the warp's queries from `first_query` on.
template <int D, bool WINDOW>
DEVICE void step(Queries<D> &state, const bf16 *keys, const bf16 *values, int first_key, int end,
                 int first_query, int window, float scale_log2) {
  constexpr int ROWS = 16 * WARP_FRAGMENTS;
  if (WINDOW && !window_meets_any(first_key, first_query, ROWS, window)) return;
  const bool at_edge = WINDOW && !window_meets_all(first_key, first_query, ROWS, window);
  float scores[WARP_FRAGMENTS][KEY_FRAGMENTS][4];
  multiply_keys(scores, state, keys);
  unsigned probabilities[WARP_FRAGMENTS][KEYS / 16][4];
#pragma unroll
  for (int f = 0; f < WARP_FRAGMENTS; ++f) {
    if (at_edge) {
      const int lane = threadIdx.x % WARP;
      mask_window(scores[f], first_key, end, first_query + f * 16 + lane / 4, window);
    } else if (first_key + KEYS > end) {
      mask_keys(scores[f], first_key, end);
    }
    update_softmax(scores[f], state.sums[f], scale_log2);
    pack_probabilities(probabilities[f], scores[f]);
  }
  multiply_values(state, probabilities, values);
}

// Any grid works. context is [tokens, heads * D]; scale_log2 = log2(e) / sqrt(D), as the softmax
// uses base 2; `window` is used only with WINDOW.
template <int D, bool WINDOW>
DEVICE void attention(const bf16 *qkv, Context context, const int *tiles, const int *counts,
                      int heads, float scale_log2, int window) {
  using Tile = WarpTile<D>;
  constexpr int TILE_VALUES = KEYS * Tile::ROW;
  alignas(16) SHARED bf16 keys[2 * TILE_VALUES];
  alignas(16) SHARED bf16 values[2 * TILE_VALUES];
  // Queries and results pass through the memory of the keys.
  static_assert(2 * KEYS == QUERIES, "two tiles of keys are as many rows as one of queries");
  bf16 *rows = keys;

  wait_for_previous_kernels();
  const int warp_first = threadIdx.x / WARP * (16 * WARP_FRAGMENTS);
  const int width = heads * D, row_stride = 3 * width, num_items = counts[1] * heads;
  for (int index = blockIdx.x; index < num_items; index += gridDim.x) {
    const Item item = item_at<D>(index, qkv, tiles, heads);
    const int length = item.length;
    // A warp without queries still copies and waits with the others.
    const bool active = item.first_query + warp_first < length;

    copy_rows<QUERIES, Tile>(rows, item.queries, row_stride, item.first_query, length);
    copy_async_commit();
    copy_async_wait<0>();
    block_barrier();
    Queries<D> state;
    begin(state, rows);
    block_barrier();  // the queries are in registers: keys may overwrite them

    const Keys own = keys_of<WINDOW>(item, window);
    const int num_steps = (own.end - own.first + KEYS - 1) / KEYS;
    const auto copy = [&](int number) {
      const int at = number % 2 * TILE_VALUES, first = own.first + number * KEYS;
      copy_rows<KEYS, Tile>(keys + at, item.queries + width, row_stride, first, own.end);
      copy_rows<KEYS, Tile>(values + at, item.queries + 2 * width, row_stride, first, own.end);
      copy_async_commit();
    };
    copy(0);
    for (int number = 0; number < num_steps; ++number) {
      copy_async_wait<0>();
      block_barrier();  // all threads see this tile, and none still reads the other buffer
      if (number + 1 < num_steps) copy(number + 1);
      const int at = number % 2 * TILE_VALUES;
      if (active)
        step<D, WINDOW>(state, keys + at, values + at, own.first + number * KEYS, own.end,
                        item.first_query + warp_first, window, scale_log2);
    }
    block_barrier();
    if (active) {
#pragma unroll
      for (int f = 0; f < WARP_FRAGMENTS; ++f)
        write_rows<Tile>(state.sums[f], rows, warp_first + f * 16, item, context, width);
    }
    block_barrier();  // the next item's queries overwrite the results
  }
}

// Two blocks are launched per multiprocessor (attention.rs), so registers for more would be unused.
#define ATTENTION_KERNELS(D)                                                                       \
  KERNEL __launch_bounds__(WarpTile<D>::THREADS, 2)                                                \
      attention_##D(const bf16 *qkv, void *context, float inverse, const int *tiles,               \
                    const int *counts, int heads, float scale_log2) {                              \
    attention<D, false>(qkv, {context, inverse}, tiles, counts, heads, scale_log2, 0);             \
  }                                                                                                \
  KERNEL __launch_bounds__(WarpTile<D>::THREADS, 2)                                                \
      attention_window_##D(const bf16 *qkv, void *context, float inverse, const int *tiles,        \
                           const int *counts, int heads, float scale_log2, int window) {           \
    attention<D, true>(qkv, {context, inverse}, tiles, counts, heads, scale_log2, window);         \
  }
ATTENTION_KERNELS(32)
ATTENTION_KERNELS(64)
