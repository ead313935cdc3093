// What kernels see: matrix instructions, copies, barriers, memory; and how broken rules end.
#include <cmath>
#include <cstring>
#include <limits>

#include "selftest.h"

using namespace sim;

TEST(bf16_rounds_to_the_nearest_and_ties_to_even) {
  const auto from_bits = [](std::uint32_t bits) { return __uint_as_float(bits); };
  EQUAL(round_to_bf16(1.0f), 0x3f80u);
  EQUAL(round_to_bf16(from_bits(0x3f808000)), 0x3f80u);  // halfway, the even one is below
  EQUAL(round_to_bf16(from_bits(0x3f818000)), 0x3f82u);  // halfway, the even one is above
  EQUAL(round_to_bf16(from_bits(0x3f808001)), 0x3f81u);
  EQUAL(round_to_bf16(from_bits(0xbf80ffff)), 0xbf81u);
  EQUAL(round_to_bf16(from_bits(0x7f7fffff)), 0x7f80u);  // past the largest: infinite
  EQUAL(round_to_bf16(-INFINITY), 0xff80u);
  EQUAL(round_to_bf16(from_bits(0x00018000)), 0x0002u);  // subnormal
  EQUAL(round_to_bf16(from_bits(0xffc00001)), 0x7fffu);  // every NaN
  EQUAL(pack_bf16(1.0f, -2.0f), 0xc0003f80u);
  EQUAL(first_of(0xc0003f80u), 1.0f);
  EQUAL(second_of(0xc0003f80u), -2.0f);
}

TEST(exp2_takes_subnormal_results_as_zeros) {
  EQUAL(exp2_approximate(-INFINITY), 0.0f);
  EQUAL(exp2_approximate(-126.0f), 0x1p-126f);
  EQUAL(exp2_approximate(-127.0f), 0.0f);
  EQUAL(exp2_approximate(3.0f), 8.0f);
}

TEST(a_matrix_instruction_is_the_matrix_product) {
  start();
  const auto a = numbers(16 * 16, 1), b = numbers(16 * 8, 2), c = numbers(16 * 8, 3);
  const std::uint64_t result = upload(c);
  EQUAL(launch("fragments", 1, 32, upload(a), upload(b), result), SUCCESS);
  const auto out = download<float>(result, 16 * 8);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      double want = c[row * 8 + column];
      for (int k = 0; k < 16; ++k) want += double{a[row * 16 + k]} * b[k * 8 + column];
      // Multiples of 2^-14 below 32: every f32 sum of them is exact.
      EQUAL(static_cast<double>(out[row * 8 + column]), want);
    }
}

TEST(lanes_get_two_values_of_each_matrix) {
  start();
  const std::uint64_t result = upload(std::vector<unsigned>(2 * 32 * 4));
  EQUAL(launch("matrices", 1, 32, result), SUCCESS);
  const auto out = download<unsigned>(result, 2 * 32 * 4);
  // The PTX manual: thread T0 gets of row 0 the elements 0 and 1, T1 2 and 3, ..., T4 of row 1 0
  // and 1.
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      const unsigned row = lane / 4, column = lane % 4 * 2, start = matrix * 64;
      EQUAL(out[lane * 4 + matrix], (start + row * 8 + column) | (start + row * 8 + column + 1)
                                                                     << 16);
      EQUAL(out[128 + lane * 4 + matrix],
            (start + column * 8 + row) | (start + (column + 1) * 8 + row) << 16);
    }
}

TEST(shuffles_exchange_lanes_of_one_warp) {
  start();
  const std::uint64_t singles = upload(std::vector<float>(64)),
                      doubles = upload(std::vector<double>(64));
  EQUAL(launch("shuffles", 1, 64, singles, doubles, 5), SUCCESS);
  const auto single = download<float>(singles, 64);
  const auto sums = download<double>(doubles, 64);
  for (unsigned i = 0; i < 64; ++i) {
    EQUAL(single[i], static_cast<float>(i ^ 5) + 0.5f);
    double want = 0.0;
    for (unsigned j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) want += 1.0 / (1.0 + j);
    CHECK(std::abs(sums[i] - want) < 1e-14);
  }
}

TEST(copies_land_when_they_are_waited_for) {
  start();
  const std::uint64_t out = upload(std::vector<float>(5));
  EQUAL(launch("copies", 1, 32, upload(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}), out), SUCCESS);
  const auto seen = download<float>(out, 5);
  CHECK(std::isnan(seen[0]));
  EQUAL(seen[1], 2.0f);
  CHECK(std::isnan(seen[2]));
  EQUAL(seen[3], 6.0f);
  EQUAL(seen[4], 0.0f);
}

