// Device memory: host memory between pages that may not be touched.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "driver.h"

namespace sim {
namespace {

// Freed memory stays unmapped but reserved, so that its addresses do not come back soon.
constexpr std::size_t MAX_FREED = 4096;
constexpr std::size_t GRANULE = 16;
constexpr std::size_t ACCOUNTED = 512;

struct {
  std::mutex mutex;
  std::deque<Fenced> memories;
} freed;

struct sigaction previous_segv, previous_bus;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

void say(const std::string &text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

// What is known of an address: which allocation it is in or next to.
std::string describe(std::uintptr_t address) {
  for (int i = 0; i < settings().devices; ++i) {
    for (const auto &[start, memory] : device_at(i)->allocations) {
      const auto map = reinterpret_cast<std::uintptr_t>(memory.map);
      if (address < map || address >= map + memory.map_bytes) continue;
      const std::string name = " an allocation of " + std::to_string(memory.bytes) +
                               " bytes on device " + std::to_string(i);
      if (address < start) return std::to_string(start - address) + " bytes before" + name;
      return std::to_string(address - start - memory.bytes) + " bytes past the end of" + name;
    }
  }
  for (const Fenced &memory : freed.memories) {
    const auto map = reinterpret_cast<std::uintptr_t>(memory.map);
    if (address >= map && address < map + memory.map_bytes)
      return "in an allocation of " + std::to_string(memory.bytes) + " bytes that was freed";
  }
  return "in no allocation";
}

void on_fault(int number, siginfo_t *info, void *context) {
  const std::string place = running_thread();
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (!place.empty()) {
    say("simulated CUDA device: illegal address, " + describe(address) + "; " + place + "\n");
    signal(SIGABRT, SIG_DFL);
    abort();
  }
  const struct sigaction &previous = number == SIGSEGV ? previous_segv : previous_bus;
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(number, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
    return previous.sa_handler(number);
  signal(number, SIG_DFL);  // the access is tried again and ends the process
}

}  // namespace

void install_fault_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  // On the thread's alternate stack where it has one: what was handled before may need it.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

bool fenced_map(std::size_t bytes, Fenced &memory) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inner = round_up(bytes, page);
  void *map = mmap(nullptr, inner + 2 * page, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return false;
  memory.map = static_cast<char *>(map);
  memory.map_bytes = inner + 2 * page;
  if (mprotect(memory.map + page, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, memory.map_bytes);
    return false;
  }
  memory.bytes = bytes;
  memory.start = memory.map + page + inner - round_up(bytes, GRANULE);
  std::memset(memory.map + page, 0xff, inner);
  return true;
}

void fenced_unmap(const Fenced &memory) {
  const std::lock_guard<std::mutex> lock(freed.mutex);
  if (mmap(memory.map, memory.map_bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    fail("memory cannot be taken back");
  freed.memories.push_back(memory);
  if (freed.memories.size() <= MAX_FREED) return;
  munmap(freed.memories.front().map, freed.memories.front().map_bytes);
  freed.memories.pop_front();
}

bool Device::owns(std::uint64_t pointer, std::size_t bytes) const {
  auto after = allocations.upper_bound(pointer);
  if (after == allocations.begin()) return false;
  const auto &[start, memory] = *--after;
  return pointer - start <= memory.bytes && bytes <= memory.bytes - (pointer - start);
}

Result Device::allocate(std::size_t bytes, std::uint64_t &pointer) {
  if (bytes == 0) return INVALID_VALUE;
  if (bytes > settings().memory_bytes - used ||
      round_up(bytes, ACCOUNTED) > settings().memory_bytes - used)
    return OUT_OF_MEMORY;
  Fenced memory;
  if (!fenced_map(bytes, memory)) return OUT_OF_MEMORY;
  used += round_up(bytes, ACCOUNTED);
  pointer = reinterpret_cast<std::uintptr_t>(memory.start);
  allocations[pointer] = memory;
  return SUCCESS;
}

Result Device::release(std::uint64_t pointer) {
  if (pointer == 0) return SUCCESS;
  const auto found = allocations.find(pointer);
  if (found == allocations.end()) return INVALID_VALUE;
  used -= round_up(found->second.bytes, ACCOUNTED);
  fenced_unmap(found->second);
  allocations.erase(found);
  return SUCCESS;
}

}  // namespace sim
