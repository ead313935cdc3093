// Attention over packed sequences: softmax(q k^T / sqrt(D)) v for every head, without padding or
// scores in device memory (the online softmax of FlashAttention, Dao et al. 2022, algorithm 1).
//
// A unit of work (Item) is a tile of 128 queries of one sequence and one head. Scores and sums stay
// in registers. Keys and values pass through shared memory; the next ones load while the present
// ones are used. Matrix products are bf16 with f32 sums; the softmax is f32.
//
// Keys past the end of a sequence count as zeros and are masked: the memory there belongs to a
// neighbour, and its values (NaN included) must not reach this sequence.
//
// With WINDOW, a query attends only to keys at most `window` places before and after it. A tile
// takes the keys from `window` before its first query to `window` after its last, and masks edges.
//
// The kernels of attention.cu and attention_hopper.cu share this file.
#pragma once
#include "device.cuh"

constexpr int QUERIES = 128;  // queries per tile
constexpr int KEYS = 64;      // keys with scores in registers at a time
constexpr int KEY_FRAGMENTS = KEYS / 8;

// A unit of work. `tiles` holds counts[1] of {first token of the sequence, its length, first query,
// 0}; qkv is [tokens, 3 * heads * D].
struct Item {
  const bf16 *queries;  // row of `start`; its keys and values follow one and two `width` later
  long long start;      // first token of the sequence
  int length, first_query;
  int column;  // first column of the head
};

template <int D>
DEVICE Item item_at(int index, const bf16 *qkv, const int *tiles, int heads) {
  const int4 tile = reinterpret_cast<const int4 *>(tiles)[index / heads];
  const int column = index % heads * D;
  return {qkv + static_cast<long long>(tile.x) * (3 * heads * D) + column, tile.x, tile.y, tile.z,
          column};
}

// Keys that any query of an item attends to; single queries may miss some of them.
struct Keys {
  int first, end;
};
template <bool WINDOW>
DEVICE Keys keys_of(const Item &item, int window) {
  if (!WINDOW) return {0, item.length};
  return {max(0, item.first_query - window), min(item.length, item.first_query + QUERIES + window)};
}

// Starts copying `ROWS` rows into a tile, from row `first` on; rows from `length` on become zeros.
// Offsets within one sequence fit 32 bits. `Tile` defines the places in the tile.
template <int ROWS, class Tile>
DEVICE void copy_rows(bf16 *to, const bf16 *from, int row_stride, int first, int length) {
  constexpr int CHUNKS = Tile::HEAD / 8;
  constexpr int STEP = Tile::THREADS / CHUNKS;  // rows that the block copies at a time
  const int own = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
  const bf16 *source = from + (first + own) * row_stride + chunk * 8;
#pragma unroll
  for (int row = 0; row < ROWS; row += STEP) {
    copy_async_16(to + Tile::place(own + row, chunk), source, first + own + row < length);
    source += STEP * row_stride;
  }
}

// A finite value below every scaled score, so that masked keys get no weight before any key is met.
constexpr float LOWEST = -3e38f;
// The logarithm to base 2 of the largest probability that is not scaled down: see update_softmax.
constexpr float MOST_LOG2 = 8.0f;

// A thread's part of the result for 16 queries of its warp: rows lane / 4 and lane / 4 + 8.
template <int D>
struct Sums {
  float values[D / 8][4];
  // Probabilities are 2^(score * scale_log2 - reference) and not divided by their sum, `total`.
  float reference[2], total[2];

  DEVICE_MEMBER void reset() {
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) values[d][i] = 0.0f;
#pragma unroll
    for (int h = 0; h < 2; ++h) reference[h] = LOWEST, total[h] = 0.0f;
  }
};

// Raises the references of queries that have found a score too far above them, and scales their
// sums. This is rare after the first keys: a sum of probabilities up to 2^8 is as precise. Only a
// query's own scores decide, as those of the warp's other queries may be of another sequence.
template <int D>
DEVICE void raise_references(const float (&scores)[KEY_FRAGMENTS][4], Sums<D> &sums,
                             float scale_log2) {
  float largest[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most[2];  // of the even and of the odd fragments: two short chains
#pragma unroll
    for (int n = 0; n < KEY_FRAGMENTS; ++n) {
      const float own = fmaxf(scores[n][2 * h], scores[n][2 * h + 1]);
      most[n % 2] = n < 2 ? own : fmaxf(most[n % 2], own);
    }
    largest[h] = fmaxf(most[0], most[1]);
  }
  const auto is_above = [&](int h) {
    return fmaf(largest[h], scale_log2, -sums.reference[h]) > MOST_LOG2;
  };
  if (!any_lane(is_above(0) || is_above(1))) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // The four lanes of a quad share the query.
    largest[h] = fmaxf(largest[h], shuffle_xor(largest[h], 1));
    largest[h] = fmaxf(largest[h], shuffle_xor(largest[h], 2));
    const float reference = is_above(h) ? largest[h] * scale_log2 : sums.reference[h];
    const float shrink = exp2_approximate(sums.reference[h] - reference);
    sums.reference[h] = reference;
    sums.total[h] *= shrink;
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
      sums.values[d][2 * h] *= shrink, sums.values[d][2 * h + 1] *= shrink;
  }
}

