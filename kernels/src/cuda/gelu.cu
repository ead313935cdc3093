// Exact GELU in place on bf16 values.
//
// For the feed-forward states when cublasLt only adds the bias: its fused GELU is the tanh form.
// CPU twin: kernels/src/gelu.rs.
#include "gelu.cuh"

// `n` is a multiple of 8; any grid.
KERNEL __launch_bounds__(256) gelu(bf16 *x, long long n) {
  uint4 *chunks = reinterpret_cast<uint4 *>(x);
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n / 8;
       i += step) {
    uint4 words = chunks[i];
    words.x = gelu_of_pair(words.x);
    words.y = gelu_of_pair(words.y);
    words.z = gelu_of_pair(words.z);
    words.w = gelu_of_pair(words.w);
    chunks[i] = words;
  }
}
