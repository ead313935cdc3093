// Layer norm of rows: of the sum of embeddings, of a tensor that already includes the residual, or
// of f32 states to which an update is added.
//
// All write bf16, and the same rows times `inverse` in e4m3 to `copy` unless it is null.
#include "layer_norm.cuh"

#define LAYER_NORM_KERNELS(NAME, N, EXACT)                                                         \
  KERNEL NORM_BOUNDS(N)                                                                            \
      embed_layer_norm_##NAME(const int *input_ids, const int *position_ids, const bf16 *words,    \
                              const float *positions, const float *gamma, const float *beta,       \
                              float eps, bf16 *hidden, e4m3 *copy, float inverse, int rows,        \
                              int width) {                                                         \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    read_embeddings(own, input_ids, position_ids, words, positions);                               \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, hidden, copy, inverse);                                                        \
  }                                                                                                \
  KERNEL NORM_BOUNDS(N)                                                                            \
      layer_norm_##NAME(const bf16 *x, const float *gamma, const float *beta, float eps,           \
                        bf16 *out, e4m3 *copy, float inverse, int rows, int width) {               \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    read_rows(own, x);                                                                             \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, out, copy, inverse);                                                           \
  }                                                                                                \
  KERNEL NORM_BOUNDS(N)                                                                            \
      add_norm_##NAME(const bf16 *update, float *states, int first, const float *gamma,            \
                      const float *beta, float eps, bf16 *hidden, e4m3 *copy, float inverse,       \
                      int rows, int width) {                                                       \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    add_rows(own, update, states, hidden, first);                                                  \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, hidden, copy, inverse);                                                        \
  }

FOR_NORM_WIDTHS(LAYER_NORM_KERNELS)
