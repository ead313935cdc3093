// Barriers that count bytes, tiles of tensors, and what broken rules of theirs end with.
#include <cmath>

#include "selftest.h"
#include "sim_hopper.cuh"

using namespace sim;

SIM_API cuTensorMapEncodeTiled(void *, int, unsigned, void *, const std::uint64_t *,
                               const std::uint64_t *, const unsigned *, const unsigned *, int, int,
                               int, int);
SIM_API cuFuncSetAttribute(void *, int, int);

static TensorMap map_of(std::uint64_t address, std::uint64_t rows, std::uint64_t columns) {
  TensorMap map;
  const std::uint64_t sizes[] = {columns, rows}, strides[] = {columns * 2};
  const unsigned box[] = {64, 8}, steps[] = {1, 1};
  EQUAL(cuTensorMapEncodeTiled(&map, 9, 2, reinterpret_cast<void *>(address), sizes, strides, box,
                               steps, 0, 3, 3, 0),
        SUCCESS);
  return map;
}

// The matrix [10, 128] of bf16 1, 2, 3, ... moved from row 4 on; gives what `to` holds, and what the
// threads saw of the tiles.
static std::pair<std::vector<float>, std::vector<float>> move(int forget) {
  std::vector<std::uint16_t> bits;
  for (int i = 0; i < 10 * 128; ++i)
    bits.push_back(static_cast<std::uint16_t>(round_to_bf16(static_cast<float>(i % 200))));
  const std::uint64_t from = upload(bits), to = upload(std::vector<std::uint16_t>(12 * 128)),
                      seen = upload(std::vector<float>(2));
  TensorMap from_map = map_of(from, 10, 128), to_map = map_of(to, 10, 128);
  int row = 4, column = 0;
  void *const kernel = function("move_tiles");
  void *arguments[] = {&from_map, &to_map, const_cast<std::uint64_t *>(&seen), &row, &column, &forget};
  EQUAL(cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 2048, nullptr, arguments, nullptr), SUCCESS);
  std::vector<float> values;
  for (const std::uint16_t value : download<std::uint16_t>(to, 12 * 128))
    values.push_back(to_float(bf16{value}));
  return {values, download<float>(seen, 2)};
}

static void moves_under(const char *schedule) {
  setenv("POLYSIFT_SIM_SCHEDULE", schedule, 1);
  start();
  const auto [values, seen] = move(0);
  for (int i = 0; i < 12 * 128; ++i) {
    const int row = i / 128;
    // Rows of the tile that the matrix has; the ones behind it are left alone.
    EQUAL(values[static_cast<std::size_t>(i)],
          4 <= row && row < 10 ? static_cast<float>(i % 200) + 1.0f : 0.0f);
  }
  EQUAL(seen[0], static_cast<float>(5 * 128 % 200));
  EQUAL(seen[1], static_cast<float>((5 * 128 + 64) % 200));
}
TEST(tiles_move_in_the_forward_order) { moves_under("forward"); }
TEST(tiles_move_in_the_reverse_order) { moves_under("reverse"); }
TEST(tiles_move_in_a_random_order) { moves_under("random:4"); }

TEST(a_tile_that_is_not_waited_for_shows) {
  start();
  CHECK(std::isnan(move(1).second[0]));
}
TEST(memory_that_is_used_again_too_early_shows) {
  start();
  CHECK(move(3).first != move(0).first);
}
TEST(a_phase_too_far_ahead_is_not_waited_for) {
  start();
  CHECK(std::isnan(move(6).second[0]));  // as on the device, where a phase before the first has ended
}
ABORTS(a_barrier_that_copies_do_not_know_is_named, "copy_tile_in before barrier_init_fence") {
  start();
  move(2);
}
ABORTS(bytes_that_were_not_announced_are_waited_for, "waits at a barrier; kernel move_tiles") {
  start();
  move(4);
}

