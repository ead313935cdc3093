// Attention over packed sequences: softmax(q k^T / sqrt(D)) v for every head, nothing padded and no
// score ever in device memory (the online softmax of FlashAttention, Dao et al. 2022, algorithm 1).
//
// A work item is a tile of 128 queries of one sequence and one head. Queries, scores and sums stay
// in registers; keys and values come through shared memory in tiles of 64, the next one loading
// while the present one is used. Matrix products are bf16 with f32 sums; the softmax is f32.
//
// Keys past the end of a sequence count as zeros and are masked: what follows in memory belongs to
// a neighbour, whose values (NaN included) must not reach this sequence.
//
// The two matrix products are a parameter (`Products`): attention.cu has those of a warp, for any
// card, attention_hopper.cu those of a warpgroup.
#pragma once
#include "device.cuh"

constexpr int QUERIES = 128;  // of a tile
constexpr int KEYS = 64;      // of a step
constexpr int KEY_FRAGMENTS = KEYS / 8;

// Starts copying `ROWS` rows into a tile, from row `first` on; rows from `length` on become zeros.
// Offsets within one sequence fit 32 bits.
template <int ROWS, class Products>
DEVICE void copy_rows(bf16 *to, const bf16 *from, int row_stride, int first, int length) {
  constexpr int CHUNKS = Products::HEAD / 8;
  constexpr int STEP = Products::THREADS / CHUNKS;  // rows that the block copies at once
  const int own = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
  const bf16 *source = from + (first + own) * row_stride + chunk * 8;
#pragma unroll
  for (int row = 0; row < ROWS; row += STEP) {
    const bool valid = first + own + row < length;
    copy_async_16(to + Products::place(own + row, chunk), valid ? source : from, valid);
    source += STEP * row_stride;
  }
}

// Of one query (half `h` of a fragment): scores become probabilities relative to the largest score
// so far; the sums so far are scaled to it.
template <int D>
DEVICE void update_softmax(float (&scores)[KEY_FRAGMENTS][4], float (&sums)[D / 8][4], int h,
                           float &largest, float &total, float scale_log2) {
  float tile_largest = -INFINITY;
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n)
    tile_largest = fmaxf(tile_largest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
  // The four lanes of a quad share the query.
  tile_largest = fmaxf(tile_largest, shuffle_xor(tile_largest, 1));
  tile_largest = fmaxf(tile_largest, shuffle_xor(tile_largest, 2));
  const float now_largest = fmaxf(largest, tile_largest);
  const float shrink = exp2_approximate((largest - now_largest) * scale_log2);
  const float offset = now_largest * scale_log2;
  largest = now_largest;
  total *= shrink;
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n) {
#pragma unroll
    for (int i = 2 * h; i < 2 * h + 2; ++i) {
      scores[n][i] = exp2_approximate(fmaf(scores[n][i], scale_log2, -offset));
      total += scores[n][i];
    }
  }
#pragma unroll
  for (int d = 0; d < D / 8; ++d) {
    sums[d][2 * h] *= shrink;
    sums[d][2 * h + 1] *= shrink;
  }
}

// Keys from `length` on get no weight.
DEVICE void mask_keys(float (&scores)[KEY_FRAGMENTS][4], int first_key, int length) {
  const int own = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (own + n * 8 + i % 2 >= length) scores[n][i] = -INFINITY;
}

// Probabilities as the left operand of the product with the values: the layout of a result is, two
// by two, that of an operand.
DEVICE void pack_probabilities(unsigned (&packed)[KEYS / 16][4],
                               const float (&probabilities)[KEY_FRAGMENTS][4]) {
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n) {
    packed[n / 2][n % 2 * 2] = pack_bf16(probabilities[n][0], probabilities[n][1]);
    packed[n / 2][n % 2 * 2 + 1] = pack_bf16(probabilities[n][2], probabilities[n][3]);
  }
}

// What a thread holds of its warp's queries: F fragments of 16.
template <int D, int F>
struct Queries {
  unsigned fragments[F][D / 16][4];
  float sums[F][D / 8][4];
  float largest[F][2];
  float total[F][2];
};

template <class Products, int D = Products::HEAD, int F = Products::FRAGMENTS>
DEVICE void begin(Queries<D, F> &state, const bf16 *rows) {
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * (16 * F);
#pragma unroll
  for (int f = 0; f < F; ++f) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
      load_matrices(state.fragments[f][d],
                    rows + Products::place(first + f * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) state.sums[f][d][i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) state.largest[f][h] = -INFINITY, state.total[f][h] = 0.0f;
  }
}

