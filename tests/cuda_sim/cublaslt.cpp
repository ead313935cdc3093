// The fake libcublasLt.so.13: bf16 products with f32 sums, on the streams of the fake driver.
//
// What the encoder does not use is CUBLAS_STATUS_NOT_SUPPORTED.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver.h"
#include "gemm.h"

SIM_API cuCtxSynchronize();

namespace {

enum Status : int { OK = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum : int { R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, OP_N = 0, OP_T = 1 };
enum : int { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4, EPILOGUE_GELU_BIAS = 36 };
enum : int {
  DESC_POINTER_MODE = 2,
  DESC_TRANSA = 3,
  DESC_TRANSB = 4,
  DESC_EPILOGUE = 7,
  DESC_BIAS_POINTER = 8,
  DESC_BIAS_DATA_TYPE = 26
};
enum : int { PREFERENCE_WORKSPACE = 1, PREFERENCE_REDUCTION_SCHEMES = 3 };
enum : unsigned { REDUCTION_NONE = 0, REDUCTION_IN_PLACE = 1, REDUCTION_ANY = 7 };

constexpr std::size_t ALIGNMENT = 16;

struct Desc {
  int compute_type, scale_type;
  int transa = OP_N, transb = OP_N;
  int epilogue = EPILOGUE_DEFAULT;
  const void *bias = nullptr;
  int bias_type = -1;  // the type of D
};

struct Layout {
  int type;
  std::uint64_t rows, columns;
  std::int64_t ld;
};

struct Preference {
  std::uint64_t workspace = 0;
  unsigned reduction_schemes = REDUCTION_ANY;
};

struct Algo {
  std::uint64_t data[8];
};

struct HeuristicResult {
  Algo algo;
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 64 + 8 + 8 + 16);

// The algorithms: they differ in the order of their sums, in the workspace that they want, and in how
// they add parts of a sum; in place is in the type of the result, bf16.
struct Method {
  sim::Order order;
  std::size_t workspace;
  unsigned reduction_scheme;
};
constexpr Method METHODS[] = {{sim::Order::ASCENDING, 0, REDUCTION_NONE},
                              {sim::Order::HALVES, 0, REDUCTION_IN_PLACE},
                              {sim::Order::DESCENDING, 0, REDUCTION_NONE},
                              {sim::Order::EVEN_THEN_ODD, 1 << 20, REDUCTION_NONE}};
constexpr std::uint64_t ALGO_MAGIC =
    0x706f6c7973696674;  // so that another one's algorithm is noticed
constexpr std::uint64_t NUM_METHODS = sizeof METHODS / sizeof METHODS[0];

// Whether the shapes and types fit together and are among those that exist here.
Status check(const Desc &desc, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
  for (const Layout *layout : {&a, &b, &c, &d}) {
    if (layout->rows == 0 || layout->columns == 0 ||
        layout->ld < static_cast<std::int64_t>(layout->rows))
      return INVALID_VALUE;
    if (layout->type != R_16BF) return NOT_SUPPORTED;
  }
  if (desc.compute_type != COMPUTE_32F || desc.scale_type != R_32F) return NOT_SUPPORTED;
  if (desc.epilogue != EPILOGUE_DEFAULT && desc.epilogue != EPILOGUE_BIAS &&
      desc.epilogue != EPILOGUE_GELU_BIAS)
    return NOT_SUPPORTED;
  if (desc.epilogue != EPILOGUE_DEFAULT && desc.bias_type != -1 && desc.bias_type != R_16BF)
    return NOT_SUPPORTED;
  const std::uint64_t m = desc.transa == OP_T ? a.columns : a.rows,
                      k = desc.transa == OP_T ? a.rows : a.columns;
  const std::uint64_t n = desc.transb == OP_T ? b.rows : b.columns,
                      k_b = desc.transb == OP_T ? b.columns : b.rows;
  if (k != k_b || d.rows != m || d.columns != n || c.rows != m || c.columns != n)
    return INVALID_VALUE;
  return OK;
}

Status check_algo(const Algo &algo) {
  return algo.data[0] == ALGO_MAGIC && algo.data[1] < NUM_METHODS ? OK : INVALID_VALUE;
}

template <class T>
Status set(T &to, const void *value, std::size_t bytes) {
  if (!value || bytes != sizeof to) return INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return OK;
}

Status complain(const char *what) {
  std::fprintf(stderr, "simulated cublasLt: %s\n", what);
  return INVALID_VALUE;
}

// Whether a matrix is memory of the stream's device and well aligned.
bool is_there(void *stream, const void *start, const Layout &layout) {
  const std::size_t values =
      (layout.columns - 1) * static_cast<std::size_t>(layout.ld) + layout.rows;
  return start && reinterpret_cast<std::uintptr_t>(start) % ALIGNMENT == 0 &&
         polysift_sim_owns(stream, start, 2 * values);
}

bool overlap(const void *x, std::size_t x_bytes, const void *y, std::size_t y_bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(x), b = reinterpret_cast<std::uintptr_t>(y);
  return a < b + y_bytes && b < a + x_bytes;
}

std::size_t bytes_of(const Layout &layout) {
  return 2 * layout.columns * static_cast<std::size_t>(layout.ld);
}

}  // namespace

#define LT_API extern "C" __attribute__((visibility("default")))

LT_API Status cublasLtCreate(void **handle) {
  *handle = new int(0);
  return OK;
}
// Waits for the device, as the documentation of cublasLt says.
LT_API Status cublasLtDestroy(void *handle) {
  cuCtxSynchronize();
  delete static_cast<int *>(handle);
  return OK;
}
LT_API std::size_t cublasLtGetVersion() { return 130000; }

LT_API Status cublasLtMatmulDescCreate(Desc **desc, int compute_type, int scale_type) {
  *desc = new Desc{compute_type, scale_type};
  return OK;
}
LT_API Status cublasLtMatmulDescDestroy(Desc *desc) {
  delete desc;
  return OK;
}
LT_API Status cublasLtMatmulDescSetAttribute(Desc *desc, int attribute, const void *value,
                                             std::size_t bytes) {
  switch (attribute) {
    case DESC_TRANSA:
      return set(desc->transa, value, bytes);
    case DESC_TRANSB:
      return set(desc->transb, value, bytes);
    case DESC_EPILOGUE:
      return set(desc->epilogue, value, bytes);
    case DESC_BIAS_POINTER:
      return set(desc->bias, value, bytes);
    case DESC_BIAS_DATA_TYPE:
      return set(desc->bias_type, value, bytes);
    case DESC_POINTER_MODE: {
      int mode;
      if (set(mode, value, bytes) != OK) return INVALID_VALUE;
      return mode == 0 ? OK : NOT_SUPPORTED;  // the factors lie in host memory
    }
    default:
      return NOT_SUPPORTED;
  }
}

LT_API Status cublasLtMatrixLayoutCreate(Layout **layout, int type, std::uint64_t rows,
                                         std::uint64_t columns, std::int64_t ld) {
  *layout = new Layout{type, rows, columns, ld};
  return OK;
}
LT_API Status cublasLtMatrixLayoutDestroy(Layout *layout) {
  delete layout;
  return OK;
}

LT_API Status cublasLtMatmulPreferenceCreate(Preference **preference) {
  *preference = new Preference;
  return OK;
}
LT_API Status cublasLtMatmulPreferenceDestroy(Preference *preference) {
  delete preference;
  return OK;
}
LT_API Status cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute,
                                                   const void *value, std::size_t bytes) {
  switch (attribute) {
    case PREFERENCE_WORKSPACE:
      return set(preference->workspace, value, bytes);
    case PREFERENCE_REDUCTION_SCHEMES:
      return set(preference->reduction_schemes, value, bytes);
    default:
      return OK;  // the others only narrow down a search that has no use for them here
  }
}

