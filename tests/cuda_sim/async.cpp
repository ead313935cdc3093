// Shared memory that others than the threads read and write: barriers that count bytes, and copies of
// tensor tiles. A copy lands, and a phase ends, as late as it may: when no thread can go on without it.
#include <cstring>

#include "sim_hopper.cuh"
#include "tensor_map.h"
#include "worker.h"

namespace sim {
namespace {

// A barrier's 64 bits, as the memory holds them.
struct State {
  std::uint16_t magic;
  std::uint8_t awaited, pending;
  std::int32_t bytes : 31;  // announced and not there yet
  std::uint32_t phase : 1;
};
static_assert(sizeof(State) == sizeof(Barrier));
constexpr std::uint16_t MAGIC = 0xba11;

State &state_of(Barrier *barrier) {
  Worker::current().check_shared_bytes(barrier, sizeof *barrier, "a barrier");
  State &state = *reinterpret_cast<State *>(barrier);
  if (state.magic != MAGIC) fail("a barrier that was not initialised");
  return state;
}

void end_phase(Worker &worker, State &state) {
  if (state.pending != 0 || state.bytes != 0) return;
  state.pending = state.awaited;
  state.phase ^= 1;
  worker.wake();
}

const MapView &view_of(const TensorMap &map) {
  const auto &view = reinterpret_cast<const MapView &>(map);
  if (view.magic != MAP_MAGIC) fail("a tensor map that the driver did not encode");
  return view;
}

// Calls `copy(global, shared)` for each value of a tile: the swizzle changes bits of an address in
// shared memory by others of it. `global` is null beyond the matrix.
template <class Copy>
void each_chunk(const MapView &map, int row, int column, char *tile, Copy copy) {
  for (unsigned y = 0; y < map.box_rows; ++y)
    for (unsigned x = 0; x < map.box_columns; ++x) {
      const long long at_row = row + static_cast<long long>(y),
                      at_column = column + static_cast<long long>(x);
      const bool inside = at_row >= 0 && at_column >= 0 &&
                          at_row < static_cast<long long>(map.rows) &&
                          at_column < static_cast<long long>(map.columns);
      auto to = reinterpret_cast<std::uintptr_t>(tile) + (y * map.box_columns + x) * map.value_bytes;
      to ^= (to >> 7 & map.swizzle) << 4;
      char *global = reinterpret_cast<char *>(map.address) + at_row * static_cast<long long>(map.stride) +
                     at_column * map.value_bytes;
      copy(inside ? global : nullptr, reinterpret_cast<char *>(to));
    }
}

void check_tile(const void *tile, const MapView &map) {
  Worker::current().check_shared_bytes(tile, map.box_bytes(), "a tile of a tensor");
  if (reinterpret_cast<std::uintptr_t>(tile) % 1024 != 0)
    fail("a tile of a tensor that does not start at a multiple of 1024 bytes");
}

}  // namespace

void check_dynamic_shared(const void *start, std::uint64_t bytes) {
  Worker::current().check_dynamic_shared(start, bytes);
}

void shared_memory_fence() { Worker::current().publish(); }

void barrier_init(Barrier *barrier, int awaited) {
  Worker &worker = Worker::current();
  worker.check_shared_bytes(barrier, sizeof *barrier, "a barrier");
  if (awaited < 1 || awaited > 255) fail("a barrier for a number of threads that the simulator does not know");
  const auto count = static_cast<std::uint8_t>(awaited);
  *reinterpret_cast<State *>(barrier) = {MAGIC, count, count, 0, 0};
  worker.barriers_known = false;
}

void barrier_init_fence() { Worker::current().barriers_known = true; }

void barrier_arrive(Barrier *barrier, int bytes) {
  State &state = state_of(barrier);
  if (state.pending == 0) fail("more arrive at a barrier than it awaits");
  state.bytes += bytes;
  --state.pending;
  end_phase(Worker::current(), state);
}

// True at once for the parity of the phase before the present one, which is 1 at first.
void barrier_wait(Barrier *barrier, int parity) {
  const State &state = state_of(barrier);
  while (state.phase == static_cast<std::uint32_t>(parity & 1)) Worker::current().block("a barrier");
}

void copy_tile_in(void *tile, const TensorMap &map, int row, int column, Barrier *barrier) {
  Worker &worker = Worker::current();
  const MapView &view = view_of(map);
  check_tile(tile, view);
  State &state = state_of(barrier);
  if (!worker.barriers_known) fail("copy_tile_in before barrier_init_fence");
  // Until the copy has landed nobody may rely on these bytes.
  std::memset(tile, 0xff, view.box_bytes());
  worker.later([&worker, &state, view, row, column, tile] {
    each_chunk(view, row, column, static_cast<char *>(tile), [&](const char *global, char *shared) {
      if (global)
        std::memcpy(shared, global, view.value_bytes);
      else
        std::memset(shared, 0, view.value_bytes);
    });
    state.bytes -= static_cast<int>(view.box_bytes());
    end_phase(worker, state);
  });
}

void copy_tile_out(const TensorMap &map, int row, int column, const void *tile) {
  const MapView &view = view_of(map);
  check_tile(tile, view);
  Worker &worker = Worker::current();
  worker.check_published(tile, view.box_bytes());
  auto *from = static_cast<char *>(const_cast<void *>(tile));
  worker.tiles_out().push_back([view, row, column, from] {
    each_chunk(view, row, column, from, [&](char *global, const char *shared) {
      if (global) std::memcpy(global, shared, view.value_bytes);
    });
  });
}

void cluster_barrier() { Worker::current().cluster_barrier(); }

// Lands as late as may be, like a tile.
void store_in_cluster(float2 *place, float2 value, int block, Barrier *barrier) {
  Worker &worker = Worker::current();
  worker.check_shared_bytes(place, sizeof value, "store_in_cluster");
  if (reinterpret_cast<std::uintptr_t>(place) % sizeof value != 0)
    fail("store_in_cluster: an address that is no multiple of 8");
  state_of(barrier);
  if (!worker.met_cluster()) fail("store_in_cluster before cluster_barrier");
  const auto offset = reinterpret_cast<char *>(place) - worker.shared();
  const auto barrier_offset = reinterpret_cast<char *>(barrier) - worker.shared();
  worker.send(static_cast<unsigned>(block), [=](Worker &to) {
    std::memcpy(to.shared() + offset, &value, sizeof value);
    State &state = state_of(reinterpret_cast<Barrier *>(to.shared() + barrier_offset));
    state.bytes -= sizeof value;
    to.order_accesses();
    end_phase(to, state);
  });
}

void copy_tiles_out_wait(int pending) {
  auto &tiles = Worker::current().tiles_out();
  while (tiles.size() > static_cast<std::size_t>(pending)) {
    tiles.front()();
    tiles.pop_front();
  }
}

}  // namespace sim
