// Matrix products that continue with a layer norm of each row, for sm_90a, of bf16 or e4m3 values:
// hidden [rows, 768] = layer norm of (x [rows, inputs] w [768, inputs]^T + bias + hidden).
// Values of an e4m3 x count as they are, and rows of w have scales; the result is then also written
// in e4m3, times a constant, for the next product.
//
// Two blocks, a cluster, take 128 rows together: each of their four computing warpgroups has 192
// columns, as many sums as fit into its registers. A cluster stays on its multiprocessors and takes
// rows after rows. Another warpgroup of each block copies operands into a ring of stages. The last
// two stages of a tile carry the residual, which so arrives during the last products; the result
// replaces it there, and is copied out before the stage is used again. `hidden` can be residual and
// result because only the block that writes these rows and columns reads them, and before.
//
// As in layer_norm.cuh, mean and variance are computed in two passes over f32 values in registers.
// But a group takes the mean and the squared deviations of its own 192 columns. Those of the row
// follow exactly: squared deviations from another mean are larger by the squared distance of the
// means, per column. So the groups exchange numbers once, through the shared memory of both blocks.
#include "matmul_hopper.cuh"

#if defined(POLYSIFT_SIM) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int CLUSTER_BLOCKS = 2;
constexpr int NORM_GROUPS = 2 * CLUSTER_BLOCKS;
constexpr int BLOCK_OUTPUTS = 2 * TILE_OUTPUTS;
constexpr int BOX_BYTES = TILE_ROWS * 128;

struct alignas(1024) MatmulNormMemory {
  static constexpr int STAGES = 3;
  // Operands of a step, x [128 rows] before w [384 rows], or boxes.
  unsigned char stages[STAGES][BOX_BYTES + BLOCK_OUTPUTS * 128];
  unsigned char first_e4m3_boxes[2][BOX_BYTES / 2];
  // Per two columns: biases and scales of w, gammas and betas.
  float4 sum_columns[BLOCK_OUTPUTS / 2], norm_columns[BLOCK_OUTPUTS / 2];
  // Mean of each row over the columns of each group, and the sum of squared deviations from it, of
  // two tiles: a group may send those of the next tile while another reads.
  float2 moments[2][NORM_GROUPS][TILE_ROWS];
  Barrier full[STAGES], empty[STAGES], moments_full[2];
};

// Returns which of the two stages with boxes has box `i` of the three boxes of a group. The first
// one is full with two of each group in bf16; the e4m3 boxes that go out with it lie beside it.
DEVICE int bf16_part(int i) { return i / 2; }
DEVICE int e4m3_part(int i) { return (i + 1) / 2; }
// Returns box `i` of a group in its stage.
DEVICE unsigned char *bf16_box(unsigned char *stage, int group, int i) {
  return stage + (i < 2 ? 2 * group + i : group) * BOX_BYTES;
}
DEVICE unsigned char *e4m3_box(MatmulNormMemory &memory, unsigned char *stage, int group, int i) {
  if (i == 0) return memory.first_e4m3_boxes[group];
  return stage + 2 * BOX_BYTES + (2 * group + i - 1) * BOX_BYTES / 2;
}

// The copies of a block: operands and residual in, results out. Use `count` of the ring is that of
// stage `count` % STAGES. A tile has a use per step, and two more for its boxes.
template <class T>
struct NormCopies {
  static constexpr int STAGES = MatmulNormMemory::STAGES;
  MatmulNormMemory &memory;
  const TensorMap &x, &w, &hidden, &quantised;
  int num_steps, num_tiles;

  DEVICE_MEMBER int tile_of(int count) const {
    const int first = blockIdx.x, stride = gridDim.x;
    return (first + count / (num_steps + 2) * stride) / CLUSTER_BLOCKS;
  }
  DEVICE_MEMBER int column_of(int group) const {
    return blockIdx.x % CLUSTER_BLOCKS * BLOCK_OUTPUTS + group * TILE_OUTPUTS;
  }