LT_API Status cublasLtMatmulAlgoGetHeuristic(void *, const Desc *desc, const Layout *a,
                                             const Layout *b, const Layout *c, const Layout *d,
                                             const Preference *preference, int requested,
                                             HeuristicResult *results, int *found) {
  if (requested <= 0) return INVALID_VALUE;
  *found = 0;
  if (const Status status = check(*desc, *a, *b, *c, *d)) return status;
  for (std::uint64_t i = 0; i < NUM_METHODS && *found < requested; ++i) {
    const unsigned scheme = METHODS[i].reduction_scheme;
    if (METHODS[i].workspace > preference->workspace ||
        (scheme & preference->reduction_schemes) != scheme)
      continue;
    results[(*found)++] = {{{ALGO_MAGIC, i}}, METHODS[i].workspace, OK, 1.0f, {}};
  }
  return OK;
}

LT_API Status cublasLtMatmulAlgoCheck(void *, const Desc *desc, const Layout *a, const Layout *b,
                                      const Layout *c, const Layout *d, const Algo *algo,
                                      HeuristicResult *result) {
  if (const Status status = check(*desc, *a, *b, *c, *d)) return status;
  if (const Status status = check_algo(*algo)) return status;
  // Some algorithms ask for the alignment of the bias.
  if (desc->epilogue != EPILOGUE_DEFAULT && !desc->bias) return INVALID_VALUE;
  *result = {*algo, METHODS[algo->data[1]].workspace, OK, 1.0f, {}};
  return OK;
}

