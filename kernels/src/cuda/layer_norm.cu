// Layer norm of rows: of the sum of embeddings, of a tensor that already includes the residual, or
// of f32 states to which an update is added.
#include "layer_norm.cuh"

#define LAYER_NORM_KERNELS(NAME, N, EXACT)                                                         \
  KERNEL NORM_BOUNDS(N)                                                                            \
      embed_layer_norm_##NAME(const int *input_ids, const int *position_ids, const bf16 *words,    \
                              const float *positions, const float *gamma, const float *beta,       \
                              float eps, bf16 *hidden, int rows, int width) {                      \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    read_embeddings(own, input_ids, position_ids, words, positions);                               \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, hidden);                                                                       \
  }                                                                                                \
  KERNEL NORM_BOUNDS(N)                                                                            \
      layer_norm_##NAME(const bf16 *x, const float *gamma, const float *beta, float eps,           \
                        bf16 *out, int rows, int width) {                                          \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    read_rows(own, x);                                                                             \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, out);                                                                          \
  }                                                                                                \
  KERNEL NORM_BOUNDS(N)                                                                            \
      add_norm_##NAME(const bf16 *update, float *states, int first, const float *gamma,            \
                      const float *beta, float eps, bf16 *hidden, int rows, int width) {           \
    Rows<N, EXACT> own;                                                                            \
    if (!take_rows(own, rows, width)) return;                                                      \
    add_rows(own, update, states, hidden, first);                                                  \
    normalise(own, gamma, beta, eps);                                                              \
    write_rows(own, hidden);                                                                       \
  }

FOR_NORM_WIDTHS(LAYER_NORM_KERNELS)