  DEVICE_MEMBER void copy_in(unsigned char *stage, int count) const {
    Barrier *full = &memory.full[count % STAGES];
    const int row = tile_of(count) * TILE_ROWS, step = count % (num_steps + 2);
    if (step < num_steps) {
      const int input = step * (128 / static_cast<int>(sizeof(T)));
      barrier_arrive_expecting(full, sizeof memory.stages[0]);
      copy_tile_in(stage, x, row, input, full);
      for (int group = 0; group < 2; ++group)
        copy_tile_in(stage + BOX_BYTES + group * TILE_OUTPUTS * 128, w, column_of(group), input,
                     full);
      return;
    }
    const int part = step - num_steps;
    barrier_arrive_expecting(full, (part == 0 ? 4 : 2) * BOX_BYTES);
    for (int group = 0; group < 2; ++group)
      for (int i = 0; i < TILE_BOXES; ++i)
        if (bf16_part(i) == part)
          copy_tile_in(bf16_box(stage, group, i), hidden, row, column_of(group) + i * BOX_OUTPUTS,
                       full);
  }

  // Copies out the results that use `count` left in its stage, if there are any, and waits until
  // they are read.
  DEVICE_MEMBER void copy_out(unsigned char *stage, int count) const {
    const int row = tile_of(count) * TILE_ROWS, step = count % (num_steps + 2);
    if (count < 0 || step < num_steps) return;
    const int part = step - num_steps;
    for (int group = 0; group < 2; ++group)
      for (int i = 0; i < TILE_BOXES; ++i) {
        const int column = column_of(group) + i * BOX_OUTPUTS;
        if (bf16_part(i) == part) copy_tile_out(hidden, row, column, bf16_box(stage, group, i));
        if (sizeof(T) == 1 && e4m3_part(i) == part)
          copy_tile_out(quantised, row, column, e4m3_box(memory, stage, group, i));
      }
    copy_tiles_out_wait<0>();
  }

  // Waits for each stage to be free again, after the last uses only to copy out what they leave.
  DEVICE_MEMBER void run() const {
    for (int count = 0; tile_of(count - STAGES) < num_tiles; ++count) {
      unsigned char *stage = memory.stages[count % STAGES];
      barrier_wait(&memory.empty[count % STAGES], count / STAGES % 2 ^ 1);
      copy_out(stage, count - STAGES);
      if (tile_of(count) < num_tiles) copy_in(stage, count);
    }
    copy_tiles_out_finish();
  }
};

// Copies the parameters of the block's columns to shared memory.
template <class T>
DEVICE void copy_norm_columns(MatmulNormMemory &memory, const bf16 *bias, const float *w_scales,
                              const float *gamma, const float *beta) {
  const int pair = threadIdx.x;
  if (pair >= BLOCK_OUTPUTS / 2) return;
  const int column = blockIdx.x % CLUSTER_BLOCKS * BLOCK_OUTPUTS + pair * 2;
  float4 &sums = memory.sum_columns[pair];
  sums.x = to_float(bias[column]), sums.y = to_float(bias[column + 1]);
  if constexpr (sizeof(T) == 1) sums.z = w_scales[column], sums.w = w_scales[column + 1];
  memory.norm_columns[pair] = {gamma[column], gamma[column + 1], beta[column], beta[column + 1]};
}

// Sums each value over the four lanes that share rows.
DEVICE void quad_sums(float (&values)[4]) {
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] += shuffle_xor(values[i], mask);
}

// Adds bias and residual to the products; `means` are those of each row over the group's columns.
template <class T>
DEVICE void add_columns(TileSums &acc, float (&means)[4], const float4 *columns,
                        unsigned char *const (&stages)[2], int group) {
#pragma unroll
  for (int n = 0; n < TILE_OUTPUTS / 8; ++n) {
    const unsigned char *box = bf16_box(stages[n / 16], group, n / 8);
    const float4 column = columns[n * 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto residual = *reinterpret_cast<const unsigned *>(box + box_place<128>(i, n % 8));
      float &left = acc[i / 2][n][i % 2 * 2], &right = acc[i / 2][n][i % 2 * 2 + 1];
      if constexpr (sizeof(T) == 1)
        left = fmaf(left, column.z, column.x), right = fmaf(right, column.w, column.y);
      else
        left += column.x, right += column.y;
      left += first_of(residual), right += second_of(residual);
      means[i] = n == 0 ? left + right : means[i] + (left + right);
    }
  }
  quad_sums(means);
#pragma unroll
  for (int i = 0; i < 4; ++i) means[i] *= 1.0f / TILE_OUTPUTS;
}

