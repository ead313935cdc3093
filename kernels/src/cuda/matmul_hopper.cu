// Matrix products with warpgroup instructions (wgmma), for sm_90a, of bf16 or of e4m3 values:
// y [rows, outputs] = epilogue(x [rows, inputs] w [outputs, inputs]^T + bias), with sums in f32. y
// is bf16, or e4m3 after GELU in e4m3 products, for the next product. Sums of e4m3 values count times
// a scale per output, which includes the scale of x (see e4m3.rs).
//
// A block stays on its multiprocessor and takes tile after tile of 128 x 192 values. One thread of
// the first warpgroup copies the operands, in steps of 128 bytes of inputs, into a ring of stages.
// The other two warpgroups compute tiles in turn: the matrix units work for one while the other
// writes its values. They read both operands from shared memory, so a thread holds little but sums.
#include "matmul.cuh"

#if defined(POLYSIFT_SIM) || !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "matmul_hopper.cuh"

constexpr int STAGES = 4;

struct alignas(1024) MatmulMemory {
  unsigned char x[STAGES][TILE_ROWS * 128];
  unsigned char w[STAGES][TILE_OUTPUTS * 128];
  // Each group has two boxes of values to be written, and its tile's bias and scales. (The latter
  // are in shared memory because the sums leave few registers for values loaded ahead.)
  unsigned char boxes[2][2][TILE_ROWS * 128];
  unsigned bias[2][TILE_OUTPUTS / 2];
  float2 w_scales[2][TILE_OUTPUTS / 2];
  Barrier full[STAGES], empty[STAGES];
  Barrier turn[2];  // each group's turn to compute
  Barrier residual[2][2];  // one per box
};

// Numbers of columns of y, of steps over the inputs, and of tiles of y.
struct MatmulSizes {
  int outputs, num_steps, num_tiles;
};

