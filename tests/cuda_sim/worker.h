// One OS thread that carries out blocks, their threads being fibers.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine.h"
#include "race.h"
#include "sim_hopper.cuh"

namespace sim {

constexpr unsigned MAX_THREADS = 1024;
constexpr std::uint32_t ALL_LANES = 0xffffffffu;
constexpr int GROUP_WARPS = 4, GROUP_THREADS = GROUP_WARPS * WARP;  // of a warpgroup

// Something that the lanes of a warp do together: `compute` gets each lane's arguments.
struct Collective {
  const char *name;
  void (*compute)(void *const *args, int parameter);
};

// A copy under way: where to, where from (null: zeros) and the group that it belongs to.
struct Copy {
  void *to;
  const void *from;
  int group;
};

// A product that a warpgroup was asked for: with what this thread has of the left operand.
struct GroupProduct {
  GroupOperands operands;
  unsigned a[4];
  float *target;
  bool add;
  int group;
};

struct GroupProducts {
  std::vector<GroupProduct> products;
  // Sums under way, by where they are written when they are waited for.
  std::vector<std::pair<float *, std::vector<float>>> sums;
  int groups = 0;  // closed by warpgroup_commit
  bool fenced = false;

  std::vector<float> &sums_of(float *target);
  void give_back();
};

struct Fiber {
  void *stack_pointer = nullptr;
  std::vector<Copy> copies;
  int groups = 0;  // closed by copy_async_commit
  GroupProducts products;
  std::vector<std::size_t> unpublished;  // chunks of shared memory that this thread wrote
  std::deque<std::function<void()>> tiles_out;  // copies of tiles from shared memory
  bool waited = false;  // for the kernels before this one
};

// Lanes as bits. A lane is in one of these, or it is running.
struct Warp {
  std::uint32_t ready, waiting, at_barrier, exited, blocked;
  const Collective *what;  // that the waiting lanes take part in
  int parameter;
  void *args[WARP];
  const char *blocked_at;  // what the blocked ones wait for
};

class Worker;

// What the two workers that carry out the blocks of a cluster tell each other.
struct Cluster {
  static constexpr unsigned BLOCKS = 2;
  struct Block {
    bool waits = false, ended = false;
    std::deque<std::function<void(Worker &)>> sent;  // to it, and not there yet
  };
  std::mutex mutex;
  std::condition_variable changed;
  Block blocks[BLOCKS];
};

class Worker {
 public:
  Worker();
  // Runs a block; `cluster` is null if the kernel has none, else another worker runs its other block.
  void run_block(const Launch &launch, std::uint64_t block, std::shared_ptr<Cluster> cluster);

  // Called by the fibers.
  void collective(const Collective &what, int parameter, void *args);
  void group_collective(const Collective &what, int parameter, void *args);
  void warp_barrier(const Collective &what);
  void barrier();
  // Waits for the threads of the warpgroups that use barrier `index`, 128 of them.
  void named_barrier(int index);
  // Waits until `wake` is called, or nothing but work that was put off is left.
  void block(const char *what);
  void wake();
  // Work of the copy engine, done when no thread can go on, or at random.
  void later(std::function<void()> work) { later_.push_back(std::move(work)); }
  // Waits for all threads of the cluster.
  void cluster_barrier();
  bool met_cluster() const { return other_rounds_ > 0; }
  // Does something in the shared memory of a block of the cluster, as late as may be.
  void send(unsigned block, std::function<void(Worker &)> work);
  char *shared() const { return shared_; }
  // Threads wait for what other threads did before.
  void order_accesses() { races_.barrier(); }
  std::deque<std::function<void()>> &tiles_out() { return fibers_[running_].tiles_out; }
  bool barriers_known = false;
  void wait_for_previous_kernels() { fibers_[running_].waited = true; }
  void copy_async(void *shared, const void *global, bool valid);
  void copy_async_commit();
  void copy_async_wait(int pending);
  void check_shared(const void *address, const char *what) const;
  void check_shared_bytes(const void *address, std::size_t bytes, const char *what) const;
  void check_dynamic_shared(const void *start, std::size_t bytes) const;
  GroupProducts &products() { return fibers_[running_].products; }
  // What this thread's copies wrote may now be read by the matrix units.
  void publish();
  void check_published(const void *address, std::size_t bytes);
  // An access of the running thread, of interest if it is to shared memory.
  void note_access(const void *address, std::size_t bytes, bool writes);

  // "kernel k, block (x, y, z), thread t" of the fiber that runs now.
  std::string place() const;
  // The worker whose fiber has `address` on its stack; null if there is none.
  static Worker *of_stack(const void *address);
  static Worker &current();

 private:
  // What lies at the top of every stack; `position` in sim.cuh reads the first part.
  struct Top {
    Position position;
    Worker *worker;
  };
  static_assert(sizeof(Top) <= POSITION_BYTES);

  static void entry();
  Top &top_of(unsigned thread) const;
  void finish();
  void release_barrier();
  bool join(const Collective &what, int parameter, void *args);
  std::string stuck() const;
  void make_ready(unsigned warp, std::uint32_t lanes);
  bool receive();
  int pick();
  void yield();
  [[noreturn]] void fail_warp(const Warp &warp, const std::string &message) const;

  char *stacks_;
  unsigned num_stacks_ = 0;  // with a guard page
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  char *shared_;
  std::size_t shared_bytes_;
  RaceCheck races_{0};
  std::vector<std::uint16_t>
      writer_;  // of each 16 bytes of it: 1 + the thread that has to publish them

  const Launch *launch_ = nullptr;
  void *main_ = nullptr;
  unsigned running_ = 0;
  std::uint32_t ready_warps_ = 0;
  unsigned live_ = 0, arrived_ = 0;
  std::array<unsigned, 16> named_arrived_{};
  std::array<std::uint64_t, 16> named_generation_{};
  std::deque<std::function<void()>> later_;
  std::shared_ptr<Cluster> cluster_;
  unsigned rank_ = 0, cluster_arrived_ = 0;
  unsigned own_rounds_ = 0, other_rounds_ = 0;  // that the blocks arrived at a cluster barrier
  std::uint64_t random_ = 0;
};

}  // namespace sim