static void reverses_under(const char *schedule) {
  setenv("POLYSIFT_SIM_SCHEDULE", schedule, 1);
  start();
  const unsigned blocks = 37;
  const auto in = numbers(blocks * 256, 4);
  const std::uint64_t out = upload(std::vector<float>(in.size())),
                      poison = upload(std::vector<float>(in.size()));
  EQUAL(launch("reverse", blocks, 256, upload(in), out, poison, 0), SUCCESS);
  const auto result = download<float>(out, in.size()), found = download<float>(poison, in.size());
  for (unsigned block = 0; block < blocks; ++block)
    for (unsigned i = 0; i < 256; ++i) {
      EQUAL(result[block * 256 + i], in[block * 256 + 255 - i]);
      CHECK(std::isnan(found[block * 256 + i]));  // shared memory starts as NaN in every block
    }
}
TEST(a_block_works_in_the_forward_order) { reverses_under("forward"); }
TEST(a_block_works_in_the_reverse_order) { reverses_under("reverse"); }
TEST(a_block_works_in_a_random_order) { reverses_under("random:7"); }

TEST(a_thread_that_returned_is_not_waited_for) {
  start();
  const auto in = numbers(256, 5);
  const std::uint64_t out = upload(std::vector<float>(256)),
                      poison = upload(std::vector<float>(256));
  EQUAL(launch("reverse", 1, 256, upload(in), out, poison, 1), SUCCESS);
  const auto result = download<float>(out, 256);
  for (unsigned i = 0; i < 224; ++i) EQUAL(result[i], in[255 - i]);
  for (unsigned i = 224; i < 256; ++i) EQUAL(result[i], 0.0f);
}

static void shows_a_forgotten_barrier_under(const char *schedule) {
  setenv("POLYSIFT_SIM_SCHEDULE", schedule, 1);
  start();
  const std::uint64_t out = upload(std::vector<float>(256));
  EQUAL(launch("racy", 1, 256, upload(numbers(256, 6)), out), SUCCESS);
  int nans = 0;
  for (const float value : download<float>(out, 256)) nans += std::isnan(value);
  CHECK(nans > 0);
}
TEST(a_forgotten_barrier_shows_in_the_forward_order) { shows_a_forgotten_barrier_under("forward"); }
TEST(a_forgotten_barrier_shows_in_the_reverse_order) { shows_a_forgotten_barrier_under("reverse"); }
TEST(a_forgotten_barrier_shows_in_a_random_order) { shows_a_forgotten_barrier_under("random:1"); }

// ---- products of a warpgroup -----------------------------------------------------------------

static std::vector<float> group_product(const std::vector<float> &a, const std::vector<float> &b,
                                        int at, int by_rows, int forget) {
  std::vector<std::uint16_t> bits;
  for (const float value : b) bits.push_back(static_cast<std::uint16_t>(round_to_bf16(value)));
  const std::uint64_t result = upload(std::vector<float>(64 * 64));
  EQUAL(launch("group_product", 1, 128, upload(a), upload(bits), result, at, by_rows, forget),
        SUCCESS);
  return download<float>(result, 64 * 64);
}

TEST(a_product_of_a_warpgroup_is_the_matrix_product) {
  start();
  const auto a = numbers(64 * 16, 1), b = numbers(64 * 64, 2);
  for (int by_rows = 0; by_rows < 2; ++by_rows)
    for (int at = 0; at < 64; at += 16) {
      const auto out = group_product(a, b, at, by_rows, 0);
      for (int row = 0; row < 64; ++row)
        for (int column = 0; column < 64; ++column) {
          double want = 0.0;
          for (int k = 0; k < 16; ++k)
            want += 2.0 * a[row * 16 + k] *
                    (by_rows ? b[(at + k) * 64 + column] : b[column * 64 + at + k]);
          EQUAL(static_cast<double>(out[row * 64 + column]), want);  // exact, as above
        }
    }
}
TEST(sums_of_a_warpgroup_are_nan_until_they_are_waited_for) {
  start();
  const float seen = group_product(numbers(64 * 16, 1), numbers(64 * 64, 2), 0, 0, 3)[0];
  CHECK(std::isnan(seen));
}
ABORTS(a_copy_that_was_not_published_is_named,
       "shared memory is read that was written and not published") {
  start();
  group_product(numbers(64 * 16, 1), numbers(64 * 64, 2), 0, 0, 1);
}
ABORTS(a_warpgroup_product_without_a_fence_is_named,
       "a warpgroup product without warpgroup_fence; kernel group_product") {
  start();
  group_product(numbers(64 * 16, 1), numbers(64 * 64, 2), 0, 0, 2);
}
ABORTS(a_warp_that_waits_alone_is_named,
       "warp 2 waits at warpgroup_wait; warp 3 waits at a block barrier; kernel lonely_warp") {
  start();
  launch("lonely_warp", 1, 128, upload(std::vector<float>(128)));
}

// ---- races: with the library that looks for them ---------------------------------------------

