// The twin of the device part of kernels/src/cuda/hopper.cuh: products of a warpgroup, barriers that
// count bytes, and tiles of tensors.
#pragma once
#include "sim.cuh"

constexpr int SWIZZLE_ROWS = 8;
constexpr int SWIZZLE_BYTES = 1024;

// The memory of a launch lies with the other shared memory: it is as large as the kernel says.
#define DYNAMIC_SHARED(name, bytes)                   \
  alignas(1024) SHARED unsigned char name[(bytes)];   \
  sim::check_dynamic_shared(name, bytes)

struct Barrier {
  unsigned long long state;
};

struct alignas(128) TensorMap {
  unsigned long long words[16];
};
#define TENSOR_MAP const TensorMap

namespace sim {

// The value of an e4m3: no infinities, 0x7f and 0xff are NaN.
inline float of_e4m3(unsigned bits) {
  const unsigned exponent = bits >> 3 & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return NAN;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), static_cast<int>(exponent) - 10);
  return bits >> 7 ? -size : size;
}

// hopper.cpp
unsigned long long matrix_descriptor(const void *tile, int offset);
void warpgroup_fence();
void warpgroup_commit();
void warpgroup_wait(int pending);
// A product [64, 8 n] of 32 bytes of each row of `b`, or of 16 rows of it if `by_rows`. The left operand
// is in registers if `a` is not null, else described by `a_tile`. Values are of `value_bytes`: bf16 or e4m3.
struct GroupOperands {
  const unsigned *a;
  unsigned long long a_tile, b;
  bool by_rows;
  int fragments, value_bytes;
};
void warpgroup_multiply(float *acc, const GroupOperands &operands, bool add);
void warpgroup_registers(int registers);
void warpgroup_barrier(int index);

// async.cpp
void check_dynamic_shared(const void *start, std::uint64_t bytes);
void shared_memory_fence();
void barrier_init(Barrier *barrier, int awaited);
void barrier_init_fence();
void barrier_arrive(Barrier *barrier, int bytes);
void barrier_wait(Barrier *barrier, int parity);
void copy_tile_in(void *tile, const TensorMap &map, int row, int column, Barrier *barrier);
void copy_tile_out(const TensorMap &map, int row, int column, const void *tile);
void copy_tiles_out_wait(int pending);
void cluster_barrier();
void store_in_cluster(float2 *place, float2 value, int block, Barrier *barrier);

}  // namespace sim

DEVICE unsigned long long matrix_descriptor(const void *tile, int offset) {
  return sim::matrix_descriptor(tile, offset);
}
DEVICE void warpgroup_fence() { sim::warpgroup_fence(); }
DEVICE void shared_memory_fence() { sim::shared_memory_fence(); }
DEVICE void warpgroup_commit() { sim::warpgroup_commit(); }
template <int PENDING>
DEVICE void warpgroup_wait() {
  sim::warpgroup_wait(PENDING);
}
DEVICE void warpgroup_multiply(float (&acc)[8][4], unsigned long long a, unsigned long long b,
                               bool add) {
  sim::warpgroup_multiply(acc[0], {nullptr, a, b, false, 8, 2}, add);
}
DEVICE void warpgroup_multiply_rows(float (&acc)[8][4], const unsigned (&a)[4],
                                    unsigned long long b) {
  sim::warpgroup_multiply(acc[0], {a, 0, b, true, 8, 2}, true);
}
template <class T>
DEVICE void warpgroup_multiply(float (&acc)[24][4], unsigned long long a, unsigned long long b,
                               bool add) {
  sim::warpgroup_multiply(acc[0], {nullptr, a, b, false, 24, sizeof(T)}, add);
}
template <int N>
DEVICE void warpgroup_give_registers() {
  sim::warpgroup_registers(N);
}
template <int N>
DEVICE void warpgroup_take_registers() {
  sim::warpgroup_registers(N);
}
DEVICE void warpgroup_barrier(int index) { sim::warpgroup_barrier(index); }
DEVICE void barrier_init(Barrier *barrier, int awaited) { sim::barrier_init(barrier, awaited); }
DEVICE void barrier_init_fence() { sim::barrier_init_fence(); }
DEVICE void barrier_arrive(Barrier *barrier) { sim::barrier_arrive(barrier, 0); }
DEVICE void barrier_arrive_expecting(Barrier *barrier, int bytes) {
  sim::barrier_arrive(barrier, bytes);
}
DEVICE void barrier_wait(Barrier *barrier, int parity) { sim::barrier_wait(barrier, parity); }
DEVICE void copy_tile_in(void *tile, const TensorMap &map, int row, int column, Barrier *barrier) {
  sim::copy_tile_in(tile, map, row, column, barrier);
}
DEVICE void copy_tile_out(const TensorMap &map, int row, int column, const void *tile) {
  sim::copy_tile_out(map, row, column, tile);
}
template <int PENDING>
DEVICE void copy_tiles_out_wait() {
  sim::copy_tiles_out_wait(PENDING);
}
DEVICE void copy_tiles_out_finish() { sim::copy_tiles_out_wait(0); }
DEVICE void cluster_barrier() { sim::cluster_barrier(); }
DEVICE void store_in_cluster(float2 *place, float2 value, int block, Barrier *barrier) {
  sim::store_in_cluster(place, value, block, barrier);
}