// Subtracts `means`, and sums the squares.
DEVICE void centre(TileSums &acc, const float (&means)[4], float (&squares)[4]) {
#pragma unroll
  for (int n = 0; n < TILE_OUTPUTS / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float &left = acc[i / 2][n][i % 2 * 2], &right = acc[i / 2][n][i % 2 * 2 + 1];
      left -= means[i], right -= means[i];
      squares[i] = n == 0 ? left * left : fmaf(left, left, squares[i]);
      squares[i] = fmaf(right, right, squares[i]);
    }
  quad_sums(squares);
}

// Sends the moments of the group's rows to both blocks, and waits for those of all groups. Then
// the normed values of row `matmul_row(i)` are (value - own mean) scales[i] + shifts[i]. Each of
// four lanes that share rows sends one of them, and computes its scale and shift for the others.
DEVICE void exchange_moments(MatmulNormMemory &memory, int tile_count, int group,
                             const float (&means)[4], const float (&squares)[4], float eps,
                             float (&scales)[4], float (&shifts)[4]) {
  const int quad = threadIdx.x % 4, row = matmul_row(quad), half = tile_count % 2;
  auto &moments = memory.moments[half];
  Barrier *full = &memory.moments_full[half];
  if (threadIdx.x == GROUP_THREADS) barrier_arrive_expecting(full, sizeof moments);
  float2 own = {means[0], squares[0]};
#pragma unroll
  for (int i = 1; i < 4; ++i)
    if (quad == i) own = {means[i], squares[i]};
  const int own_group = blockIdx.x % CLUSTER_BLOCKS * 2 + group;
  for (int block = 0; block < CLUSTER_BLOCKS; ++block)
    store_in_cluster(&moments[own_group][row], own, block, full);
  barrier_wait(full, tile_count / 2 % 2);

  float2 all[NORM_GROUPS];
  float mean = 0.0f, distances = 0.0f, deviations = 0.0f;
#pragma unroll
  for (int i = 0; i < NORM_GROUPS; ++i) all[i] = moments[i][row];
#pragma unroll
  for (int i = 0; i < NORM_GROUPS; ++i) mean += all[i].x * (1.0f / NORM_GROUPS);
#pragma unroll
  for (int i = 0; i < NORM_GROUPS; ++i) {
    distances = fmaf(all[i].x - mean, all[i].x - mean, distances);
    deviations += all[i].y;
  }
  const float variance =
      fmaf(distances, TILE_OUTPUTS, deviations) * (1.0f / (NORM_GROUPS * TILE_OUTPUTS));
  const float scale = rsqrtf(variance + eps), shift = (own.x - mean) * scale;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int lane = threadIdx.x % WARP - quad + i;
    scales[i] = shuffle_from(scale, lane), shifts[i] = shuffle_from(shift, lane);
  }
}

// Writes box `i` of the group in bf16, and in e4m3 if T is.
template <class T>
DEVICE void write_box(const TileSums &acc, const float (&scales)[4], const float (&shifts)[4],
                      const float4 *columns, float inverse, int i, unsigned char *box,
                      unsigned char *e4m3_box) {
#pragma unroll
  for (int n = 0; n < BOX_OUTPUTS / 8; ++n) {
    const float4 column = columns[(i * 8 + n) * 4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float *pair = &acc[r / 2][i * 8 + n][r % 2 * 2];
      const float left = fmaf(fmaf(pair[0], scales[r], shifts[r]), column.x, column.z);
      const float right = fmaf(fmaf(pair[1], scales[r], shifts[r]), column.y, column.w);
      *reinterpret_cast<unsigned *>(box + box_place<128>(r, n)) = pack_bf16(left, right);
      if constexpr (sizeof(T) == 1)
        *reinterpret_cast<unsigned short *>(e4m3_box + box_place<64>(r, n)) =
            static_cast<unsigned short>(pack_e4m3(left * inverse, right * inverse));
    }
  }
}