// Returns where tile `index` starts; the tiles of the same rows follow each other.
DEVICE int2 matmul_tile(int index, int outputs) {
  const int across = (outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
  return {index / across * TILE_ROWS, index % across * TILE_OUTPUTS};
}

template <class T>
DEVICE void copy_operands(MatmulMemory &memory, const TensorMap &x, const TensorMap &w,
                          MatmulSizes sizes) {
  int count = 0;
  for (int index = blockIdx.x; index < sizes.num_tiles; index += gridDim.x) {
    const int2 tile = matmul_tile(index, sizes.outputs);
    for (int step = 0; step < sizes.num_steps; ++step, ++count) {
      const int stage = count % STAGES, input = step * (128 / static_cast<int>(sizeof(T)));
      barrier_wait(&memory.empty[stage], count / STAGES % 2 ^ 1);
      barrier_arrive_expecting(&memory.full[stage], (TILE_ROWS + TILE_OUTPUTS) * 128);
      copy_tile_in(memory.x[stage], x, tile.x, input, &memory.full[stage]);
      copy_tile_in(memory.w[stage], w, tile.y, input, &memory.full[stage]);
    }
  }
}

// Computes the products of one tile, which starts at step `count` of the block. `turn` belongs to
// the other group, which may start when the last products are under way: so a group that waits for
// a stage is at most one phase of its barrier behind. Afterwards the stages are free again.
template <class T>
DEVICE void multiply_tile(MatmulMemory &memory, TileSums &acc, int count, int num_steps,
                          Barrier *turn) {
  for (int step = 0; step < num_steps; ++step) {
    const int stage = (count + step) % STAGES;
    barrier_wait(&memory.full[stage], (count + step) / STAGES % 2);
    multiply_step<T>(acc, memory.x[stage], memory.w[stage], step > 0);
    warpgroup_wait<1>();
    if (step > 0) warp_arrive(&memory.empty[(count + step - 1) % STAGES]);
  }
  warp_arrive(turn);
  warpgroup_wait<0>();
  warp_arrive(&memory.empty[(count + num_steps - 1) % STAGES]);
}

// Copies the bias and scales of a tile's columns to shared memory.
template <class T>
DEVICE void copy_columns(MatmulMemory &memory, int group, const bf16 *bias, const float *w_scales,
                         int first_output, int outputs) {
  const int pair = threadIdx.x % GROUP_THREADS, column = first_output + pair * 2;
  if (pair >= TILE_OUTPUTS / 2 || column >= outputs) return;
  memory.bias[group][pair] = *reinterpret_cast<const unsigned *>(bias + column);
  if constexpr (sizeof(T) == 1)
    memory.w_scales[group][pair] = *reinterpret_cast<const float2 *>(w_scales + column);
}

template <class T, int EPILOGUE>
constexpr bool WRITES_E4M3 = sizeof(T) == 1 && EPILOGUE == GELU;

// Writes 64 columns of a tile to `box`, in e4m3 times `inverse`. All reads of shared memory come
// before the writes, so that several fragments are computed at a time: a warp is alone on its
// scheduler, so no other warp hides its waits.
template <class T, int EPILOGUE>
DEVICE void finish_box(unsigned char *box, const MatmulMemory &memory, int group,
                       const TileSums &acc, int first_fragment, float inverse) {
  constexpr bool NARROW = WRITES_E4M3<T, EPILOGUE>;
  constexpr int AT_ONCE = sizeof(T) == 1 ? 2 : 4;
  constexpr int ROW_BYTES = NARROW ? 64 : 128;
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int first = 0; first < BOX_OUTPUTS / 8; first += AT_ONCE) {
    unsigned bias[AT_ONCE];
    float2 scales[AT_ONCE];
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) {
      const int pair = (first_fragment + first + n) * 4 + quad;
      bias[n] = memory.bias[group][pair];
      scales[n] = sizeof(T) == 1 ? memory.w_scales[group][pair] : float2{1.0f, 1.0f};
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned words[AT_ONCE] = {};
#pragma unroll
      for (int n = 0; n < AT_ONCE; ++n)
        if constexpr (EPILOGUE == RESIDUAL)
          words[n] = *reinterpret_cast<unsigned *>(box + box_place<ROW_BYTES>(i, first + n));
#pragma unroll
      for (int n = 0; n < AT_ONCE; ++n) {
        const float(&own)[4] = acc[i / 2][first_fragment + first + n];
        float left = own[i % 2 * 2], right = own[i % 2 * 2 + 1];
        finish_pair<EPILOGUE, NARROW>(left, right, scales[n], bias[n], words[n]);
        if constexpr (NARROW)
          words[n] = pack_e4m3(left * inverse, right * inverse);
        else
          words[n] = pack_bf16(left, right);
      }
#pragma unroll
      for (int n = 0; n < AT_ONCE; ++n) {
        unsigned char *at = box + box_place<ROW_BYTES>(i, first + n);
        if constexpr (NARROW)
          *reinterpret_cast<unsigned short *>(at) = static_cast<unsigned short>(words[n]);
        else
          *reinterpret_cast<unsigned *>(at) = words[n];
      }
    }
  }
}