// Takes the keys and values from number `first_key` of a sequence of `length` into account.
template <class Products, int D = Products::HEAD, int F = Products::FRAGMENTS>
DEVICE void step(Queries<D, F> &state, const bf16 *keys, const bf16 *values, int first_key,
                 int length, float scale_log2) {
  float scores[F][KEY_FRAGMENTS][4];
  Products::multiply_keys(scores, state.fragments, keys);
  unsigned probabilities[F][KEYS / 16][4];
#pragma unroll
  for (int f = 0; f < F; ++f) {
    if (first_key + KEYS > length) mask_keys(scores[f], first_key, length);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      update_softmax<D>(scores[f], state.sums[f], h, state.largest[f][h], state.total[f][h],
                        scale_log2);
    pack_probabilities(probabilities[f], scores[f]);
  }
  Products::multiply_values(state.sums, probabilities, values);
}

// Divides by the totals and leaves the warp's rows in `rows`.
template <class Products, int D = Products::HEAD, int F = Products::FRAGMENTS>
DEVICE void finish(Queries<D, F> &state, bf16 *rows) {
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * (16 * F);
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = state.total[f][h];
      total += shuffle_xor(total, 1);
      total += shuffle_xor(total, 2);
      const float scale = 1.0f / total;
      const int row = first + f * 16 + h * 8 + lane / 4;
#pragma unroll
      for (int d = 0; d < D / 8; ++d)
        *reinterpret_cast<unsigned *>(rows + Products::place(row, d) + lane % 4 * 2) =
            pack_bf16(state.sums[f][d][2 * h] * scale, state.sums[f][d][2 * h + 1] * scale);
    }
}

// The kernel. `tiles` holds {first token of the sequence, its length, first query, 0} and counts[1]
// of them; any grid. qkv [tokens, 3 * heads * D], context [tokens, heads * D];
// scale_log2 = log2(e) / sqrt(D), as the softmax is taken to base 2.
template <class Products>
DEVICE void attention(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts,
                      int heads, float scale_log2) {
  constexpr int D = Products::HEAD;
  constexpr int TILE_VALUES = KEYS * Products::ROW;
  alignas(1024) SHARED bf16 keys[2 * TILE_VALUES];
  alignas(1024) SHARED bf16 values[2 * TILE_VALUES];
  // The queries come and the results go through the memory of the keys.
  static_assert(2 * KEYS == QUERIES, "two tiles of keys are as many rows as one of queries");
  bf16 *rows = keys;

  // A unit is what computes products together: a warp or a warpgroup.
  constexpr int UNIT_QUERIES = Products::UNIT_THREADS / WARP * 16 * Products::FRAGMENTS;
  const int unit_first = threadIdx.x / Products::UNIT_THREADS * UNIT_QUERIES;
  const int width = heads * D, row_stride = 3 * width;
  const int num_items = counts[1] * heads;
  for (int item = blockIdx.x; item < num_items; item += gridDim.x) {
    const int4 tile = reinterpret_cast<const int4 *>(tiles)[item / heads];
    const int start = tile.x, length = tile.y, first_query = tile.z;
    const bf16 *base = qkv + static_cast<long long>(start) * row_stride + item % heads * D;
    // A unit without queries still copies and waits with the others.
    const bool active = first_query + unit_first < length;

    copy_rows<QUERIES, Products>(rows, base, row_stride, first_query, length);
    copy_async_commit();
    copy_async_wait<0>();
    block_barrier();
    Queries<D, Products::FRAGMENTS> state;
    begin<Products>(state, rows);
    block_barrier();  // the queries are in registers: keys may overwrite them

    const int num_steps = (length + KEYS - 1) / KEYS;
    const auto copy = [&](int index) {
      const int at = index % 2 * TILE_VALUES, first = index * KEYS;
      copy_rows<KEYS, Products>(keys + at, base + width, row_stride, first, length);
      copy_rows<KEYS, Products>(values + at, base + 2 * width, row_stride, first, length);
      copy_async_commit();
    };
    copy(0);
    for (int index = 0; index < num_steps; ++index) {
      copy_async_wait<0>();
      Products::publish();
      block_barrier();  // this tile is here for all, and nobody still reads the other buffer
      if (index + 1 < num_steps) copy(index + 1);
      const int at = index % 2 * TILE_VALUES;
      if (active)
        step<Products>(state, keys + at, values + at, index * KEYS, length, scale_log2);
    }
    block_barrier();
    if (active) finish<Products>(state, rows);
    block_barrier();
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = 0; i < QUERIES * CHUNKS / Products::THREADS; ++i) {
      const int index = i * Products::THREADS + static_cast<int>(threadIdx.x);
      const int row = index / CHUNKS, chunk = index % CHUNKS;
      if (first_query + row >= length) continue;
      const long long at = static_cast<long long>(start + first_query + row) * width;
      *reinterpret_cast<uint4 *>(context + at + item % heads * D + chunk * 8) =
          *reinterpret_cast<const uint4 *>(rows + Products::place(row, chunk));
    }
    block_barrier();  // the next item's queries overwrite the results
  }
}
