// Scoring of embeddings in f32: the layers of a small head, and the largest similarity to any of
// many references. Bound by reading the embeddings, so plain fused multiply-adds do; every sum
// runs over the inputs in order, whatever the other rows are.
// CPU twin: the scorer of the heads (src/heads/head/scorer.rs).
#include "device.cuh"

constexpr int SCORE_THREADS = 256;
constexpr int SCORE_ROWS = 8;  // a warp each
constexpr int TILE = 64;       // rows and outputs of a block
constexpr int DEPTH = 16;      // inputs of a step
constexpr int OWN = 4;         // rows and outputs of a thread

// `unit`: each row divided by its L2 norm, usable if that is positive and finite; else copied,
// usable if all its values are finite. Rows that are not usable become zeros.
KERNEL __launch_bounds__(SCORE_THREADS)
    prepare_rows(const float *x, float *out, unsigned char *usable, int rows, int width, int unit) {
  const int row = blockIdx.x * SCORE_ROWS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  const float *from = x + static_cast<long long>(row) * width;
  double squares = 0.0;
  for (int i = lane; i < width; i += WARP) squares += static_cast<double>(from[i]) * from[i];
  squares = warp_sum(squares);
  // A square of a finite f32 is finite in f64, and so is the sum of them: it tells finite rows.
  const bool good = squares < INFINITY && (!unit || squares > 0.0);
  const double norm = unit ? sqrt(squares) : 1.0;
  for (int i = lane; i < width; i += WARP)
    out[static_cast<long long>(row) * width + i] =
        good ? static_cast<float>(from[i] / norm) : 0.0f;
  if (lane == 0) usable[row] = good;
}

struct TileMemory {
  float x[DEPTH][TILE + OWN];
  float w[DEPTH][TILE + OWN];
};

// acc[i][j] = row `first_row + 4 * (thread / 16) + i` of x times row `first_output + 4 * (thread %
// 16) + j` of w; rows past the end count as zeros.
DEVICE void multiply_tile(TileMemory &memory, float (&acc)[OWN][OWN], const float *x,
                          const float *w, int rows, int outputs, int inputs, int first_row,
                          int first_output) {
  const int across = threadIdx.x % (TILE / OWN) * OWN, down = threadIdx.x / (TILE / OWN) * OWN;
#pragma unroll
  for (int i = 0; i < OWN; ++i)
#pragma unroll
    for (int j = 0; j < OWN; ++j) acc[i][j] = 0.0f;
  for (int first = 0; first < inputs; first += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += SCORE_THREADS) {
      const int row = i / DEPTH, input = first + i % DEPTH;
      const bool inside = input < inputs;
      const long long x_row = first_row + row, w_row = first_output + row;
      memory.x[i % DEPTH][row] = inside && x_row < rows ? x[x_row * inputs + input] : 0.0f;
      memory.w[i % DEPTH][row] = inside && w_row < outputs ? w[w_row * inputs + input] : 0.0f;
    }
    block_barrier();
#pragma unroll
    for (int depth = 0; depth < DEPTH; ++depth) {
      float own_x[OWN], own_w[OWN];
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        own_x[i] = memory.x[depth][down + i];
        own_w[i] = memory.w[depth][across + i];
      }
#pragma unroll
      for (int i = 0; i < OWN; ++i)
#pragma unroll
        for (int j = 0; j < OWN; ++j) acc[i][j] = fmaf(own_x[i], own_w[j], acc[i][j]);
    }
    block_barrier();  // before the next step overwrites the tile
  }
}

// y [rows, outputs] = max(0, x w^T + bias), w [outputs, inputs];
// the grid is (ceil(outputs / 64), ceil(rows / 64)).
KERNEL __launch_bounds__(SCORE_THREADS)
    linear_relu(const float *x, const float *w, const float *bias, float *y, int rows, int inputs,
                int outputs) {
  SHARED TileMemory memory;
  const int first_row = blockIdx.y * TILE, first_output = blockIdx.x * TILE;
  float acc[OWN][OWN];
  multiply_tile(memory, acc, x, w, rows, outputs, inputs, first_row, first_output);
#pragma unroll
  for (int i = 0; i < OWN; ++i)
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
      const int row = first_row + static_cast<int>(threadIdx.x) / (TILE / OWN) * OWN + i;
      const int output = first_output + static_cast<int>(threadIdx.x) % (TILE / OWN) * OWN + j;
      if (row < rows && output < outputs)
        y[static_cast<long long>(row) * outputs + output] = fmaxf(acc[i][j] + bias[output], 0.0f);
    }
}

// out [rows, outputs] = x w^T + bias in f64, one warp a value: the last layer, which selection
// orders by. The grid is ceil(rows * outputs / 8).
KERNEL __launch_bounds__(SCORE_THREADS)
    linear_f64(const float *x, const float *w, const float *bias, double *out, int rows, int inputs,
               int outputs) {
  const long long index = static_cast<long long>(blockIdx.x) * SCORE_ROWS + threadIdx.x / WARP;
  if (index >= static_cast<long long>(rows) * outputs) return;
  const int lane = threadIdx.x % WARP, output = static_cast<int>(index % outputs);
  const float *from = x + index / outputs * inputs;
  double sum = 0.0;
  for (int i = lane; i < inputs; i += WARP)
    sum += static_cast<double>(from[i]) * w[static_cast<long long>(output) * inputs + i];
  sum = warp_sum(sum);
  if (lane == 0) out[index] = sum + bias[output];
}

// parts [gridDim.y, rows]: part p of a row is min(1, the largest product of the row of x and one of
// references `p * part_references` and as many as that in all); the grid is (ceil(rows / 64),
// ceil(num_references / part_references)), `part_references` a multiple of 64.
KERNEL __launch_bounds__(SCORE_THREADS)
    max_similarity(const float *x, const float *references, float *parts, int rows,
                   int num_references, int part_references, int width) {
  SHARED TileMemory memory;
  const int first_row = blockIdx.x * TILE, part = static_cast<int>(blockIdx.y);
  const int across = threadIdx.x % (TILE / OWN) * OWN;
  const int end = min(num_references, (part + 1) * part_references);
  float largest[OWN] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  for (int first = part * part_references; first < end; first += TILE) {
    float acc[OWN][OWN];
    multiply_tile(memory, acc, x, references, rows, num_references, width, first_row, first);
#pragma unroll
    for (int i = 0; i < OWN; ++i)
#pragma unroll
      for (int j = 0; j < OWN; ++j)
        if (first + across + j < num_references) largest[i] = fmaxf(largest[i], acc[i][j]);
  }
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    // The sixteen threads of a row are half a warp.
#pragma unroll
    for (int mask = TILE / OWN / 2; mask > 0; mask /= 2)
      largest[i] = fmaxf(largest[i], shuffle_xor(largest[i], mask));
    const int row = first_row + static_cast<int>(threadIdx.x) / (TILE / OWN) * OWN + i;
    if (across == 0 && row < rows)
      parts[static_cast<long long>(part) * rows + row] = fminf(largest[i], 1.0f);
  }
}

// The first part of each row becomes the largest of them; the grid is ceil(rows / 256).
KERNEL __launch_bounds__(SCORE_THREADS) max_of_parts(float *parts, int rows, int num_parts) {
  const int row = static_cast<int>(blockIdx.x * SCORE_THREADS + threadIdx.x);
  if (row >= rows) return;
  float largest = parts[row];
  for (int part = 1; part < num_parts; ++part)
    largest = fmaxf(largest, parts[static_cast<long long>(part) * rows + row]);
  parts[row] = largest;
}