template <class T, int EPILOGUE>
DEVICE void matmul_hopper(const TensorMap &x, const TensorMap &w, const TensorMap &y,
                          const TensorMap &residual, const bf16 *bias, const float *w_scales,
                          float inverse, MatmulSizes sizes) {
  DYNAMIC_SHARED(matmul_memory, sizeof(MatmulMemory));
  auto &memory = *reinterpret_cast<MatmulMemory *>(matmul_memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&memory.full[i], 1);
      barrier_init(&memory.empty[i], 4);  // the warps of the group that computed with it
    }
    for (int group = 0; group < 2; ++group) {
      barrier_init(&memory.turn[group], 4);
      for (int box = 0; box < 2; ++box) barrier_init(&memory.residual[group][box], 1);
    }
    barrier_init_fence();
  }
  wait_for_previous_kernels();
  block_barrier();

  if (threadIdx.x < GROUP_THREADS) {
    warpgroup_give_registers<24>();
    if (threadIdx.x == 0) copy_operands<T>(memory, x, w, sizes);
    return;
  }
  warpgroup_take_registers<240>();
  const int group = threadIdx.x / GROUP_THREADS - 1;
  const bool copies = threadIdx.x % GROUP_THREADS == 0;
  // Boxes are numbered through all tiles of the group and alternate between two places.
  const auto copy_residual = [&](int2 tile, int number, int i) {
    const int box = number & 1;
    barrier_arrive_expecting(&memory.residual[group][box], sizeof memory.boxes[0][0]);
    copy_tile_in(memory.boxes[group][box], residual, tile.x, tile.y + i * BOX_OUTPUTS,
                 &memory.residual[group][box]);
  };
  const int first_tile = blockIdx.x, stride = gridDim.x;
  for (int count = group; first_tile + count * stride < sizes.num_tiles; count += 2) {
    const int2 tile = matmul_tile(first_tile + count * stride, sizes.outputs);
    const int first_box = count / 2 * TILE_BOXES;
    TileSums acc;
    copy_columns<T>(memory, group, bias, w_scales, tile.y, sizes.outputs);
    if (EPILOGUE == RESIDUAL && copies) {
      copy_tiles_out_wait<0>();
      for (int i = 0; i < 2; ++i) copy_residual(tile, first_box + i, i);
    }
    // The first group's first turn comes immediately.
    barrier_wait(&memory.turn[group], (count / 2 + group + 1) % 2);
    multiply_tile<T>(memory, acc, count * sizes.num_steps, sizes.num_steps, &memory.turn[group ^ 1]);
#pragma unroll
    for (int i = 0; i < TILE_BOXES; ++i) {
      const int box = (first_box + i) & 1;
      if constexpr (EPILOGUE == RESIDUAL) {
        if (i == 0) warpgroup_barrier(1 + group);  // the columns are in shared memory
        if (copies && i > 0 && i + 1 < TILE_BOXES) {
          copy_tiles_out_wait<0>();
          copy_residual(tile, first_box + i + 1, i + 1);
        }
        barrier_wait(&memory.residual[group][box], (first_box + i) >> 1 & 1);
      } else {
        if (copies) copy_tiles_out_wait<1>();  // for this box; the other box's copy may go on
        warpgroup_barrier(1 + group);
      }
      finish_box<T, EPILOGUE>(memory.boxes[group][box], memory, group, acc, i * BOX_OUTPUTS / 8,
                              inverse);
      shared_memory_fence();
      warpgroup_barrier(1 + group);
      if (copies) copy_tile_out(y, tile.x, tile.y + i * BOX_OUTPUTS, memory.boxes[group][box]);
    }
  }
  if (copies) copy_tiles_out_finish();
}

// The maps have tiles of 128 rows of x, y and residual and of 192 rows of w. A step is 128 bytes of
// inputs, a tile 128 x 192 values. Any grid works. Only the residual kernels read `residual`, only
// the e4m3 kernels read `w_scales`, and only the e4m3 GELU kernel uses `inverse`.
#define MATMUL_HOPPER_KERNEL(NAME, T, EPILOGUE)                                                    \
  KERNEL __launch_bounds__(3 * GROUP_THREADS, 1)                                                   \
      NAME(TENSOR_MAP x, TENSOR_MAP w, TENSOR_MAP y, TENSOR_MAP residual, const bf16 *bias,        \
           const float *w_scales, float inverse, int outputs, int num_steps, int num_tiles) {      \
    matmul_hopper<T, EPILOGUE>(x, w, y, residual, bias, w_scales, inverse,                         \
                               {outputs, num_steps, num_tiles});                                   \
  }
MATMUL_HOPPER_KERNEL(matmul_hopper_bias, bf16, BIAS)
MATMUL_HOPPER_KERNEL(matmul_hopper_gelu, bf16, GELU)
MATMUL_HOPPER_KERNEL(matmul_hopper_residual, bf16, RESIDUAL)
MATMUL_HOPPER_KERNEL(matmul_fp8_bias, e4m3, BIAS)
MATMUL_HOPPER_KERNEL(matmul_fp8_gelu, e4m3, GELU)
MATMUL_HOPPER_KERNEL(matmul_fp8_residual, e4m3, RESIDUAL)
#endif
