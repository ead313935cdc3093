// Runs kernels on the CPU: what the fake driver needs of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim.cuh"

namespace sim {

// A kernel by name; made from its function's type.
struct Kernel {
  const char *name;
  int max_threads;                  // of a block, from __launch_bounds__
  unsigned cluster_blocks;          // from __cluster_dims__
  void (*call)(void *const *args);  // as one thread of a block
  std::vector<std::size_t> arg_bytes;
  std::vector<bool> arg_is_pointer;
};

// Every kernel of the source this library was built from (kernels.cpp).
const std::vector<Kernel> &kernels();

// In which order blocks run, and the threads of a block that could go on.
struct Schedule {
  enum Kind { FORWARD, REVERSE, RANDOM } kind = FORWARD;
  std::uint64_t seed = 0;
};
// From "forward", "reverse" or "random:SEED"; false if it is none of them.
bool parse_schedule(const char *text, Schedule &schedule);

struct Launch {
  const Kernel *kernel;
  dim3 grid, block;
  void *const *args;
  Schedule schedule;
  std::size_t shared_bytes;  // beside those that the kernel declares
  bool overlaps;             // may start before the launch before it has ended
};

// Runs all blocks of a launch and returns when they are done. A thread that breaks the rules of the
// device (see README.md) ends the process with a message.
void run(const Launch &launch);

// The kernel and the thread that the calling OS thread carries out now; empty outside a kernel.
std::string running_thread();

[[noreturn]] void fail(const std::string &message);

namespace detail {
template <class... A, std::size_t... I>
void call(void (*function)(A...), void *const *args, std::index_sequence<I...>) {
  function(*static_cast<A *>(args[I])...);
}
template <auto FUNCTION>
struct Entry;
template <class... A, void (*FUNCTION)(A...)>
struct Entry<FUNCTION> {
  static void call(void *const *args) {
    detail::call<A...>(FUNCTION, args, std::index_sequence_for<A...>{});
  }
  static Kernel kernel(const char *name, int max_threads, unsigned cluster_blocks = 1) {
    return {name, max_threads, cluster_blocks, call, {sizeof(A)...}, {std::is_pointer_v<A>...}};
  }
};
}  // namespace detail

}  // namespace sim
