// The twin of kernels/src/cuda/device.cuh: the same functions, carried out on a CPU.
//
// A thread of a block is a fiber (engine.cpp). What one thread does alone is plain C++ here; what a
// warp or a block does together goes to the engine, which sees to it that all take part.
#pragma once

#ifdef POLYSIFT_SIM_NAMES
// Only preprocessed, to find the kernels' names and block sizes: see kernel_names.sh.
#define KERNEL SIM_KERNEL_NAME
#define __launch_bounds__(...) SIM_LAUNCH_BOUNDS(__VA_ARGS__)
#define __cluster_dims__(blocks, ...) SIM_CLUSTER(blocks)
#define DEVICE
#define DEVICE_MEMBER
#define SHARED
#else

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

struct bf16 {
  unsigned short bits;
};
struct e4m3 {
  unsigned char bits;
};

#define KERNEL extern "C" void
#define DEVICE [[maybe_unused]] static inline
#define DEVICE_MEMBER inline
// The engine fills the thread-local memory of this library before every block: nothing else in it
// may be thread_local.
#define SHARED static thread_local
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline __attribute__((always_inline))

constexpr int WARP = 32;

// ---- built-in types and variables ------------------------------------------------------------

struct dim3 {
  unsigned x, y, z;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
DEVICE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
DEVICE int2 make_int2(int x, int y) { return {x, y}; }
DEVICE float2 make_float2(float x, float y) { return {x, y}; }
DEVICE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
DEVICE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
DEVICE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
DEVICE double2 make_double2(double x, double y) { return {x, y}; }

namespace sim {

// Where a fiber is; lies at the top of its stack, so that the stack pointer leads to it.
struct Position {
  dim3 thread, block, block_size, grid_size;
};
constexpr std::uintptr_t STACK_BYTES = 128 * 1024;
constexpr std::uintptr_t POSITION_BYTES = 64;
static_assert(sizeof(Position) <= POSITION_BYTES);

__attribute__((always_inline)) inline const Position &position() {
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return *reinterpret_cast<const Position *>((frame | (STACK_BYTES - 1)) + 1 - POSITION_BYTES);
}

// engine.cpp
std::uint64_t shuffle_xor(std::uint64_t bits, int mask);
float shuffle_from(float value, int lane);
int uniform_over_warp(int value);
bool any_lane(bool condition);
void warp_barrier();
void copy_async(void *shared, const void *global, bool valid);
void copy_async_commit();
void copy_async_wait(int pending);
void load_matrices(unsigned *out, const void *row, bool transposed);
void multiply_add(float *acc, const unsigned *a, unsigned b0, unsigned b1);
void block_barrier();
void wait_for_previous_kernels();

}  // namespace sim

#define threadIdx (sim::position().thread)
#define blockIdx (sim::position().block)
#define blockDim (sim::position().block_size)
#define gridDim (sim::position().grid_size)

// ---- built-in functions ----------------------------------------------------------------------

DEVICE unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
DEVICE float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
DEVICE float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
template <class A, class B>
DEVICE std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
DEVICE std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

// ---- the functions of device.cuh -------------------------------------------------------------

DEVICE float to_float(bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}

namespace sim {
inline unsigned round_to_bf16(float value) {
  if (value != value) return 0x7fffu;
  const unsigned bits = __float_as_uint(value);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// e4m3 has a sign, 4 bits of exponent (bias 7) and 3 of mantissa; its largest number is 448 = 0x7e,
// its only NaN 0x7f, and below 2^-6 it counts in steps of 2^-9.
inline unsigned round_to_e4m3(float value) {
  if (value != value) return 0x7fu;
  const unsigned sign = __float_as_uint(value) >> 24 & 0x80u;
  const float size = std::fmin(std::fabs(value), 448.0f);
  if (size < 0x1p-6f) return sign | static_cast<unsigned>(std::nearbyint(size * 0x1p9f));
  const unsigned bits = __float_as_uint(size);
  return sign | (((bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - ((127u - 7u) << 3));
}
}  // namespace sim

DEVICE unsigned pack_bf16(float first, float second) {
  return sim::round_to_bf16(first) | sim::round_to_bf16(second) << 16;
}
constexpr bool HAS_E4M3 = true;
DEVICE unsigned pack_e4m3(float first, float second) {
  return sim::round_to_e4m3(first) | sim::round_to_e4m3(second) << 8;
}
DEVICE float first_of(unsigned word) { return __uint_as_float(word << 16); }
DEVICE float second_of(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

DEVICE float shuffle_xor(float value, int mask) {
  return __uint_as_float(static_cast<unsigned>(sim::shuffle_xor(__float_as_uint(value), mask)));
}
DEVICE double shuffle_xor(double value, int mask) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, 8);
  bits = sim::shuffle_xor(bits, mask);
  std::memcpy(&value, &bits, 8);
  return value;
}

DEVICE float shuffle_from(float value, int lane) { return sim::shuffle_from(value, lane); }
DEVICE int uniform_over_warp(int value) { return sim::uniform_over_warp(value); }
DEVICE bool any_lane(bool condition) { return sim::any_lane(condition); }
DEVICE void warp_barrier() { sim::warp_barrier(); }

template <class T>
DEVICE T warp_sum(T value) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// The device's ex2.approx.ftz takes subnormal numbers as zeros on both sides.
DEVICE float exp2_approximate(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

DEVICE uint4 load_16(const void *global, bool valid) {
  return valid ? *static_cast<const uint4 *>(global) : uint4{0, 0, 0, 0};
}

DEVICE void store_16(void *global, const uint4 &words, bool valid) {
  if (valid) *static_cast<uint4 *>(global) = words;
}


DEVICE void copy_async_16(void *shared, const void *global, bool valid) {
  sim::copy_async(shared, global, valid);
}
DEVICE void copy_async_commit() { sim::copy_async_commit(); }
template <int PENDING>
DEVICE void copy_async_wait() {
  sim::copy_async_wait(PENDING);
}

DEVICE void load_matrices(unsigned (&out)[4], const void *row) {
  sim::load_matrices(out, row, false);
}
DEVICE void load_matrices_transposed(unsigned (&out)[4], const void *row) {
  sim::load_matrices(out, row, true);
}
DEVICE void multiply_add(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  sim::multiply_add(acc, a, b0, b1);
}
DEVICE void block_barrier() { sim::block_barrier(); }
DEVICE void wait_for_previous_kernels() { sim::wait_for_previous_kernels(); }

#endif
