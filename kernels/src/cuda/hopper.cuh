// Device functions that Hopper adds (sm_90a): matrix products of a warpgroup (4 warps, 128 threads)
// on operands in shared memory, copies of tensor tiles by one thread, and barriers that count
// bytes. The simulator replaces this file, as it replaces device.cuh.
//
// An operand tile in shared memory has rows of 128 bytes and starts at a multiple of 1,024 bytes.
// The eight 16-byte chunks of row r are stored in the order `chunk ^ (r % 8)` (the 128-byte swizzle
// of PTX's matrix descriptors and tensor maps), so that neither rows nor columns collide in a bank.
#pragma once
#include "device.cuh"

#ifdef POLYSIFT_SIM
#include "sim_hopper.cuh"
#else

constexpr int SWIZZLE_ROWS = 8;
constexpr int SWIZZLE_BYTES = 1024;  // of 8 rows

// Declares the `bytes` of dynamic shared memory that a launch gives a kernel.
#define DYNAMIC_SHARED(name, bytes) extern __shared__ __align__(1024) unsigned char name[]

DEVICE unsigned shared_address(const void *place) {
  return static_cast<unsigned>(__cvta_generic_to_shared(place));
}

// ---- products of a warpgroup -----------------------------------------------------------------

// Returns PTX's matrix descriptor: address, leading and stride offset in units of 16 bytes, swizzle
// mode 1 (128 bytes). Groups of 8 rows follow each other; rows of 128 bytes need no leading offset.
// `offset` is in bytes, within the first row or a multiple of 1,024.
DEVICE unsigned long long matrix_descriptor(const void *tile, int offset) {
  const unsigned long long address = shared_address(tile);
  constexpr unsigned long long stride = SWIZZLE_BYTES >> 4;
  return ((address & 0x3ffff) >> 4 | 1ull << 16 | stride << 32 | 1ull << 62) +
         static_cast<unsigned long long>(offset >> 4);
}

// Orders earlier writes to registers before the products that follow.
DEVICE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Orders this thread's writes to shared memory, by ordinary stores or cp.async, before later
// accesses by the matrix units and the copies of tensor tiles.
DEVICE void shared_memory_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Closes the group of products issued so far.
DEVICE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `PENDING` groups are under way.
template <int PENDING>
DEVICE void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#define FOUR(acc, n) "+f"(acc[n][0]), "+f"(acc[n][1]), "+f"(acc[n][2]), "+f"(acc[n][3])
#define THIRTY_TWO(acc, n)                                                              \
  FOUR(acc, n), FOUR(acc, n + 1), FOUR(acc, n + 2), FOUR(acc, n + 3), FOUR(acc, n + 4), \
      FOUR(acc, n + 5), FOUR(acc, n + 6), FOUR(acc, n + 7)
#define NAMES_32                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_96                                                                                 \
  NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "   \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "   \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// The sums of a product have the layout of mma.m16n8k16: warp w of the warpgroup holds rows 16 w to
// 16 w + 15, and acc[n] is its fragment of columns 8 n to 8 n + 7. `a` and `b` are descriptors of
// 32 bytes of each row, except for `b` of warpgroup_multiply_rows.

