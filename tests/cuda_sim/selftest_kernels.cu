// Kernels for the tests of the simulator: each shows one property of the device, or breaks a rule.
#include "sim.cuh"

// One matrix instruction on a [16, 16], b [16, 8] and c [16, 8], row by row. The fragments are
// filled as the PTX manual describes them, element by element (mma.m16n8k16 with .bf16).
KERNEL __launch_bounds__(WARP) fragments(const float *a, const float *b, float *c) {
  const int lane = threadIdx.x, group = lane >> 2, in_group = lane % 4;
  float a_elements[8], b_elements[4], acc[4];
  for (int i = 0; i < 8; ++i) {
    const int row = (0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8;
    const int column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
    a_elements[i] = a[row * 16 + column];
  }
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
    b_elements[i] = b[row * 8 + group];
  }
  for (int i = 0; i < 4; ++i) acc[i] = c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
  unsigned a_words[4];
  for (int i = 0; i < 4; ++i) a_words[i] = pack_bf16(a_elements[2 * i], a_elements[2 * i + 1]);
  multiply_add(acc, a_words, pack_bf16(b_elements[0], b_elements[1]),
               pack_bf16(b_elements[2], b_elements[3]));
  for (int i = 0; i < 4; ++i) c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = acc[i];
}

// out[transposed][lane][matrix]: what a lane gets of four 8x8 matrices with the values 0 to 255.
KERNEL __launch_bounds__(WARP) matrices(unsigned *out) {
  alignas(16) SHARED bf16 values[32][8];
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) values[lane][i].bits = static_cast<unsigned short>(lane * 8 + i);
  block_barrier();
  unsigned plain[4], transposed[4];
  load_matrices(plain, values[lane]);
  load_matrices_transposed(transposed, values[lane]);
  for (int i = 0; i < 4; ++i) {
    out[lane * 4 + i] = plain[i];
    out[WARP * 4 + lane * 4 + i] = transposed[i];
  }
}

KERNEL __launch_bounds__(64) shuffles(float *singles, double *doubles, int mask) {
  singles[threadIdx.x] = shuffle_xor(static_cast<float>(threadIdx.x) + 0.5f, mask);
  doubles[threadIdx.x] = warp_sum(1.0 / (1.0 + threadIdx.x));
}

// out[0..4] of what thread 0 sees of its copies: before the wait, with the older group, with both,
// and of a copy that is not valid.
KERNEL __launch_bounds__(WARP) copies(const float *in, float *out) {
  alignas(16) SHARED float landed[3][4];
  if (threadIdx.x != 0) return;
  copy_async_16(landed[0], in, true);
  copy_async_commit();
  copy_async_16(landed[1], in + 4, true);
  copy_async_16(landed[2], in, false);
  copy_async_commit();
  out[0] = landed[0][1];
  copy_async_wait<1>();
  out[1] = landed[0][1];
  out[2] = landed[1][1];
  copy_async_wait<0>();
  out[3] = landed[1][1];
  out[4] = landed[2][1];
}

// Reverses `in` within every block through shared memory; the last warp returns before the barrier
// where `leave` is set. poison[thread] = shared memory as it was found.
KERNEL __launch_bounds__(256) reverse(const float *in, float *out, float *poison, int leave) {
  SHARED float values[256];
  const unsigned thread = threadIdx.x, start = blockIdx.x * blockDim.x;
  poison[start + thread] = values[thread];
  values[thread] = in[start + thread];
  if (leave && thread / WARP == blockDim.x / WARP - 1) return;
  block_barrier();
  out[start + thread] = values[blockDim.x - 1 - thread];
}

