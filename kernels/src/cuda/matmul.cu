// Matrix products with warp instructions (mma.sync), for every GPU from sm_80 on:
// y [rows, outputs] = epilogue(x [rows, inputs] w [outputs, inputs]^T + bias), bf16 with f32 sums.
//
// A block computes 128 x 128 values, each of its 4 warps 64 x 64. Both operands pass through shared
// memory in steps of 32 inputs, three at a time. Values beyond the matrices count as zeros.
#include "matmul.cuh"

constexpr int MATMUL_TILE = 128;
constexpr int MATMUL_DEPTH = 32;  // inputs per step
constexpr int MATMUL_STAGES = 3;
constexpr int MATMUL_THREADS = 4 * WARP;
constexpr int MATMUL_OPERAND = MATMUL_TILE * MATMUL_DEPTH;  // values per step

// Returns the offset of 16-byte chunk `chunk` of row `row`; eight rows that are read together start
// in different banks.
DEVICE int matmul_place(int row, int chunk) {
  return row * MATMUL_DEPTH + (chunk ^ row / 2 % 4) * 8;
}

// Starts copying a tile: rows from `first_row` on, inputs from `input` on.
DEVICE void matmul_copy(bf16 *to, const bf16 *from, int first_row, int rows, int input, int inputs) {
  constexpr int CHUNKS = MATMUL_DEPTH / 8;
#pragma unroll
  for (int i = 0; i < MATMUL_TILE * CHUNKS / MATMUL_THREADS; ++i) {
    const int index = i * MATMUL_THREADS + static_cast<int>(threadIdx.x);
    const int row = index / CHUNKS, chunk = index % CHUNKS;
    const bool valid = first_row + row < rows && input + chunk * 8 < inputs;
    const long long at = static_cast<long long>(first_row + row) * inputs + input + chunk * 8;
    copy_async_16(to + matmul_place(row, chunk), valid ? from + at : from, valid);
  }
}

// Adds a step's products; acc[i][j] holds rows 16 i to 16 i + 15, columns 8 j to 8 j + 7 of a warp.
DEVICE void matmul_step(float (&acc)[4][8][4], const bf16 *x, const bf16 *w) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  x += warp / 2 * 64 * MATMUL_DEPTH, w += warp % 2 * 64 * MATMUL_DEPTH;
#pragma unroll
  for (int k = 0; k < MATMUL_DEPTH / 16; ++k) {
    unsigned a[4][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      load_matrices(a[i], x + matmul_place(i * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < 4; ++j)
      load_matrices(b[j],
                    w + matmul_place(j * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j)
        multiply_add(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

template <int EPILOGUE>
DEVICE void matmul(const bf16 *x, const bf16 *w, const bf16 *bias, const bf16 *residual, bf16 *y,
                   int rows, int outputs, int inputs) {
  SHARED bf16 x_stages[MATMUL_STAGES * MATMUL_OPERAND];
  SHARED bf16 w_stages[MATMUL_STAGES * MATMUL_OPERAND];
  wait_for_previous_kernels();
  const int first_row = blockIdx.y * MATMUL_TILE, first_output = blockIdx.x * MATMUL_TILE;
  const int num_steps = (inputs + MATMUL_DEPTH - 1) / MATMUL_DEPTH;
  const auto copy = [&](int step) {
    const int at = step % MATMUL_STAGES * MATMUL_OPERAND, input = step * MATMUL_DEPTH;
    if (step < num_steps) {
      matmul_copy(x_stages + at, x, first_row, rows, input, inputs);
      matmul_copy(w_stages + at, w, first_output, outputs, input, inputs);
    }
    copy_async_commit();
  };
  float acc[4][8][4] = {};
  copy(0);
  copy(1);
  for (int step = 0; step < num_steps; ++step) {
    copy_async_wait<1>();
    block_barrier();  // all threads see this step, and none still reads the one before
    copy(step + 2);
    const int at = step % MATMUL_STAGES * MATMUL_OPERAND;
    matmul_step(acc, x_stages + at, w_stages + at);
  }
  copy_async_wait<0>();

  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int column = first_output + warp % 2 * 64 + j * 8 + lane % 4 * 2;
    if (column >= outputs) continue;
    const unsigned own_bias = *reinterpret_cast<const unsigned *>(bias + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = first_row + warp / 2 * 64 + i * 8 + lane / 4;
      if (row >= rows) continue;
      const long long at = static_cast<long long>(row) * outputs + column;
      unsigned own_residual = 0;
      if constexpr (EPILOGUE == RESIDUAL)
        own_residual = *reinterpret_cast<const unsigned *>(residual + at);
      float first = acc[i / 2][j][i % 2 * 2], second = acc[i / 2][j][i % 2 * 2 + 1];
      finish_pair<EPILOGUE>(first, second, {1.0f, 1.0f}, own_bias, own_residual);
      *reinterpret_cast<unsigned *>(y + at) = pack_bf16(first, second);
    }
  }
}

// Widths are multiples of 8; the grid is (ceil(outputs / 128), ceil(rows / 128)). Only the residual
// kernel reads `residual`.
#define MATMUL_KERNEL(NAME, EPILOGUE)                                                              \
  KERNEL __launch_bounds__(MATMUL_THREADS)                                                         \
      NAME(const bf16 *x, const bf16 *w, const bf16 *bias, const bf16 *residual, bf16 *y,          \
           int rows, int outputs, int inputs) {                                                    \
    matmul<EPILOGUE>(x, w, bias, residual, y, rows, outputs, inputs);                              \
  }
MATMUL_KERNEL(matmul_bias, BIAS)
MATMUL_KERNEL(matmul_gelu, GELU)
MATMUL_KERNEL(matmul_residual, RESIDUAL)
