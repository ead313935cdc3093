// Device functions that the kernels use, one per instruction.
//
// The kernels include only this file and no CUDA header. With POLYSIFT_SIM defined, the simulator
// of the tests (tests/cuda_sim/sim.cuh) supplies the same functions and runs the kernels on a CPU;
// nvcc compiles everything below.
#pragma once

#ifdef POLYSIFT_SIM
#include "sim.cuh"
#else

// The bits of a bf16 value: the upper half of an f32.
struct bf16 {
  unsigned short bits;
};

// The bits of an e4m3 value: sign, 4 bits of exponent, 3 of fraction.
struct e4m3 {
  unsigned char bits;
};

#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define SHARED __shared__

constexpr int WARP = 32;

DEVICE float to_float(bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

// Packs two bf16 into one word, the first in the lower half; rounds to nearest even.
DEVICE unsigned pack_bf16(float first, float second) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
}

// Packs two e4m3 into the lower half of a word, the first in its lower byte. Numbers are rounded to
// nearest even, and beyond 448 to 448; NaN stays NaN (0x7f). Only the image for sm_90a multiplies
// e4m3, so only its kernels write it.
#if __CUDA_ARCH__ >= 900
constexpr bool HAS_E4M3 = true;
DEVICE unsigned pack_e4m3(float first, float second) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
}
#else
constexpr bool HAS_E4M3 = false;
DEVICE unsigned pack_e4m3(float, float) { return 0; }
#endif

DEVICE float first_of(unsigned word) { return __uint_as_float(word << 16); }
DEVICE float second_of(unsigned word) { return __uint_as_float(word & 0xffff0000u); }

// Returns the value of lane (own index ^ `mask`); all lanes of a warp take part.
DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE double shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Returns the value of lane `lane`, which may differ per lane; all lanes of a warp take part.
DEVICE float shuffle_from(float value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
// Returns a value that is the same in all lanes of a warp, so that the compiler knows it to be.
DEVICE int uniform_over_warp(int value) { return __shfl_sync(0xffffffffu, value, 0); }
// Returns true if the condition holds for any lane of the warp; all lanes take part.
DEVICE bool any_lane(bool condition) { return __any_sync(0xffffffffu, condition); }
// Waits for the lanes of a warp, which then see each other's writes to memory.
DEVICE void warp_barrier() { __syncwarp(); }

// Returns the sum over a warp, added in a fixed order, to every lane.
template <class T>
DEVICE T warp_sum(T value) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Returns 2^x within 2 ulp, and 0 for -inf.
DEVICE float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Loads 16 bytes of global memory, or returns zeros without reading if not `valid`. It does not
// branch, so that several loads in a row run concurrently. `global` is a multiple of 16.
DEVICE uint4 load_16(const void *global, bool valid) {
  uint4 words;
  asm volatile(
      "{\n\t.reg .pred valid;\n\tsetp.ne.b32 valid, %5, 0;\n\t"
      "mov.b32 %0, 0;\n\tmov.b32 %1, 0;\n\tmov.b32 %2, 0;\n\tmov.b32 %3, 0;\n\t"
      "@valid ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n\t}"
      : "=&r"(words.x), "=&r"(words.y), "=&r"(words.z), "=&r"(words.w)
      : "l"(__cvta_generic_to_global(global)), "r"(static_cast<int>(valid))
      : "memory");
  return words;
}

// Writes 16 bytes of global memory if `valid`. `global` is a multiple of 16.
DEVICE void store_16(void *global, const uint4 &words, bool valid) {
  asm volatile(
      "{\n\t.reg .pred valid;\n\tsetp.ne.b32 valid, %5, 0;\n\t"
      "@valid st.global.v4.b32 [%0], {%1, %2, %3, %4};\n\t}" ::"l"(__cvta_generic_to_global(global)),
      "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"(static_cast<int>(valid))
      : "memory");
}

// Copies 16 bytes from global to shared memory in the background, or writes zeros without reading
// `global` if not `valid`. Both addresses are multiples of 16.
DEVICE void copy_async_16(void *shared, const void *global, bool valid) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes)
               : "memory");
}
// Closes a group of this thread's copies.
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `PENDING` of this thread's groups are under way.
template <int PENDING>
DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Loads four 8x8 matrices of 16-bit values from shared memory: lane l names row l % 8 (16 bytes) of
// matrix l / 8. Lane l gets the values (l / 4, 2 * (l % 4)) and (l / 4, 2 * (l % 4) + 1) of each
// matrix, or of each transposed matrix from load_matrices_transposed.
DEVICE void load_matrices(unsigned (&out)[4], const void *row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}
DEVICE void load_matrices_transposed(unsigned (&out)[4], const void *row) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// Computes acc [16, 8] f32 += a [16, 16] bf16 times b [16, 8] bf16, in the fragment layout of PTX's
// mma.m16n8k16.
DEVICE void multiply_add(float (&acc)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Waits for all threads of the block.
DEVICE void block_barrier() { __syncthreads(); }

// Lets the next kernel of the stream take multiprocessors as soon as this one leaves them, and waits
// until the kernels before this one have written all results. Every thread of
// every kernel calls it before it reads or writes global memory. (Before Hopper, kernels do not
// overlap.)
DEVICE void wait_for_previous_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
#endif
}

#endif