// Computes acc [64, 64] = (add ? acc : 0) + a [64, 16] b [64, 16]^T in bf16.
DEVICE void warpgroup_multiply(float (&acc)[8][4], unsigned long long a, unsigned long long b,
                               bool add) {
  asm volatile(
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32
      "}, %32, %33, add, 1, 1, 0, 0;\n\t}"
      : THIRTY_TWO(acc, 0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// Computes acc [64, 64] += a [64, 16] b [16, 64] in bf16; a is in registers with the layout of
// mma.m16n8k16, b is 16 rows of a tile.
DEVICE void warpgroup_multiply_rows(float (&acc)[8][4], const unsigned (&a)[4],
                                    unsigned long long b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
               : THIRTY_TWO(acc, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#define MULTIPLY_192(shape, transposed)                                                \
  asm volatile(                                                                        \
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %98, 0;\n\t"                          \
      "wgmma.mma_async.sync.aligned." shape " {" NAMES_96                              \
      "}, %96, %97, add, 1, 1" transposed ";\n\t}"                                     \
      : THIRTY_TWO(acc, 0), THIRTY_TWO(acc, 8), THIRTY_TWO(acc, 16)                    \
      : "l"(a), "l"(b), "r"(static_cast<int>(add)))

// acc [64, 192] = (add ? acc : 0) + a [64, 32 bytes] b [192, 32 bytes]^T: 16 bf16 or 32 e4m3.
template <class T>
DEVICE void warpgroup_multiply(float (&acc)[24][4], unsigned long long a, unsigned long long b,
                               bool add) {
  if constexpr (sizeof(T) == 2)
    MULTIPLY_192("m64n192k16.f32.bf16.bf16", ", 0, 0");
  else
    MULTIPLY_192("m64n192k32.f32.e4m3.e4m3", "");
}

// ---- registers and barriers ------------------------------------------------------------------

// Gives back registers, or waits for more, until a thread has `N`; all warps of the group join.
template <int N>
DEVICE void warpgroup_give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
DEVICE void warpgroup_take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// Waits for the threads of a warpgroup; each group has its own `index`, from 1 on.
DEVICE void warpgroup_barrier(int index) {
  asm volatile("bar.sync %0, 128;" ::"r"(index) : "memory");
}

// A barrier in shared memory (PTX's mbarrier). A phase ends when all awaited arrivals have come and
// all announced bytes are there; phases have parity 0, 1, 0, ...
struct Barrier {
  unsigned long long state;
};
DEVICE void barrier_init(Barrier *barrier, int awaited) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(awaited)
               : "memory");
}
// Makes newly initialised barriers visible to the copies of tensor tiles.
DEVICE void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::
                   : "memory");
}
DEVICE void barrier_arrive(Barrier *barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(
                   shared_address(barrier))
               : "memory");
}
// Arrives and announces bytes that copies will bring.
DEVICE void barrier_arrive_expecting(Barrier *barrier, int bytes) {
  asm volatile(
      "{\n\t.reg .b64 state;\n\t"
      "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n\t}" ::"r"(
          shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Waits for the end of the phase of this parity; the phase before the first counts as ended.
DEVICE void barrier_wait(Barrier *barrier, int parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n\tWAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra WAIT;\n\t}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// ---- clusters of blocks ----------------------------------------------------------------------

// Waits for all threads of the cluster. Afterwards its blocks see each other's barriers, whose
// initialisation `barrier_init_fence` has to follow.
DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
// Writes `value` to the shared memory of block number `block` of the cluster, where it lies as
// `place` and `barrier` do in this one. Its 8 bytes count at the barrier.
DEVICE void store_in_cluster(float2 *place, float2 value, int block, Barrier *barrier) {
  asm volatile(
      "{\n\t.reg .b32 place, barrier;\n\t"
      "mapa.shared::cluster.u32 place, %0, %4;\n\tmapa.shared::cluster.u32 barrier, %3, %4;\n\t"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [place], {%1, %2}, "
      "[barrier];\n\t}" ::"r"(shared_address(place)),
      "f"(value.x), "f"(value.y), "r"(shared_address(barrier)), "r"(block)
      : "memory");
}

// ---- tiles of tensors ------------------------------------------------------------------------

// The driver's description of a matrix in global memory and its tiles, with rows of 128 bytes (the
// swizzle above) or 64 (the 64-byte one). Beyond the matrix it reads zeros and writes nothing.
struct alignas(128) TensorMap {
  unsigned long long words[16];
};
#define TENSOR_MAP const __grid_constant__ TensorMap

// One thread copies the tile that starts at (row, column) to shared memory; all bytes of the tile
// count at `barrier`.
DEVICE void copy_tile_in(void *tile, const TensorMap &map, int row, int column, Barrier *barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
// One thread copies a tile from shared memory and closes a group of its copies.
DEVICE void copy_tile_out(const TensorMap &map, int row, int column, const void *tile) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n\t"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(column), "r"(row), "r"(shared_address(tile))
      : "memory");
}
// Waits until at most `PENDING` of this thread's groups still read shared memory.
template <int PENDING>
DEVICE void copy_tiles_out_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
// Waits until the results of this thread's groups are written.
DEVICE void copy_tiles_out_finish() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

#endif
