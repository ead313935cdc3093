// The fake cublasLt against a plain product in f64.
#include <cmath>

#include "selftest.h"

using namespace sim;

extern "C" {
int cublasLtCreate(void **);
int cublasLtMatmulDescCreate(void **, int, int);
int cublasLtMatmulDescSetAttribute(void *, int, const void *, std::size_t);
int cublasLtMatrixLayoutCreate(void **, int, std::uint64_t, std::uint64_t, std::int64_t);
int cublasLtMatmulPreferenceCreate(void **);
int cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, std::size_t);
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int,
                                   void *, int *);
int cublasLtMatmul(void *, void *, const float *, const void *, void *, const void *, void *,
                   const float *, const void *, void *, void *, void *, const void *, void *,
                   std::size_t, void *);
}

namespace {

constexpr int BF16 = 14;
constexpr std::size_t WORKSPACE = 1 << 20;

struct Found {
  std::uint64_t algo[8];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

std::vector<std::uint16_t> rounded(const std::vector<float> &values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) bits.push_back(static_cast<std::uint16_t>(round_to_bf16(value)));
  return bits;
}

// y [t, n] = x [t, k] w^T [n, k] + bias as the encoder asks for it.
struct Linear {
  void *handle, *desc, *w_layout, *x_layout, *y_layout, *preference, *stream;
  std::vector<Found> found = std::vector<Found>(8);

  Linear(std::size_t t, std::size_t n, std::size_t k, int epilogue, std::uint64_t bias,
         std::size_t workspace, unsigned reduction_schemes = 2) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, 68, 0);
    const int transposed = 1;
    EQUAL(cublasLtMatmulDescSetAttribute(desc, 3, &transposed, 4), 0);
    EQUAL(cublasLtMatmulDescSetAttribute(desc, 7, &epilogue, 4), 0);
    EQUAL(cublasLtMatmulDescSetAttribute(desc, 8, &bias, 8), 0);
    const auto ld = [](std::size_t rows) { return static_cast<std::int64_t>(rows); };
    cublasLtMatrixLayoutCreate(&w_layout, BF16, k, n, ld(k));
    cublasLtMatrixLayoutCreate(&x_layout, BF16, k, t, ld(k));
    cublasLtMatrixLayoutCreate(&y_layout, BF16, n, t, ld(n));
    cublasLtMatmulPreferenceCreate(&preference);
    EQUAL(cublasLtMatmulPreferenceSetAttribute(preference, 1, &workspace, 8), 0);
    EQUAL(cublasLtMatmulPreferenceSetAttribute(preference, 3, &reduction_schemes, 4), 0);
    cuStreamCreate(&stream, 1);
  }
  int search(int requested) {
    int count = -1;
    const int status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, w_layout, x_layout, y_layout, y_layout,
                                       preference, requested, found.data(), &count);
    return status == 0 ? count : -status;
  }
  int run(std::uint64_t x, std::uint64_t w, std::uint64_t y, int algo, std::uint64_t workspace,
          std::size_t workspace_bytes, float beta = 0.0f, std::uint64_t added = 0) {
    const float alpha = 1.0f;
    const auto at = [](std::uint64_t address) { return reinterpret_cast<void *>(address); };
    return cublasLtMatmul(handle, desc, &alpha, at(w), w_layout, at(x), x_layout, &beta, at(added),
                          y_layout, at(y), y_layout, found[static_cast<std::size_t>(algo)].algo,
                          at(workspace), workspace_bytes, stream);
  }
};

double expected(const std::vector<float> &x, const std::vector<float> &w,
                const std::vector<float> &bias, std::size_t k, std::size_t row, std::size_t column,
                int epilogue) {
  double sum = epilogue == 1 ? 0.0 : bias[column];
  for (std::size_t i = 0; i < k; ++i) sum += double{x[row * k + i]} * w[column * k + i];
  if (epilogue != 36) return sum;
  return 0.5 * sum * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
}

