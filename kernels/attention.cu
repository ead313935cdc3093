// Attention over packed sequences: softmax(q k^T / sqrt(D)) v for every head, nothing padded and no
// score ever in device memory (the online softmax of FlashAttention, Dao et al. 2022, algorithm 1).
//
// A work item is a tile of 128 queries of one sequence and one head. Each of 4 warps owns 32
// queries: their fragments, scores and sums stay in registers, so that a fragment of keys or
// values read from shared memory serves two matrix instructions. Keys and values come in tiles of
// 64, the next one loading while the present one is used. Matrix products are bf16 with f32 sums;
// the softmax is f32. Rows of shared memory are 16 bytes longer than their data: eight
// consecutive rows then start in different banks.
//
// Keys past the end of a sequence count as zeros and are masked: what follows in memory belongs to
// a neighbour, whose values (NaN included) must not reach this sequence.
#include "device.cuh"

constexpr int QUERIES = 128;      // of a tile
constexpr int KEYS = 64;          // of a step
constexpr int ATTENTION_WARPS = 4;
constexpr int ATTENTION_THREADS = ATTENTION_WARPS * WARP;
constexpr int FRAGMENTS = QUERIES / ATTENTION_WARPS / 16;  // of 16 queries, per warp
constexpr int KEY_FRAGMENTS = KEYS / 8;

// Starts copying `ROWS` rows of D values, from row `first` on; rows from `length` on become zeros.
// Offsets within one sequence fit 32 bits.
template <int ROWS, int D, int STRIDE>
DEVICE void copy_rows(bf16 (*to)[STRIDE], const bf16 *from, int row_stride, int first, int length) {
  constexpr int CHUNKS = D / 8;
  constexpr int STEP = ATTENTION_THREADS / CHUNKS;  // rows that the block copies at once
  const int own = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 8;
  const bf16 *source = from + (first + own) * row_stride + column;
#pragma unroll
  for (int row = 0; row < ROWS; row += STEP) {
    const bool valid = first + own + row < length;
    copy_async_16(&to[own + row][column], valid ? source : from, valid);
    source += STEP * row_stride;
  }
}

// scores[f][n] = queries of fragment f times keys 8n..8n+7.
template <int D, int STRIDE>
DEVICE void multiply_keys(float (&scores)[FRAGMENTS][KEY_FRAGMENTS][4],
                          const unsigned (&queries)[FRAGMENTS][D / 16][4],
                          const bf16 (*keys)[STRIDE]) {
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
      load_matrices(key, &keys[n * 8 + lane % 8][d * 32 + lane / 8 * 8]);
#pragma unroll
      for (int f = 0; f < FRAGMENTS; ++f) {
        multiply_add(scores[f][n], queries[f][2 * d], key[0], key[1]);
        multiply_add(scores[f][n], queries[f][2 * d + 1], key[2], key[3]);
      }
    }
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

// sums[f] += probabilities of fragment f times values.
template <int D, int STRIDE>
DEVICE void multiply_values(float (&sums)[FRAGMENTS][D / 8][4],
                            const unsigned (&probabilities)[FRAGMENTS][KEYS / 16][4],
                            const bf16 (*values)[STRIDE]) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      unsigned value[4];
      load_matrices_transposed(value, &values[k * 16 + lane % 16][d * 16 + lane / 16 * 8]);
#pragma unroll
      for (int f = 0; f < FRAGMENTS; ++f) {
        multiply_add(sums[f][2 * d], probabilities[f][k], value[0], value[1]);
        multiply_add(sums[f][2 * d + 1], probabilities[f][k], value[2], value[3]);
      }
    }
  }
}

// The state of a warp's 32 queries.
template <int D>
struct Queries {
  unsigned fragments[FRAGMENTS][D / 16][4];
  float sums[FRAGMENTS][D / 8][4];
  float largest[FRAGMENTS][2];
  float total[FRAGMENTS][2];
};

template <int D, int STRIDE>
DEVICE void begin(Queries<D> &state, const bf16 (*queries)[STRIDE]) {
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * (16 * FRAGMENTS);
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) {
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
      load_matrices(state.fragments[f][d],
                    &queries[first + f * 16 + lane % 16][d * 16 + lane / 16 * 8]);
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) state.sums[f][d][i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) state.largest[f][h] = -INFINITY, state.total[f][h] = 0.0f;
  }
}

// Takes the keys and values from number `first_key` of a sequence of `length` into account.
template <int D, int STRIDE>
DEVICE void step(Queries<D> &state, const bf16 (*keys)[STRIDE], const bf16 (*values)[STRIDE],
                 int first_key, int length, float scale_log2) {
  float scores[FRAGMENTS][KEY_FRAGMENTS][4];
  multiply_keys<D, STRIDE>(scores, state.fragments, keys);
  if (first_key + KEYS > length) {
    const int own = first_key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEY_FRAGMENTS; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (own + n * 8 + i % 2 >= length)
#pragma unroll
          for (int f = 0; f < FRAGMENTS; ++f) scores[f][n][i] = -INFINITY;
  }
  unsigned probabilities[FRAGMENTS][KEYS / 16][4];
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      update_softmax<D>(scores[f], state.sums[f], h, state.largest[f][h], state.total[f][h],
                        scale_log2);
    pack_probabilities(probabilities[f], scores[f]);
  }
  multiply_values<D, STRIDE>(state.sums, probabilities, values);
}

