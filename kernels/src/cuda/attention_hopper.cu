// Attention for head size 64 with warpgroup instructions (wgmma), for sm_90a.
//
// Each of a block's two warpgroups owns 64 queries. The matrix units read queries, keys and values
// from shared memory, so a thread holds little and two blocks fit on a multiprocessor: while one
// waits for its products, the other computes exponentials. (Queries in registers would be one more
// operand to keep over the loop, and ptxas before 13.1 lets other values overwrite them.)
//
// A step takes 128 keys, in two halves, while the keys and values of the next step are copied. The
// last step of an item copies the next item's queries and first keys and values.
#include "attention.cuh"

#if defined(POLYSIFT_SIM) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "hopper.cuh"

struct GroupTile {
  static constexpr int HEAD = 64;
  static constexpr int THREADS = 8 * WARP;

  // Returns the offset of chunk `chunk` of row `row`, in the order that the matrix units expect.
  DEVICE int place(int row, int chunk) { return row * HEAD + (chunk ^ row % 8) * 8; }
};

constexpr int STEP_KEYS = 128;

// Every operand has two buffers: one to compute with and one to copy to.
struct alignas(1024) AttentionMemory {
  bf16 queries[2][QUERIES * 64];
  bf16 keys[2][STEP_KEYS * 64];
  bf16 values[2][STEP_KEYS * 64];
};

// Adds 64 keys and values from `first_key` on, as far as they are before `end`, for the 64 queries
// from `first_query` on.
template <bool WINDOW>
DEVICE void group_step(Sums<64> &sums, const bf16 *queries, const bf16 *keys, const bf16 *values,
                       int first_key, int end, int first_query, int window, float scale_log2) {
  if (WINDOW && !window_meets_any(first_key, first_query, 64, window)) return;
  float scores[KEY_FRAGMENTS][4];
  warpgroup_fence();
#pragma unroll
  for (int d = 0; d < 4; ++d)
    warpgroup_multiply(scores, matrix_descriptor(queries, d * 32), matrix_descriptor(keys, d * 32),
                       d > 0);
  warpgroup_commit();
  warpgroup_wait<0>();
  if (WINDOW && !window_meets_all(first_key, first_query, 64, window)) {
    const int row = static_cast<int>(threadIdx.x) % (4 * WARP) / WARP * 16 + threadIdx.x % WARP / 4;
    mask_window(scores, first_key, end, first_query + row, window);
  } else if (first_key + KEYS > end) {
    mask_keys(scores, first_key, end);
  }
  update_softmax(scores, sums, scale_log2);
  unsigned probabilities[KEYS / 16][4];
  pack_probabilities(probabilities, scores);
  warpgroup_fence();
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k)
    warpgroup_multiply_rows(sums.values, probabilities[k],
                            matrix_descriptor(values, k * 2 * SWIZZLE_BYTES));
  warpgroup_commit();
  warpgroup_wait<0>();
}

// Computes the same result as `attention` of attention.cu.
template <bool WINDOW>
DEVICE void group_attention(const bf16 *qkv, Context context, const int *tiles, const int *counts,
                            int heads, float scale_log2, int window) {
  DYNAMIC_SHARED(attention_memory, sizeof(AttentionMemory));
  auto &memory = *reinterpret_cast<AttentionMemory *>(attention_memory);
  wait_for_previous_kernels();
  // Addresses that are uniform need no moves to the uniform registers that products take them from.
  const int warp = uniform_over_warp(threadIdx.x / WARP);
  const int group_first = warp / 4 * 64, warp_first = warp * 16;
  const int width = heads * 64, row_stride = 3 * width, num_items = counts[1] * heads;
  const auto copy_step = [&](const Item &item, int first_key, int buffer) {
    copy_rows<STEP_KEYS, GroupTile>(memory.keys[buffer], item.queries + width, row_stride, first_key,
                                    keys_of<WINDOW>(item, window).end);
    copy_rows<STEP_KEYS, GroupTile>(memory.values[buffer], item.queries + 2 * width, row_stride,
                                    first_key, keys_of<WINDOW>(item, window).end);
  };
  const auto copy_first = [&](const Item &item, int queries, int buffer) {
    copy_rows<QUERIES, GroupTile>(memory.queries[queries], item.queries, row_stride,
                                  item.first_query, item.length);
    copy_step(item, keys_of<WINDOW>(item, window).first, buffer);
  };

  int index = blockIdx.x, buffer = 0, own = 0;
  if (index >= num_items) return;
  Item item = item_at<64>(index, qkv, tiles, heads);
  copy_first(item, own, buffer);
  copy_async_commit();
  for (; index < num_items; index += gridDim.x, own ^= 1) {
    Sums<64> sums;
    sums.reset();
    // A group without queries still copies and waits with the other.
    const bool active = item.first_query + group_first < item.length;
    const int next = index + static_cast<int>(gridDim.x);
    const Keys keys = keys_of<WINDOW>(item, window);
    for (int first_key = keys.first; first_key < keys.end; first_key += STEP_KEYS, buffer ^= 1) {
      copy_async_wait<0>();
      shared_memory_fence();
      block_barrier();  // all threads see this step, and none still reads the other buffer
      if (first_key + STEP_KEYS < keys.end) {
        copy_step(item, first_key + STEP_KEYS, buffer ^ 1);
      } else if (next < num_items) {
        copy_first(item_at<64>(next, qkv, tiles, heads), own ^ 1, buffer ^ 1);
      }
      copy_async_commit();
#pragma unroll 1
      for (int half = 0; half < STEP_KEYS; half += KEYS) {
        if (!active || first_key + half >= keys.end) break;
        group_step<WINDOW>(sums, memory.queries[own] + group_first * 64,
                           memory.keys[buffer] + half * 64, memory.values[buffer] + half * 64,
                           first_key + half, keys.end, item.first_query + group_first, window,
                           scale_log2);
      }
    }
    if (active) {
      // The group's products have read the queries. Until the next barrier of the block, only this
      // warp uses its rows.
      warpgroup_barrier(1 + group_first / 64);
      write_rows<GroupTile>(sums, memory.queries[own], warp_first, item, context, width);
    }
    // Read once more, as registers are few.
    if (next < num_items) item = item_at<64>(next, qkv, tiles, heads);
  }
}

KERNEL __launch_bounds__(GroupTile::THREADS, 2)
    attention_64_hopper(const bf16 *qkv, void *context, float inverse, const int *tiles,
                        const int *counts, int heads, float scale_log2) {
  group_attention<false>(qkv, {context, inverse}, tiles, counts, heads, scale_log2, 0);
}
KERNEL __launch_bounds__(GroupTile::THREADS, 2)
    attention_window_64_hopper(const bf16 *qkv, void *context, float inverse, const int *tiles,
                               const int *counts, int heads, float scale_log2, int window) {
  group_attention<true>(qkv, {context, inverse}, tiles, counts, heads, scale_log2, window);
}
#endif