// Turns scores into probabilities and adds them to the totals.
template <int D>
DEVICE void update_softmax(float (&scores)[KEY_FRAGMENTS][4], Sums<D> &sums, float scale_log2) {
  raise_references(scores, sums, scale_log2);
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[n][i] = exp2_approximate(fmaf(scores[n][i], scale_log2, -sums.reference[i / 2]));
      sums.total[i / 2] += scores[n][i];
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

// Gives no weight to keys that a query does not attend to: those further than `window` from it, and
// those from `end` on. `query` belongs to the first of this thread's two rows.
DEVICE void mask_window(float (&scores)[KEY_FRAGMENTS][4], int first_key, int end, int query,
                        int window) {
  const int own = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int from = query + 8 * h - window, to = min(end, query + 8 * h + window + 1);
#pragma unroll
    for (int n = 0; n < KEY_FRAGMENTS; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = own + n * 8 + i;
        if (key < from || key >= to) scores[n][2 * h + i] = -INFINITY;
      }
  }
}

// Returns true if any of the `rows` queries from `query` on attends to any of the KEYS keys from
// `first_key` on; the second function, if all of them attend to all.
DEVICE bool window_meets_any(int first_key, int query, int rows, int window) {
  return first_key + KEYS > query - window && first_key < query + rows + window;
}
DEVICE bool window_meets_all(int first_key, int query, int rows, int window) {
  return first_key >= query + rows - 1 - window && first_key + KEYS <= query + window + 1;
}

// Packs probabilities as the left operand of the product with the values: two fragments of a result
// have the layout of one fragment of an operand.
DEVICE void pack_probabilities(unsigned (&packed)[KEYS / 16][4],
                               const float (&probabilities)[KEY_FRAGMENTS][4]) {
#pragma unroll
  for (int n = 0; n < KEY_FRAGMENTS; ++n) {
    packed[n / 2][n % 2 * 2] = pack_bf16(probabilities[n][0], probabilities[n][1]);
    packed[n / 2][n % 2 * 2 + 1] = pack_bf16(probabilities[n][2], probabilities[n][3]);
  }
}

// Where results go: rows [tokens, heads * D] of bf16, or times `inverse` in e4m3 if that is not 0.
struct Context {
  void *rows;
  float inverse;
};

// Writes the sums of the warp's 16 queries, times `scale` of each of the thread's two rows, to
// `context` of bf16 or with NARROW of e4m3; see write_rows.
template <bool NARROW, class Tile, int D>
DEVICE void write_rows_as(const Sums<D> &sums, const float (&scale)[2], bf16 *rows, int first_row,
                          const Item &item, unsigned char *context, int width) {
  constexpr int BYTES = NARROW ? 1 : 2;   // of a value
  constexpr int CHUNKS = D * BYTES / 16;  // of a row
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const int byte = d * 8 * BYTES;  // of the row, where the quad's values start
      bf16 *chunk = rows + Tile::place(first_row + h * 8 + lane / 4, byte / 16);
      unsigned char *to =
          reinterpret_cast<unsigned char *>(chunk) + byte % 16 + lane % 4 * 2 * BYTES;
      const float left = sums.values[d][2 * h] * scale[h];
      const float right = sums.values[d][2 * h + 1] * scale[h];
      if constexpr (NARROW)
        *reinterpret_cast<unsigned short *>(to) =
            static_cast<unsigned short>(pack_e4m3(left, right));
      else
        *reinterpret_cast<unsigned *>(to) = pack_bf16(left, right);
    }
  warp_barrier();
#pragma unroll
  for (int i = 0; i < 16 * CHUNKS / WARP; ++i) {
    const int row = first_row + (i * WARP + lane) / CHUNKS, chunk = (i * WARP + lane) % CHUNKS;
    if (item.first_query + row >= item.length) continue;
    const long long at = (item.start + item.first_query + row) * width + item.column;
    reinterpret_cast<uint4 *>(context + at * BYTES)[chunk] =
        *reinterpret_cast<const uint4 *>(rows + Tile::place(row, chunk));
  }
}

// Divides the sums of the warp's 16 queries by their totals and writes them to `context`. They pass
// through 16 rows of the tile `rows` in shared memory, from `first_row` on, which nothing else uses
// now. The tile starts at the item's first query.
template <class Tile, int D = Tile::HEAD>
DEVICE void write_rows(const Sums<D> &sums, bf16 *rows, int first_row, const Item &item,
                       Context context, int width) {
  const bool narrow = HAS_E4M3 && context.inverse != 0.0f;
  float scale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sums.total[h];
    total += shuffle_xor(total, 1);
    total += shuffle_xor(total, 2);
    scale[h] = (narrow ? context.inverse : 1.0f) / total;
  }
  auto *to = static_cast<unsigned char *>(context.rows);
  if (narrow)
    write_rows_as<true, Tile>(sums, scale, rows, first_row, item, to, width);
  else
    write_rows_as<false, Tile>(sums, scale, rows, first_row, item, to, width);
}
