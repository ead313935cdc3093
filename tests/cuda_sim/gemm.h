// The matrix product behind the fake libcublasLt.so.13.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

// In which order the terms of a sum are added. HALVES: each half for itself, rounded to bf16.
enum class Order { ASCENDING, DESCENDING, EVEN_THEN_ODD, HALVES };

// An operand by rows: value (row, k) is at `data[row * row_step + k * k_step]`, bf16.
struct Operand {
  const std::uint16_t *data;
  std::size_t row_step, k_step;
};

struct Product {
  Operand a, b;
  std::uint16_t *out;  // value (row of a, row of b) at out[row_a + row_b * out_step], bf16
  std::size_t out_step;
  std::size_t m, n, k;        // rows of a, rows of b, terms
  const std::uint16_t *bias;  // per row of a; null: none
  bool gelu;                  // the tanh form
  float alpha;
  float beta;                  // if it is not 0, `beta` times `added` is added, laid out as `out`
  const std::uint16_t *added;
  std::size_t added_step;
  Order order;
};

// out = gelu(alpha * a b^T + beta * added + bias), f32 sums.
void multiply(const Product &product);

}  // namespace sim
