// Products of a warpgroup: 128 threads, operands in shared memory, done when waited for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "sim_hopper.cuh"
#include "worker.h"

namespace sim {
namespace {

constexpr int STEP_BYTES = 32;  // of the rows of an operand, per instruction
constexpr int MOST_TERMS = 32, MOST_COLUMNS = 192;
constexpr std::uintptr_t TILE_ALIGNMENT = 1024;

float value_of(const void *at, int bytes) {
  if (bytes == 2) return to_float(*static_cast<const bf16 *>(at));
  return of_e4m3(*static_cast<const unsigned char *>(at));
}

// Value number `in_row` of row `row` of an operand: rows of 128 bytes, groups of 8 rows 1024 bytes
// apart, and the 128-byte swizzle: bits 4 to 6 of an address are changed by its bits 7 to 9.
float value_at(Worker &worker, unsigned long long tile, int row, int in_row, int bytes) {
  std::uintptr_t address =
      tile + static_cast<std::uintptr_t>(row / 8 * 1024 + row % 8 * 128 + in_row * bytes);
  address ^= (address >> 7 & 7) << 4;
  const auto *at = reinterpret_cast<const void *>(address);
  worker.check_published(at, static_cast<std::size_t>(bytes));
  return value_of(at, bytes);
}

struct Values {
  float a[64][MOST_TERMS], b[MOST_TERMS][MOST_COLUMNS], sums[64][MOST_COLUMNS];
};

// The operands of one instruction, as matrices.
void read(Worker &worker, GroupProducts *const *lists, const GroupProduct &product, std::size_t index,
          Values &values) {
  const GroupOperands &own = product.operands;
  const int terms = STEP_BYTES / own.value_bytes, columns = own.fragments * 8;
  for (int term = 0; term < terms; ++term)
    for (int column = 0; column < columns; ++column)
      values.b[term][column] =
          own.by_rows ? value_at(worker, own.b, term, column, own.value_bytes)
                      : value_at(worker, own.b, column, term, own.value_bytes);
  for (int row = 0; !own.a && row < 64; ++row)
    for (int term = 0; term < terms; ++term)
      values.a[row][term] = value_at(worker, own.a_tile, row, term, own.value_bytes);
  for (int thread = 0; own.a && thread < GROUP_THREADS; ++thread) {
    const unsigned *a = lists[thread]->products[index].a;
    const int warp = thread / WARP, lane = thread % WARP;
    for (int i = 0; i < 4; ++i) {
      float *pair =
          &values.a[warp * 16 + lane / 4 + i % 2 * 8][2 * (lane % 4) + i / 2 * 8];
      pair[0] = first_of(a[i]), pair[1] = second_of(a[i]);
    }
  }
}

// One instruction: sums [64, columns], of which warp w has the rows 16 w to 16 w + 15.
void multiply(Worker &worker, GroupProducts *const *lists, std::size_t index, Values &values) {
  auto &sums = values.sums;
  const GroupProduct &product = lists[0]->products[index];
  read(worker, lists, product, index, values);
  const int terms = STEP_BYTES / product.operands.value_bytes,
            count = product.operands.fragments * 4, columns = count * 2;
  const auto place = [](int thread, int i) {
    const int row = thread / WARP * 16 + thread % WARP / 4 + i / 2 % 2 * 8;
    return std::pair(row, i / 4 * 8 + thread % 4 * 2 + i % 2);
  };
  for (int thread = 0; thread < GROUP_THREADS; ++thread) {
    const auto &own = lists[thread]->sums_of(lists[thread]->products[index].target);
    for (int i = 0; i < count; ++i) {
      const auto [row, column] = place(thread, i);
      sums[row][column] = product.add ? own[static_cast<std::size_t>(i)] : 0.0f;
    }
  }
  for (int row = 0; row < 64; ++row)
    for (int term = 0; term < terms; ++term) {
      const float a = values.a[row][term];
      for (int column = 0; column < columns; ++column)
        sums[row][column] += a * values.b[term][column];
    }
  for (int thread = 0; thread < GROUP_THREADS; ++thread) {
    auto &own = lists[thread]->sums_of(lists[thread]->products[index].target);
    for (int i = 0; i < count; ++i) {
      const auto [row, column] = place(thread, i);
      own[static_cast<std::size_t>(i)] = sums[row][column];
    }
  }
}

bool same(const GroupProduct &one, const GroupProduct &other) {
  return one.operands.a_tile == other.operands.a_tile && one.operands.b == other.operands.b &&
         one.operands.by_rows == other.operands.by_rows && one.add == other.add &&
         one.group == other.group;
}

// Carries out all products but those of the last `pending` groups.
void finish(void *const *args, int pending) {
  Worker &worker = Worker::current();
  auto *const *lists = reinterpret_cast<GroupProducts *const *>(args);
  const auto &first = lists[0]->products;
  for (int thread = 1; thread < GROUP_THREADS; ++thread) {
    const auto &other = lists[thread]->products;
    if (!std::equal(first.begin(), first.end(), other.begin(), other.end(), same))
      fail("the threads of a warpgroup do not ask for the same products");
  }
  const int groups = lists[0]->groups - pending;
  std::size_t done = 0;
  const auto values = std::make_unique<Values>();  // too large for a stack
  for (; done < first.size() && first[done].group < groups; ++done)
    multiply(worker, lists, done, *values);
  for (int thread = 0; thread < GROUP_THREADS; ++thread) {
    GroupProducts &own = *lists[thread];
    own.products.erase(own.products.begin(),
                       own.products.begin() + static_cast<std::ptrdiff_t>(done));
    own.give_back();
    own.fenced = false;
  }
}

const Collective WAIT = {"warpgroup_wait", finish};

void nothing(void *const *, int) {}
const Collective REGISTERS = {"a change of registers", nothing};

}  // namespace

std::vector<float> &GroupProducts::sums_of(float *target) {
  for (auto &[to, values] : sums)
    if (to == target) return values;
  fail("sums that no product was asked for");
}

// Sums that no product under way adds to are the thread's again.
void GroupProducts::give_back() {
  const auto idle = [this](const std::pair<float *, std::vector<float>> &own) {
    for (const GroupProduct &product : products)
      if (product.target == own.first) return false;
    std::copy(own.second.begin(), own.second.end(), own.first);
    return true;
  };
  sums.erase(std::remove_if(sums.begin(), sums.end(), idle), sums.end());
}

unsigned long long matrix_descriptor(const void *tile, int offset) {
  Worker::current().check_shared(tile, "matrix_descriptor");
  const auto address = reinterpret_cast<std::uintptr_t>(tile);
  if (address % TILE_ALIGNMENT != 0)
    fail("matrix_descriptor: a tile that does not start at a multiple of 1024 bytes");
  if (offset < 0 || offset % 1024 >= 128 || offset % STEP_BYTES != 0)
    fail("matrix_descriptor: an offset that is no multiple of 32 bytes within the first row of eight");
  return address + static_cast<unsigned>(offset);
}

void warpgroup_fence() { Worker::current().products().fenced = true; }

void warpgroup_commit() { ++Worker::current().products().groups; }

void warpgroup_multiply(float *acc, const GroupOperands &operands, bool add) {
  GroupProducts &list = Worker::current().products();
  if (!list.fenced) fail("a warpgroup product without warpgroup_fence");
  const auto count = static_cast<std::size_t>(operands.fragments) * 4;
  const auto known = [&](const auto &own) { return own.first == acc; };
  if (std::none_of(list.sums.begin(), list.sums.end(), known)) {
    list.sums.push_back({acc, std::vector<float>(acc, acc + count)});
    // Until the products are waited for nobody may look at the sums.
    std::fill(acc, acc + count, NAN);
  }
  GroupProduct product = {operands, {}, acc, add, list.groups};
  if (operands.a) std::copy(operands.a, operands.a + 4, product.a);
  list.products.push_back(product);
}

void warpgroup_wait(int pending) {
  Worker &worker = Worker::current();
  worker.group_collective(WAIT, pending, &worker.products());
}

void warpgroup_barrier(int index) { Worker::current().named_barrier(index); }

void warpgroup_registers(int registers) {
  if (registers < 24 || registers > 256 || registers % 8 != 0)
    fail("a number of registers that a warpgroup cannot have");
  Worker::current().group_collective(REGISTERS, registers, nullptr);
}

}  // namespace sim
