// Products of a warpgroup: 128 threads, the right operand in shared memory, done when waited for.
#include <cmath>
#include <cstring>

#include "sim_hopper.cuh"
#include "worker.h"

namespace sim {
namespace {

constexpr int COLUMNS = 64;  // of a result
constexpr int DEPTH = 16;    // terms of an instruction
constexpr int VALUES = 32;   // of the result, per thread
constexpr std::uintptr_t TILE_ALIGNMENT = 1024;

// Where value (term, column) of the operand lies. Rows of 128 bytes, groups of 8 rows 1024 bytes
// apart, and the 128-byte swizzle: bits 4 to 6 of an address are changed by its bits 7 to 9.
const bf16 *value_at(const GroupProduct &product, int term, int column) {
  const int row = product.by_rows ? term : column, in_row = product.by_rows ? column : term;
  std::uintptr_t address =
      product.operand + static_cast<std::uintptr_t>(row / 8 * 1024 + row % 8 * 128 + in_row * 2);
  address ^= (address >> 7 & 7) << 4;
  return reinterpret_cast<const bf16 *>(address);
}

// One instruction: sums [64, 64], of which warp w has the rows 16 w to 16 w + 15.
void multiply(Worker &worker, GroupProducts *const *lists, std::size_t index) {
  const GroupProduct &shared = lists[0]->products[index];
  float b[DEPTH][COLUMNS];
  for (int term = 0; term < DEPTH; ++term)
    for (int column = 0; column < COLUMNS; ++column) {
      const bf16 *value = value_at(shared, term, column);
      worker.check_published(value);
      b[term][column] = to_float(*value);
    }
  for (int warp = 0; warp < 4; ++warp) {
    float a[16][DEPTH], c[16][COLUMNS];
    for (int lane = 0; lane < WARP; ++lane) {
      const GroupProduct &own = lists[warp * WARP + lane]->products[index];
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) {
        float *pair = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
        pair[0] = first_of(own.a[i]), pair[1] = second_of(own.a[i]);
      }
      for (int i = 0; i < VALUES; ++i)
        c[g + i / 2 % 2 * 8][i / 4 * 8 + 2 * t + i % 2] =
            own.add ? lists[warp * WARP + lane]->sums[i] : 0.0f;
    }
    for (int row = 0; row < 16; ++row)
      for (int term = 0; term < DEPTH; ++term)
        for (int column = 0; column < COLUMNS; ++column)
          c[row][column] += a[row][term] * b[term][column];
    for (int lane = 0; lane < WARP; ++lane)
      for (int i = 0; i < VALUES; ++i)
        lists[warp * WARP + lane]->sums[i] =
            c[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
  }
}

void finish(void *const *args, int) {
  Worker &worker = Worker::current();
  auto *const *lists = reinterpret_cast<GroupProducts *const *>(args);
  const auto &first = lists[0]->products;
  for (int thread = 1; thread < GROUP_THREADS; ++thread) {
    const auto &other = lists[thread]->products;
    bool same = other.size() == first.size();
    for (std::size_t i = 0; same && i < first.size(); ++i)
      same = other[i].operand == first[i].operand && other[i].by_rows == first[i].by_rows &&
             other[i].add == first[i].add;
    if (!same) fail("the threads of a warpgroup do not ask for the same products");
  }
  for (std::size_t i = 0; i < first.size(); ++i) multiply(worker, lists, i);
  for (int thread = 0; thread < GROUP_THREADS; ++thread) {
    GroupProducts &own = *lists[thread];
    if (!own.products.empty()) std::memcpy(own.target, own.sums, sizeof own.sums);
    own.products.clear();
    own.fenced = false;
  }
}

const Collective FINISH = {"warpgroup_finish", finish};

}  // namespace

unsigned long long matrix_descriptor(const void *tile) {
  Worker::current().check_shared(tile, "matrix_descriptor");
  const auto address = reinterpret_cast<std::uintptr_t>(tile);
  if (address % TILE_ALIGNMENT != 0)
    fail("matrix_descriptor: a tile that does not start at a multiple of 1024 bytes");
  return address;
}

void warpgroup_fence() { Worker::current().products().fenced = true; }

void shared_memory_fence() { Worker::current().publish(); }

void warpgroup_multiply(float *acc, const unsigned *a, unsigned long long b, int offset,
                        bool by_rows, bool add) {
  GroupProducts &list = Worker::current().products();
  if (!list.fenced) fail("a warpgroup product without warpgroup_fence");
  if (list.products.empty()) {
    list.target = acc;
    std::memcpy(list.sums, acc, sizeof list.sums);
    // Until the products are waited for nobody may look at the sums.
    for (int i = 0; i < VALUES; ++i) acc[i] = NAN;
  } else if (list.target != acc) {
    fail("a warpgroup product into other sums than those under way");
  }
  list.products.push_back(
      {{a[0], a[1], a[2], a[3]}, b + static_cast<unsigned>(offset), by_rows, add});
}

void warpgroup_finish() {
  Worker &worker = Worker::current();
  worker.group_collective(FINISH, &worker.products());
}

}  // namespace sim