void multiplies(std::size_t t, std::size_t n, std::size_t k, int epilogue) {
  const auto x = numbers(t * k, 1), w = numbers(n * k, 2), bias = numbers(n, 3);
  const std::uint64_t on_x = upload(rounded(x)), on_w = upload(rounded(w)),
                      on_bias = upload(rounded(bias));
  const std::uint64_t workspace = upload(std::vector<char>(WORKSPACE));
  Linear linear(t, n, k, epilogue, on_bias, WORKSPACE);
  EQUAL(linear.search(8), 3);
  for (int algo = 0; algo < 3; ++algo) {
    const std::uint64_t y = upload(std::vector<std::uint16_t>(t * n, 0x7fff));
    EQUAL(linear.run(on_x, on_w, y, algo, workspace, WORKSPACE), 0);
    EQUAL(cuStreamSynchronize(linear.stream), SUCCESS);
    const auto out = download<std::uint16_t>(y, t * n);
    for (std::size_t row = 0; row < t; ++row)
      for (std::size_t column = 0; column < n; ++column) {
        const double want = expected(x, w, bias, k, row, column, epilogue);
        // One rounding to bf16, 2^-8; the f32 sum of k terms below 1 errs by less than k^2 2^-24
        // on the way, the tanh by less than 1e-6.
        const double slack = std::abs(want) / 256 + static_cast<double>(k * k) * 0x1p-24 + 1e-6;
        CHECK(std::abs(to_float(bf16{out[row * n + column]}) - want) <= slack);
      }
  }
}

}  // namespace

TEST(products_of_odd_shapes_are_right) {
  start();
  multiplies(1, 1, 1, 1);
  multiplies(7, 17, 5, 1);
  multiplies(33, 257, 40, 4);
}
TEST(the_epilogues_add_a_bias_and_the_tanh_form_of_gelu) {
  start();
  multiplies(130, 96, 64, 4);
  multiplies(130, 96, 64, 36);
}

TEST(the_search_honours_the_workspace_and_the_count) {
  start();
  const std::uint64_t bias = upload(std::vector<std::uint16_t>(8));
  Linear without(8, 8, 8, 4, bias, 0), with(8, 8, 8, 4, bias, WORKSPACE);
  EQUAL(without.search(8), 2);
  EQUAL(with.search(1), 1);
  EQUAL(with.search(8), 3);
  EQUAL(Linear(8, 8, 8, 4, bias, 0, 7).search(8), 3);  // one that rounds parts of its sums
  const std::uint64_t x = upload(std::vector<std::uint16_t>(64)),
                      y = upload(std::vector<std::uint16_t>(64));
  EQUAL(with.run(x, x, y, 2, 0, 0), 7);      // it wants a workspace
  EQUAL(with.run(x, x, x, 0, 0, 0), 7);      // the result would overwrite an operand
  EQUAL(with.run(x, x, y + 2, 0, 0, 0), 7);  // alignment, and past the end
  EQUAL(with.run(x, x, 4096, 0, 0, 0), 7);   // no memory of the device
  EQUAL(with.run(x, x, y, 0, 0, 0), 0);
  Linear relu(8, 8, 8, 2, bias, 0);
  EQUAL(relu.search(8), -15);
}

TEST(a_matrix_is_added_where_it_counts) {
  start();
  const std::uint64_t one = upload(rounded(std::vector<float>(64, 1.0f))),
                      bias = upload(rounded(std::vector<float>(8, 2.0f))),
                      added = upload(rounded(std::vector<float>(64, 0.5f))),
                      y = upload(std::vector<std::uint16_t>(64));
  Linear linear(8, 8, 8, 4, bias, 0);
  EQUAL(linear.search(1), 1);
  EQUAL(linear.run(one, one, y, 0, 0, 0, 1.0f, added), 0);
  EQUAL(to_float(bf16{download<std::uint16_t>(y, 64)[9]}), 10.5f);
  EQUAL(linear.run(one, one, y, 0, 0, 0, 1.0f, 0), 7);
}

TEST(a_product_is_captured_with_its_stream) {
  start();
  const std::uint64_t one = upload(rounded(std::vector<float>(64, 1.0f))),
                      y = upload(std::vector<std::uint16_t>(64));
  Linear linear(8, 8, 8, 1, 0, 0);
  EQUAL(linear.search(1), 1);
  void *graph, *exec;
  EQUAL(cuStreamBeginCapture_v2(linear.stream, CAPTURE_THREAD_LOCAL), SUCCESS);
  EQUAL(linear.run(one, one, y, 0, 0, 0), 0);
  EQUAL(cuStreamEndCapture(linear.stream, &graph), SUCCESS);
  EQUAL(download<std::uint16_t>(y, 64)[0], 0);
  cuGraphInstantiateWithFlags(&exec, graph, 0);
  EQUAL(cuGraphLaunch(exec, linear.stream), SUCCESS);
  EQUAL(to_float(bf16{download<std::uint16_t>(y, 64)[63]}), 8.0f);
}