// As `reverse`, with the barrier forgotten.
KERNEL __launch_bounds__(256) racy(const float *in, float *out) {
  SHARED float values[256];
  values[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = values[255 - threadIdx.x];
}

KERNEL __launch_bounds__(256) add(float *x, float value, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    x[i] += value;
}

// ---- broken rules ----------------------------------------------------------------------------

KERNEL __launch_bounds__(64) barrier_against_shuffle(float *x) {
  if (threadIdx.x % WARP < 5) block_barrier();
  x[threadIdx.x] = warp_sum(x[threadIdx.x]);
}

KERNEL __launch_bounds__(64) shuffle_without_all(float *x) {
  if (threadIdx.x == 40) return;
  x[threadIdx.x] = warp_sum(x[threadIdx.x]);
}

KERNEL __launch_bounds__(64) different_collectives(float *x) {
  float acc[4] = {};
  const unsigned a[4] = {};
  if (threadIdx.x == 3) multiply_add(acc, a, 0, 0);
  x[threadIdx.x] = warp_sum(x[threadIdx.x] + acc[0]);
}

KERNEL __launch_bounds__(64) forgotten_wait(const float *x) {
  alignas(16) SHARED float landed[4];
  if (threadIdx.x == 0) copy_async_16(landed, x, true);
}

KERNEL __launch_bounds__(64) misaligned_copy(const float *x) {
  alignas(16) SHARED float landed[8];
  if (threadIdx.x == 0) copy_async_16(landed + 1, x, true);
}

KERNEL __launch_bounds__(64) copy_to_global(float *x) {
  if (threadIdx.x == 0) copy_async_16(x, x + 4, true);
}

KERNEL __launch_bounds__(64) read_at(float *x, long long index) {
  if (threadIdx.x == 9) x[0] = x[index];
}

// ---- products of a warpgroup -----------------------------------------------------------------

#include "sim_hopper.cuh"

// Leaves `in` [64, 64] in shared memory as the matrix units expect it; rows of 8 chunks.
DEVICE void copy_tile(bf16 (*tile)[64], const bf16 *in) {
  for (int i = threadIdx.x; i < 512; i += blockDim.x) {
    const int row = i / 8, chunk = i % 8;
    copy_async_16(&tile[row][(chunk ^ row % 8) * 8], in + i * 8, true);
  }
  copy_async_commit();
  copy_async_wait<0>();
}

// c [64, 64] = a [64, 16] times rows `at` to `at + 15` of b (by_rows) or its columns, transposed,
// added twice; 1 in `forget` leaves out the fence of shared memory, 2 that of registers, 3 looks
// at the sums too early.
KERNEL __launch_bounds__(128)
    group_product(const float *a, const bf16 *b, float *c, int at, int by_rows, int forget) {
  alignas(1024) SHARED bf16 tile[64][64], left[64][64];
  copy_tile(tile, b);
  for (int i = threadIdx.x; i < 64 * 16; i += blockDim.x)
    left[i / 16][(i % 16 / 8 ^ i / 16 % 8) * 8 + i % 8].bits =
        static_cast<unsigned short>(pack_bf16(a[i], 0.0f));
  if (forget != 1) shared_memory_fence();
  block_barrier();
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
  unsigned words[4];
  for (int i = 0; i < 4; ++i) {
    const float *from = a + (first + lane / 4 + i % 2 * 8) * 16 + lane % 4 * 2 + i / 2 * 8;
    words[i] = pack_bf16(from[0], from[1]);
  }
  float acc[8][4];
  if (forget != 2) warpgroup_fence();
  if (by_rows) {
    for (int n = 0; n < 8; ++n)
      for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
    warpgroup_multiply_rows(acc, words, matrix_descriptor(tile, at * 128));
    warpgroup_multiply_rows(acc, words, matrix_descriptor(tile, at * 128));
  } else {
    warpgroup_multiply(acc, matrix_descriptor(left, 0), matrix_descriptor(tile, at * 2), false);
    warpgroup_multiply(acc, matrix_descriptor(left, 0), matrix_descriptor(tile, at * 2), true);
  }
  if (forget == 3) c[0] = acc[0][0];
  warpgroup_commit();
  warpgroup_wait<0>();
  for (int n = 0; n < 8 && forget != 3; ++n)
    for (int i = 0; i < 4; ++i)
      c[(first + lane / 4 + i / 2 * 8) * 64 + n * 8 + lane % 4 * 2 + i % 2] = acc[n][i];
}

// Only one warp of a warpgroup waits for the products.
KERNEL __launch_bounds__(128) lonely_warp(float *x) {
  if (threadIdx.x / WARP == 2) warpgroup_wait<0>();
  block_barrier();
  x[threadIdx.x] = 1.0f;
}

// The next operand is copied to where the products still read.
KERNEL __launch_bounds__(128) overwritten_operand(const bf16 *b, float *x) {
  alignas(1024) SHARED bf16 tile[64][64];
  copy_tile(tile, b);
  shared_memory_fence();
  block_barrier();
  float acc[8][4];
  warpgroup_fence();
  warpgroup_multiply(acc, matrix_descriptor(tile, 0), matrix_descriptor(tile, 0), false);
  warpgroup_commit();
  warpgroup_wait<0>();
  copy_tile(tile, b);
  x[threadIdx.x] = acc[0][0];
}

// ---- barriers and tiles of tensors -----------------------------------------------------------

// Two tiles [8, 64] of `from`, the rows from `row` and the columns from `column` on, go through shared
// memory to `to`, where `to`'s maps say. 1 in `forget` leaves out the wait for the tiles, 2 the fence of
// the barrier, 3 the wait before the memory is used again, 4 announces too few bytes, 5 the fence of
// what threads wrote, 6 waits for a phase too far ahead.
KERNEL __launch_bounds__(64)
    move_tiles(TENSOR_MAP from, TENSOR_MAP to, float *seen, int row, int column, int forget) {
  DYNAMIC_SHARED(moved, 2048);
  auto *tile = reinterpret_cast<bf16(*)[64]>(moved);
  SHARED Barrier arrived;
  if (threadIdx.x == 0) {
    barrier_init(&arrived, 1);
    if (forget != 2) barrier_init_fence();
  }
  block_barrier();
  const bool early = forget == 1 || forget == 6;
  for (int turn = 0; turn < (early ? 1 : 2); ++turn) {
    if (threadIdx.x == 32) {
      barrier_arrive_expecting(&arrived, forget == 4 ? 512 : 1024);
      copy_tile_in(tile, from, row, column + turn * 64, &arrived);
    }
    if (forget != 1) barrier_wait(&arrived, forget == 6 ? turn ^ 1 : turn);
    if (threadIdx.x == 0) seen[turn] = to_float(tile[1][8]);  // chunk 0 of row 1 lies where 1 would
    if (early) return barrier_wait(&arrived, turn);
    block_barrier();
    for (int i = threadIdx.x; i < 8 * 64; i += 64) {
      const float value = to_float(tile[i / 64][i % 64]);
      tile[i / 64][i % 64].bits = static_cast<unsigned short>(pack_bf16(value + 1.0f, 0.0f));
    }
    if (forget != 5) shared_memory_fence();
    block_barrier();
    if (threadIdx.x == 32) {
      copy_tile_out(to, row, column + turn * 64, tile);
      if (forget != 3 || turn == 1) copy_tiles_out_wait<0>();
    }
    block_barrier();
  }
}

// Lanes ask each other.
KERNEL __launch_bounds__(32) lanes(float *x) {
  const int lane = threadIdx.x;
  x[lane] = any_lane(lane == 7);
  x[32 + lane] = any_lane(lane == 40);
}

// Half of the warps wait for the kernels before this one, or all.
KERNEL __launch_bounds__(64) waits(int all) {
  if (all || threadIdx.x < 32) wait_for_previous_kernels();
}

// A value that is to be the same in all lanes of a warp, and differs from lane 9 on if `differs`.
KERNEL __launch_bounds__(64) uniform(float *x, int differs) {
  x[threadIdx.x] = uniform_over_warp(threadIdx.x / 32 + (threadIdx.x == 41 ? differs : 0));
}

// One of the groups that wait for each other does not come.
KERNEL __launch_bounds__(256) lonely_group(float *x) {
  if (threadIdx.x >= 32) warpgroup_barrier(1);
  x[threadIdx.x] = 1.0f;
}

// Each of the threads of a cluster's two blocks sends x to both; every block adds what it gets to its
// part of x. 1 in `forget` leaves out the barrier of the cluster, 2 the wait of the second block, 3
// the second block's barrier; 4 sends to a block that is not there.
KERNEL __launch_bounds__(32) __cluster_dims__(2, 1, 1) exchange(float *x, int forget) {
  SHARED float2 sent[2][32];
  SHARED Barrier arrived;
  const int rank = blockIdx.x % 2, lane = threadIdx.x;
  if (lane == 0) {
    barrier_init(&arrived, 1);
    barrier_init_fence();
  }
  if (forget == 3 && rank == 1) return;
  if (forget != 1) cluster_barrier();
  if (lane == 0) barrier_arrive_expecting(&arrived, sizeof sent);
  const float own = x[blockIdx.x * 32 + lane];
  for (int block = 0; block < 2; ++block)
    if (forget != 2 || (rank == 0 && block == 1))
      store_in_cluster(&sent[rank][lane], {own, -own}, forget == 4 ? 2 : block, &arrived);
  if (forget == 2) return;
  barrier_wait(&arrived, 0);
  x[blockIdx.x * 32 + lane] += sent[0][31 - lane].x - sent[1][lane].y;
}