ABORTS(a_race_is_named,
       "race on shared memory: written by thread 127 after a read by thread 128 without a barrier; "
       "kernel racy") {
  setenv("POLYSIFT_SIM_SCHEDULE", "reverse", 1);
  start();
  launch("racy", 1, 256, upload(numbers(256, 6)), upload(std::vector<float>(256)));
}
ABORTS(a_race_between_a_product_and_a_copy_is_named,
       "after a read by the matrix units without a barrier; kernel overwritten_operand") {
  start();
  launch("overwritten_operand", 1, 128, upload(std::vector<std::uint16_t>(64 * 64)),
         upload(std::vector<float>(128)));
}
TEST(no_race_is_seen_where_there_are_barriers) {
  reverses_under("random:2");
  group_product(numbers(64 * 16, 1), numbers(64 * 64, 2), 0, 1, 0);
  EQUAL(launch("matrices", 1, 32, upload(std::vector<unsigned>(2 * 32 * 4))), SUCCESS);
}

// ---- broken rules ----------------------------------------------------------------------------

static std::uint64_t values(std::size_t count) { return upload(std::vector<float>(count)); }

ABORTS(a_barrier_that_not_all_reach_is_named,
       "shuffle_xor can never complete (warp 0: lanes none wait at nothing, 0-4 at a block "
       "barrier, none have "
       "returned); kernel barrier_against_shuffle, block (0, 0, 0), thread (5, 0, 0)") {
  start();
  launch("barrier_against_shuffle", 1, 64, values(64));
}
ABORTS(a_barrier_that_not_all_reach_is_named_in_reverse,
       "a block barrier that not all threads reach (warp 1: lanes 5-31 wait at shuffle_xor") {
  setenv("POLYSIFT_SIM_SCHEDULE", "reverse", 1);
  start();
  launch("barrier_against_shuffle", 1, 64, values(64));
}
ABORTS(a_shuffle_without_a_lane_is_named,
       "kernel shuffle_without_all, block (0, 0, 0), thread (40, 0, 0)") {
  start();
  launch("shuffle_without_all", 1, 64, values(64));
}
ABORTS(lanes_at_different_places_are_named,
       "multiply_add while other lanes are elsewhere (warp 0: lanes 0-2 wait at shuffle_xor") {
  start();
  launch("different_collectives", 1, 64, values(64));
}
ABORTS(a_shuffle_of_half_a_warp_is_named, "shuffle_xor without all lanes of the warp") {
  start();
  launch("shuffles", 1, 16, values(64), values(128), 1);
}
TEST(a_uniform_value_is_the_warps) {
  start();
  const std::uint64_t pointer = values(64);
  EQUAL(launch("uniform", 1, 64, pointer, 0), SUCCESS);
  const auto seen = download<float>(pointer, 64);
  for (unsigned i = 0; i < 64; ++i) EQUAL(seen[i], static_cast<float>(i / 32));
}
ABORTS(a_uniform_value_that_differs_is_named,
       "uniform_over_warp: a value that differs between lanes; kernel uniform") {
  start();
  launch("uniform", 1, 64, values(64), 1);
}
ABORTS(a_copy_that_nobody_waits_for_is_named,
       "a thread returned with copies under way; kernel forgotten_wait") {
  start();
  launch("forgotten_wait", 1, 64, values(64));
}
ABORTS(a_misaligned_copy_is_named,
       "copy_async_16: an address of shared memory that is no multiple of 16") {
  start();
  launch("misaligned_copy", 1, 64, values(64));
}
ABORTS(a_copy_to_global_memory_is_named, "copy_async_16: an address outside of shared memory") {
  start();
  launch("copy_to_global", 1, 64, values(64));
}
ABORTS(a_read_past_the_end_is_named,
       "illegal address, 0 bytes past the end of an allocation of 400 bytes on device 0; kernel "
       "read_at, block (0, 0, 0), thread (9, 0, 0)") {
  start();
  launch("read_at", 1, 64, values(100), 100LL);
}
ABORTS(a_read_before_the_start_is_named, "4 bytes before an allocation of 4096 bytes on device 0") {
  start();
  launch("read_at", 1, 64, values(1024), -1LL);
}
ABORTS(a_graph_that_outlives_its_memory_is_named,
       "in an allocation of 4096 bytes that was freed; kernel read_at") {
  start();
  void *stream, *graph, *exec;
  cuStreamCreate(&stream, 1);
  const std::uint64_t memory = values(1024);
  function("read_at");
  cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL);
  EQUAL(launch_on(stream, "read_at", 1, 64, memory, 3LL), SUCCESS);
  cuStreamEndCapture(stream, &graph);
  cuGraphInstantiateWithFlags(&exec, graph, 0);
  cuMemFree_v2(memory);
  cuGraphLaunch(exec, stream);
}