template <class T>
DEVICE void matmul_norm(const TensorMap &x, const TensorMap &w, const TensorMap &hidden,
                        const TensorMap &quantised, const bf16 *bias, const float *w_scales,
                        const float *gamma, const float *beta, float eps, float inverse,
                        int num_steps, int num_tiles) {
  constexpr int STAGES = MatmulNormMemory::STAGES;
  DYNAMIC_SHARED(matmul_norm_memory, sizeof(MatmulNormMemory));
  auto &memory = *reinterpret_cast<MatmulNormMemory *>(matmul_norm_memory);
  wait_for_previous_kernels();
  copy_norm_columns<T>(memory, bias, w_scales, gamma, beta);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&memory.full[i], 1);
      barrier_init(&memory.empty[i], 8);  // the warps that compute
    }
    for (int i = 0; i < 2; ++i) barrier_init(&memory.moments_full[i], 1);
    barrier_init_fence();
  }
  // From here on the other block may store to this one's memory. This block waits for each of these
  // stores, so it does not end too early.
  cluster_barrier();

  if (threadIdx.x < GROUP_THREADS) {
    warpgroup_give_registers<24>();
    const NormCopies<T> copies = {memory, x, w, hidden, quantised, num_steps, num_tiles};
    if (threadIdx.x == 0) copies.run();
    return;
  }
  warpgroup_take_registers<240>();
  const int group = threadIdx.x / GROUP_THREADS - 1;
  const int first_pair = group * TILE_OUTPUTS / 2 + threadIdx.x % 4;
  const int clusters = gridDim.x / CLUSTER_BLOCKS;
  int count = 0;
  for (int tile = blockIdx.x / CLUSTER_BLOCKS; tile < num_tiles; tile += clusters) {
    TileSums acc;
    for (int step = 0; step < num_steps; ++step, ++count) {
      const unsigned char *stage = memory.stages[count % STAGES];
      barrier_wait(&memory.full[count % STAGES], count / STAGES % 2);
      multiply_step<T>(acc, stage, stage + BOX_BYTES + group * TILE_OUTPUTS * 128, step > 0);
      warpgroup_wait<1>();
      if (step > 0) warp_arrive(&memory.empty[(count - 1) % STAGES]);
    }
    warpgroup_wait<0>();
    warp_arrive(&memory.empty[(count - 1) % STAGES]);

    unsigned char *stages[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      stages[i] = memory.stages[(count + i) % STAGES];
      barrier_wait(&memory.full[(count + i) % STAGES], (count + i) / STAGES % 2);
    }
    float means[4], squares[4], scales[4], shifts[4];
    add_columns<T>(acc, means, memory.sum_columns + first_pair, stages, group);
    centre(acc, means, squares);
    exchange_moments(memory, count / (num_steps + 2), group, means, squares, eps, scales, shifts);
#pragma unroll
    for (int i = 0; i < TILE_BOXES; ++i) {
      write_box<T>(acc, scales, shifts, memory.norm_columns + first_pair, inverse, i,
                   bf16_box(stages[i / 2], group, i), e4m3_box(memory, stages[1], group, i));
      if (i == 0) continue;
      // The first stage is complete with box 1, the second one with box 2.
      shared_memory_fence();
      warp_barrier();
      warp_arrive(&memory.empty[count++ % STAGES]);
    }
  }
}

// The maps have tiles of 128 rows of x, `hidden` and `quantised`, and of 192 rows of w. A step is
// 128 bytes of inputs, a tile 128 rows. Any grid of whole clusters works. Only the e4m3 kernel
// reads `w_scales` and `inverse` and writes `quantised`, the result times `inverse`.
#define MATMUL_NORM_KERNEL(NAME, T)                                                                \
  KERNEL __launch_bounds__(3 * GROUP_THREADS, 1) __cluster_dims__(CLUSTER_BLOCKS, 1, 1)            \
      NAME(TENSOR_MAP x, TENSOR_MAP w, TENSOR_MAP hidden, TENSOR_MAP quantised, const bf16 *bias,  \
           const float *w_scales, const float *gamma, const float *beta, float eps, float inverse, \
           int num_steps, int num_tiles) {                                                         \
    matmul_norm<T>(x, w, hidden, quantised, bias, w_scales, gamma, beta, eps, inverse, num_steps,  \
                   num_tiles);                                                                     \
  }
MATMUL_NORM_KERNEL(matmul_norm_768, bf16)
MATMUL_NORM_KERNEL(matmul_norm_fp8_768, e4m3)
#endif