LT_API Status cublasLtMatmul(void *, const Desc *desc, const float *alpha, const void *a,
                             const Layout *a_layout, const void *b, const Layout *b_layout,
                             const float *beta, const void *c, const Layout *c_layout,
                             void *d, const Layout *d_layout, const Algo *algo, void *workspace,
                             std::size_t workspace_bytes, void *stream) {
  if (const Status status = check(*desc, *a_layout, *b_layout, *c_layout, *d_layout)) return status;
  if (algo && check_algo(*algo)) return complain("an algorithm that is not from this library");
  const Method method = METHODS[algo ? algo->data[1] : 0];
  if (method.workspace > workspace_bytes)
    return complain("the workspace is smaller than the algorithm says");
  if (method.workspace > 0 && !polysift_sim_owns(stream, workspace, workspace_bytes))
    return complain("the workspace is no memory of the stream's device");
  if (!is_there(stream, a, *a_layout) || !is_there(stream, b, *b_layout) ||
      !is_there(stream, d, *d_layout) || (*beta != 0.0f && !is_there(stream, c, *c_layout)))
    return complain("a matrix is no memory of the stream's device, or not aligned to 16 bytes");
  if (overlap(d, bytes_of(*d_layout), a, bytes_of(*a_layout)) ||
      overlap(d, bytes_of(*d_layout), b, bytes_of(*b_layout)))
    return complain("the result overlaps an operand");
  const bool has_bias = desc->epilogue != EPILOGUE_DEFAULT;
  if (has_bias && (!desc->bias || !polysift_sim_owns(stream, desc->bias, 2 * d_layout->rows)))
    return complain("the bias is no memory of the stream's device");

  sim::Product product;
  const auto a_ld = static_cast<std::size_t>(a_layout->ld),
             b_ld = static_cast<std::size_t>(b_layout->ld);
  const auto *a_data = static_cast<const std::uint16_t *>(a),
             *b_data = static_cast<const std::uint16_t *>(b);
  product.a = desc->transa == OP_T ? sim::Operand{a_data, a_ld, 1} : sim::Operand{a_data, 1, a_ld};
  product.b = desc->transb == OP_T ? sim::Operand{b_data, 1, b_ld} : sim::Operand{b_data, b_ld, 1};
  product.out = static_cast<std::uint16_t *>(d);
  product.out_step = static_cast<std::size_t>(d_layout->ld);
  product.m = d_layout->rows;
  product.n = d_layout->columns;
  product.k = desc->transa == OP_T ? a_layout->rows : a_layout->columns;
  product.bias = has_bias ? static_cast<const std::uint16_t *>(desc->bias) : nullptr;
  product.gelu = desc->epilogue == EPILOGUE_GELU_BIAS;
  product.alpha = *alpha;
  product.beta = *beta;
  product.added = static_cast<const std::uint16_t *>(c);
  product.added_step = static_cast<std::size_t>(c_layout->ld);
  product.order = method.order;
  // An algorithm leaves its workspace in disorder.
  sim::Operation operation = [product, workspace, bytes = method.workspace] {
    if (bytes > 0) std::memset(workspace, 0xff, bytes);
    sim::multiply(product);
  };
  return polysift_sim_submit(stream, &operation) == sim::SUCCESS ? OK : EXECUTION_FAILED;
}
