#include "gemm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "sim.cuh"

namespace sim {
namespace {

// A register tile: 16 rows of a in two vectors, 6 rows of b.
constexpr std::size_t TILE_A = 16, TILE_B = 6;
// Rows of a packed at a time.
constexpr std::size_t BLOCK_A = 256;

using Vector = float __attribute__((vector_size(32), aligned(4)));

// The number of the term that is added as number i.
std::vector<std::size_t> terms(const Product &p) {
  std::vector<std::size_t> order(p.k);
  for (std::size_t i = 0, even = (p.k + 1) / 2; i < p.k; ++i) {
    switch (p.order) {
      case Order::ASCENDING:
      case Order::HALVES:
        order[i] = i;
        break;
      case Order::DESCENDING:
        order[i] = p.k - 1 - i;
        break;
      case Order::EVEN_THEN_ODD:
        order[i] = i < even ? 2 * i : 2 * (i - even) + 1;
        break;
    }
  }
  return order;
}

// Rows [first, first + TILE) as f32, k by k; rows past the end are zeros.
template <std::size_t TILE>
void pack(const std::vector<std::size_t> &order, const Operand &from, std::size_t first,
          std::size_t rows, float *to) {
  for (std::size_t row = 0; row < TILE; ++row) {
    const bool inside = first + row < rows;
    const std::uint16_t *source = from.data + (first + row) * from.row_step;
    for (std::size_t i = 0; i < order.size(); ++i)
      to[i * TILE + row] = inside ? to_float(bf16{source[order[i] * from.k_step]}) : 0.0f;
  }
}

void multiply_tile(const float *a, const float *b, std::size_t k, float (&out)[TILE_B][TILE_A]) {
  Vector acc[TILE_B][2] = {};
  for (std::size_t i = 0; i < k; ++i) {
    Vector low, high;
    std::memcpy(&low, a + i * TILE_A, sizeof low);
    std::memcpy(&high, a + i * TILE_A + 8, sizeof high);
#pragma GCC unroll 6
    for (std::size_t j = 0; j < TILE_B; ++j) {
      acc[j][0] += low * b[i * TILE_B + j];
      acc[j][1] += high * b[i * TILE_B + j];
    }
  }
  std::memcpy(out, acc, sizeof out);
}

void multiply_halves(const float *a, const float *b, std::size_t k, float (&out)[TILE_B][TILE_A]) {
  float other[TILE_B][TILE_A];
  multiply_tile(a, b, k / 2, out);
  multiply_tile(a + k / 2 * TILE_A, b + k / 2 * TILE_B, k - k / 2, other);
  const auto rounded = [](float x) {
    return to_float(bf16{static_cast<unsigned short>(round_to_bf16(x))});
  };
  for (std::size_t j = 0; j < TILE_B; ++j)
    for (std::size_t i = 0; i < TILE_A; ++i) out[j][i] = rounded(out[j][i]) + rounded(other[j][i]);
}

float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

void store(const Product &p, const float (&tile)[TILE_B][TILE_A], std::size_t first_a,
           std::size_t first_b) {
  for (std::size_t j = 0; j < TILE_B && first_b + j < p.n; ++j)
    for (std::size_t i = 0; i < TILE_A && first_a + i < p.m; ++i) {
      float value = tile[j][i] * p.alpha;
      if (p.beta != 0.0f)
        value += p.beta * to_float(bf16{p.added[first_a + i + (first_b + j) * p.added_step]});
      if (p.bias) value += to_float(bf16{p.bias[first_a + i]});
      if (p.gelu) value = gelu_tanh(value);
      p.out[first_a + i + (first_b + j) * p.out_step] =
          static_cast<std::uint16_t>(round_to_bf16(value));
    }
}

void multiply_block(const Product &p, const std::vector<std::size_t> &order, std::size_t first) {
  const std::size_t last = std::min(first + BLOCK_A, p.m);
  std::vector<float> a(BLOCK_A * p.k), b(TILE_B * p.k);
  for (std::size_t row = first; row < last; row += TILE_A)
    pack<TILE_A>(order, p.a, row, p.m, a.data() + (row - first) * p.k);
  for (std::size_t column = 0; column < p.n; column += TILE_B) {
    pack<TILE_B>(order, p.b, column, p.n, b.data());
    for (std::size_t row = first; row < last; row += TILE_A) {
      float tile[TILE_B][TILE_A];
      const float *of_a = a.data() + (row - first) * p.k;
      if (p.order == Order::HALVES)
        multiply_halves(of_a, b.data(), p.k, tile);
      else
        multiply_tile(of_a, b.data(), p.k, tile);
      store(p, tile, row, column);
    }
  }
}

}  // namespace

void multiply(const Product &p) {
  const std::size_t blocks = (p.m + BLOCK_A - 1) / BLOCK_A;
  const std::vector<std::size_t> order = terms(p);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t block; (block = next++) < blocks;) multiply_block(p, order, block * BLOCK_A);
  };
  const std::size_t small = 1 << 20;  // a thread costs more than it brings
  const std::size_t helpers =
      p.m * p.n * p.k < small
          ? 0
          : std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), blocks) - 1;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < helpers; ++i) threads.emplace_back(work);
  work();
  for (std::thread &thread : threads) thread.join();
}

}  // namespace sim