TEST(values_of_e4m3_are_those_of_its_definition) {
  EQUAL(of_e4m3(0x00), 0.0f);
  EQUAL(of_e4m3(0x01), 0x1p-9f);
  EQUAL(of_e4m3(0x07), 7 * 0x1p-9f);
  EQUAL(of_e4m3(0x08), 0x1p-6f);
  EQUAL(of_e4m3(0x38), 1.0f);
  EQUAL(of_e4m3(0xb9), -1.125f);
  EQUAL(of_e4m3(0x7e), 448.0f);
  CHECK(std::isnan(of_e4m3(0x7f)) && std::isnan(of_e4m3(0xff)));
}

TEST(lanes_ask_each_other) {
  start();
  const std::uint64_t pointer = upload(std::vector<float>(64));
  EQUAL(launch("lanes", 1, 32, pointer), SUCCESS);
  const auto seen = download<float>(pointer, 64);
  for (unsigned i = 0; i < 32; ++i) {
    EQUAL(seen[i], 1.0f);
    EQUAL(seen[32 + i], 0.0f);
  }
}
ABORTS(a_group_that_waits_for_threads_that_do_not_come_is_named,
       "waits at a barrier of its warpgroup; kernel lonely_group") {
  start();
  launch("lonely_group", 1, 128, upload(std::vector<float>(256)));
}

ABORTS(a_launch_without_its_shared_memory_is_named,
       "a kernel that needs 2048 bytes of shared memory was launched with 0") {
  start();
  TensorMap map = map_of(upload(std::vector<std::uint16_t>(128)), 1, 128);
  launch("move_tiles", 1, 64, map, map, upload(std::vector<float>(2)), 0, 0, 0);
}
TEST(more_than_48_kib_have_to_be_allowed) {
  start();
  void *const kernel = function("lanes");
  const std::uint64_t x = upload(std::vector<float>(64));
  void *arguments[] = {const_cast<std::uint64_t *>(&x)};
  const auto launch = [&](unsigned bytes) {
    return cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, bytes, nullptr, arguments, nullptr);
  };
  EQUAL(launch(48 << 10), SUCCESS);
  EQUAL(launch((48 << 10) + 1), INVALID_VALUE);
  EQUAL(cuFuncSetAttribute(kernel, 8, (227 << 10) + 1), INVALID_VALUE);
  EQUAL(cuFuncSetAttribute(kernel, 8, 227 << 10), SUCCESS);
  EQUAL(launch(227 << 10), SUCCESS);
}

// With the library that watches the kernels.
ABORTS(a_race_of_what_threads_wrote_with_a_copy_is_named,
       "shared memory is read that was written and not published by shared_memory_fence") {
  start();
  move(5);
}

// ---- clusters --------------------------------------------------------------------------------

static void exchanges_under(const char *schedule) {
  setenv("POLYSIFT_SIM_SCHEDULE", schedule, 1);
  start();
  std::vector<float> x(14 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const std::uint64_t pointer = upload(x);
  EQUAL(launch("exchange", 14, 32, pointer, 0), SUCCESS);
  const auto sums = download<float>(pointer, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t first = i / 64 * 64, lane = i % 32;
    EQUAL(sums[i], x[i] + x[first + 31 - lane] + x[first + 32 + lane]);
  }
}
TEST(blocks_of_a_cluster_exchange_values) { exchanges_under("forward"); }
TEST(blocks_of_a_cluster_exchange_values_in_reverse) { exchanges_under("reverse"); }
TEST(blocks_of_a_cluster_exchange_values_in_a_random_order) { exchanges_under("random:3"); }

static void exchange(int forget) {
  start();
  launch("exchange", 2, 32, upload(std::vector<float>(64)), forget);
}
ABORTS(a_store_before_the_cluster_has_met_is_named,
       "store_in_cluster before cluster_barrier; kernel exchange") {
  exchange(1);
}
ABORTS(a_store_to_a_block_that_has_ended_is_named, "a block has ended that the other one") {
  exchange(2);
}
ABORTS(a_barrier_of_half_a_cluster_is_named, "a block has ended that the other one") {
  exchange(3);
}
ABORTS(a_store_to_a_block_that_is_not_there_is_named, "a block that the cluster does not have") {
  exchange(4);
}
TEST(a_grid_has_whole_clusters) {
  start();
  EQUAL(launch("exchange", 3, 32, upload(std::vector<float>(96)), 0), INVALID_VALUE);
}