// Divides by the totals and leaves the warp's rows in `out`.
template <int D, int STRIDE>
DEVICE void finish(Queries<D> &state, bf16 (*out)[STRIDE]) {
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * (16 * FRAGMENTS);
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = state.total[f][h];
      total += shuffle_xor(total, 1);
      total += shuffle_xor(total, 2);
      const float scale = 1.0f / total;
      bf16 *row = out[first + f * 16 + h * 8 + lane / 4];
#pragma unroll
      for (int d = 0; d < D / 8; ++d)
        *reinterpret_cast<unsigned *>(row + d * 8 + lane % 4 * 2) =
            pack_bf16(state.sums[f][d][2 * h] * scale, state.sums[f][d][2 * h + 1] * scale);
    }
}

template <int D>
DEVICE void attention(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts,
                      int heads, float scale_log2) {
  constexpr int STRIDE = D + 8;
  alignas(16) SHARED bf16 keys[2][KEYS][STRIDE];
  alignas(16) SHARED bf16 values[2][KEYS][STRIDE];
  // The queries come and the results go through the memory of the keys: two tiles of keys are as
  // many rows as one of queries.
  static_assert(2 * KEYS == QUERIES, "the queries of a tile fill both buffers of the keys");
  bf16(*rows)[STRIDE] = keys[0];

  const int warp_first = threadIdx.x / WARP * (16 * FRAGMENTS);
  const int width = heads * D;
  const int row_stride = 3 * width;
  const int num_items = counts[1] * heads;
  for (int item = blockIdx.x; item < num_items; item += gridDim.x) {
    const int4 tile = reinterpret_cast<const int4 *>(tiles)[item / heads];
    const int start = tile.x, length = tile.y, first_query = tile.z;
    const bf16 *base = qkv + static_cast<long long>(start) * row_stride + item % heads * D;
    // A warp without queries still copies and waits with the others.
    const bool active = first_query + warp_first < length;

    copy_rows<QUERIES, D>(rows, base, row_stride, first_query, length);
    copy_async_commit();
    copy_async_wait<0>();
    block_barrier();
    Queries<D> state;
    begin<D, STRIDE>(state, rows);
    block_barrier();  // the queries are in registers: keys may overwrite them

    const int num_steps = (length + KEYS - 1) / KEYS;
    const auto copy = [&](int index) {
      copy_rows<KEYS, D>(keys[index % 2], base + width, row_stride, index * KEYS, length);
      copy_rows<KEYS, D>(values[index % 2], base + 2 * width, row_stride, index * KEYS, length);
      copy_async_commit();
    };
    copy(0);
    for (int index = 0; index < num_steps; ++index) {
      copy_async_wait<0>();
      block_barrier();  // this tile is here for all, and nobody still reads the other buffer
      if (index + 1 < num_steps) copy(index + 1);
      if (active)
        step<D, STRIDE>(state, keys[index % 2], values[index % 2], index * KEYS, length,
                        scale_log2);
    }
    block_barrier();
    if (active) finish<D, STRIDE>(state, rows);
    block_barrier();
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = 0; i < QUERIES * CHUNKS / ATTENTION_THREADS; ++i) {
      const int chunk = i * ATTENTION_THREADS + static_cast<int>(threadIdx.x);
      const int row = chunk / CHUNKS, column = chunk % CHUNKS * 8;
      if (first_query + row >= length) continue;
      const long long at = static_cast<long long>(start + first_query + row) * width;
      *reinterpret_cast<uint4 *>(context + at + item % heads * D + column) =
          *reinterpret_cast<const uint4 *>(&rows[row][column]);
    }
    block_barrier();  // the next item's queries overwrite the results
  }
}

// `tiles` holds {first token of the sequence, its length, first query, 0} and counts[1] of them;
// any grid. qkv [tokens, 3 * heads * D], context [tokens, heads * D];
// scale_log2 = log2(e) / sqrt(D), as the softmax is taken to base 2.
KERNEL __launch_bounds__(ATTENTION_THREADS)
    attention_32(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts, int heads,
                 float scale_log2) {
  attention<32>(qkv, context, tiles, counts, heads, scale_log2);
}

KERNEL __launch_bounds__(ATTENTION_THREADS)
    attention_64(const bf16 *qkv, bf16 *context, const int *tiles, const int *counts, int heads,
                 float scale_log2) {
  attention<64>(qkv, context, tiles, counts, heads, scale_log2);
}
