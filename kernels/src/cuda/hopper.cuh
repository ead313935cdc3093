// What Hopper adds (sm_90a): matrix products of a warpgroup (4 warps, 128 threads) that read the
// right operand straight from shared memory. Beside device.cuh, and like it replaced by the simulator.
//
// An operand tile in shared memory has rows of 128 bytes (64 bf16) and starts at a multiple of 1,024
// bytes; the eight 16-byte chunks of row r are stored in the order `chunk ^ (r % 8)` (the 128-byte
// swizzle of PTX's matrix descriptors), so that neither rows nor columns collide in a bank.
#pragma once
#include "device.cuh"

#ifdef POLYSIFT_SIM
#include "sim_hopper.cuh"
#else

constexpr int SWIZZLE_ROWS = 8;
constexpr int SWIZZLE_BYTES = 1024;  // of 8 rows

// PTX's matrix descriptor: address, leading and stride offset in units of 16 bytes, swizzle mode 1
// (128 bytes). Groups of 8 rows follow each other directly; the leading offset is not used by
// operands that are 64 values wide.
DEVICE unsigned long long matrix_descriptor(const void *tile) {
  const unsigned long long address = __cvta_generic_to_shared(tile);
  constexpr unsigned long long stride = SWIZZLE_BYTES >> 4;
  return (address & 0x3ffff) >> 4 | 1ull << 16 | stride << 32 | 1ull << 62;
}

// Orders writes to registers before, and to shared memory by ordinary stores or cp.async, with the
// products that follow.
DEVICE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void shared_memory_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Closes the group of products issued so far and waits for it.
DEVICE void warpgroup_finish() {
  asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Two e4m3 in the lower half of a word, the first in its lower byte; rounds to nearest even, numbers
// beyond 448 to 448; NaN stays NaN (0x7f).
DEVICE unsigned pack_e4m3(float first, float second) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
}

#define ACCUMULATORS(acc)                                                                          \
  "+f"(acc[0][0]), "+f"(acc[0][1]), "+f"(acc[0][2]), "+f"(acc[0][3]),                              \
  "+f"(acc[1][0]), "+f"(acc[1][1]), "+f"(acc[1][2]), "+f"(acc[1][3]),                              \
  "+f"(acc[2][0]), "+f"(acc[2][1]), "+f"(acc[2][2]), "+f"(acc[2][3]),                              \
  "+f"(acc[3][0]), "+f"(acc[3][1]), "+f"(acc[3][2]), "+f"(acc[3][3]),                              \
  "+f"(acc[4][0]), "+f"(acc[4][1]), "+f"(acc[4][2]), "+f"(acc[4][3]),                              \
  "+f"(acc[5][0]), "+f"(acc[5][1]), "+f"(acc[5][2]), "+f"(acc[5][3]),                              \
  "+f"(acc[6][0]), "+f"(acc[6][1]), "+f"(acc[6][2]), "+f"(acc[6][3]),                              \
  "+f"(acc[7][0]), "+f"(acc[7][1]), "+f"(acc[7][2]), "+f"(acc[7][3])
#define ACCUMULATOR_NAMES                                                                          \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "    \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// acc [64, 64] = (add ? acc : 0) + a [64, 16] times the columns `column` to `column + 15` of
// b [64, 64], transposed. `a` is in registers and `acc` in the layout of mma.m16n8k16: warp w of the
// warpgroup holds the rows 16 w to 16 w + 15, acc[n] being its fragment of the columns 8 n to 8 n + 7.
DEVICE void warpgroup_multiply_columns(float (&acc)[8][4], const unsigned (&a)[4],
                                       unsigned long long b, int column, bool add) {
  const unsigned long long advance = static_cast<unsigned long long>(column) * 2 >> 4;
  asm volatile(
      "{\n\t.reg .pred keep;\n\tsetp.ne.b32 keep, %37, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_NAMES
      ", {%32, %33, %34, %35}, %36, keep, 1, 1, 0;\n\t}"
      : ACCUMULATORS(acc)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b + advance), "r"(static_cast<int>(add)));
}

// acc [64, 64] += a [64, 16] times the rows `row` to `row + 15` of b [64, 64]; `row` is a multiple of 16.
DEVICE void warpgroup_multiply_rows(float (&acc)[8][4], const unsigned (&a)[4],
                                    unsigned long long b, int row) {
  const unsigned long long advance =
      static_cast<unsigned long long>(row) / SWIZZLE_ROWS * SWIZZLE_BYTES >> 4;
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " ACCUMULATOR_NAMES
      ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : ACCUMULATORS(acc)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b + advance));
}

#endif
