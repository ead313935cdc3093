#include "race.h"

#include <string>

#include "worker.h"

namespace sim {

void RaceCheck::access(std::size_t offset, std::size_t bytes, int thread, bool writes) {
  const auto name = [](int who) {
    return who == MATRIX_UNITS ? "the matrix units"
           : who == MANY       ? "several threads"
                               : "thread " + std::to_string(who);
  };
  for (std::size_t i = offset; i < offset + bytes && i < bytes_.size(); ++i) {
    Byte &byte = bytes_[i];
    if (byte.written == epoch_ && byte.writer != thread)
      fail(std::string("race on shared memory: ") + (writes ? "written" : "read") + " by " +
           name(thread) + " after a write by " + name(byte.writer) + " without a barrier");
    if (writes && byte.read == epoch_ && byte.reader != thread)
      fail("race on shared memory: written by " + name(thread) + " after a read by " +
           name(byte.reader) + " without a barrier");
    if (writes) {
      byte.written = epoch_;
      byte.writer = thread;
    } else {
      byte.reader = byte.read == epoch_ && byte.reader != thread ? MANY : thread;
      byte.read = epoch_;
    }
  }
}

}  // namespace sim

// What the compiler calls for every access under -fsanitize=thread; its own library stays out.
namespace {

void report(const void *address, std::size_t bytes, bool writes) {
  if (sim::Worker *worker = sim::Worker::of_stack(__builtin_frame_address(0)))
    worker->note_access(address, bytes, writes);
}

}  // namespace

#define HOOKS(bytes)                                                                  \
  void __tsan_read##bytes(void *address) { report(address, bytes, false); }           \
  void __tsan_write##bytes(void *address) { report(address, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void *address) { report(address, bytes, false); } \
  void __tsan_unaligned_write##bytes(void *address) { report(address, bytes, true); }
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *address, std::size_t bytes) { report(address, bytes, false); }
void __tsan_write_range(void *address, std::size_t bytes) { report(address, bytes, true); }
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
