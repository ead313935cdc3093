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
  alignas(1024) SHARED bf16 tile[64][64];
  copy_tile(tile, b);
  if (forget != 1) shared_memory_fence();
  block_barrier();
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
  unsigned words[4];
  for (int i = 0; i < 4; ++i) {
    const float *from = a + (first + lane / 4 + i % 2 * 8) * 16 + lane % 4 * 2 + i / 2 * 8;
    words[i] = pack_bf16(from[0], from[1]);
  }
  float acc[8][4];
  const unsigned long long operand = matrix_descriptor(tile);
  if (forget != 2) warpgroup_fence();
  if (by_rows) {
    for (int n = 0; n < 8; ++n)
      for (int i = 0; i < 4; ++i) acc[n][i] = 0.0f;
    warpgroup_multiply_rows(acc, words, operand, at);
    warpgroup_multiply_rows(acc, words, operand, at);
  } else {
    warpgroup_multiply_columns(acc, words, operand, at, false);
    warpgroup_multiply_columns(acc, words, operand, at, true);
  }
  if (forget == 3) c[0] = acc[0][0];
  warpgroup_finish();
  for (int n = 0; n < 8 && forget != 3; ++n)
    for (int i = 0; i < 4; ++i)
      c[(first + lane / 4 + i / 2 * 8) * 64 + n * 8 + lane % 4 * 2 + i % 2] = acc[n][i];
}

// Only one warp of a warpgroup waits for the products.
KERNEL __launch_bounds__(128) lonely_warp(float *x) {
  if (threadIdx.x / WARP == 2) warpgroup_finish();
  block_barrier();
  x[threadIdx.x] = 1.0f;
}

// The next operand is copied to where the products still read.
KERNEL __launch_bounds__(128) overwritten_operand(const bf16 *b, float *x) {
  alignas(1024) SHARED bf16 tile[64][64];
  copy_tile(tile, b);
  shared_memory_fence();
  block_barrier();
  const unsigned words[4] = {};
  float acc[8][4];
  warpgroup_fence();
  warpgroup_multiply_columns(acc, words, matrix_descriptor(tile), 0, false);
  warpgroup_finish();
  copy_tile(tile, b);
  x[threadIdx.x] = acc[0][0];
}
