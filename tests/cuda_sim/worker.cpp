#include "worker.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "fiber.h"

namespace sim {
namespace {

constexpr std::size_t MAX_WORKERS = 256;
std::atomic<char *> worker_stacks[MAX_WORKERS];
std::atomic<std::size_t> num_workers;

struct ThreadMemory {
  char *start;
  std::size_t bytes;
};

// The calling thread's copy of the thread-local memory of this library, which is the shared memory
// of all kernels.
ThreadMemory thread_memory() {
  SHARED volatile char anchor;
  anchor = 1;  // the memory exists from its first use on
  struct Search {
    const volatile char *anchor;
    ThreadMemory found;
  } search = {&anchor, {nullptr, 0}};
  dl_iterate_phdr(
      [](dl_phdr_info *info, size_t, void *data) {
        auto &search = *static_cast<Search *>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS || !info->dlpi_tls_data) continue;
          auto *start = static_cast<char *>(info->dlpi_tls_data);
          const std::size_t bytes = info->dlpi_phdr[i].p_memsz;
          if (search.anchor >= start && search.anchor < start + bytes)
            search.found = {start, bytes};
        }
        return 0;
      },
      &search);
  if (!search.found.start) fail("the thread-local memory of the kernels was not found");
  return search.found;
}

const std::string NEEDED_BLOCK = "a block has ended that the other one of its cluster needs: ";

std::string lanes(std::uint32_t mask) {
  std::string text;
  for (int first = 0; first < WARP; ++first) {
    if (!(mask >> first & 1)) continue;
    int last = first;
    while (last + 1 < WARP && (mask >> (last + 1) & 1)) ++last;
    if (!text.empty()) text += ",";
    text += std::to_string(first);
    if (last > first) text += "-" + std::to_string(last);
    first = last;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Worker::Worker() : fibers_(MAX_THREADS), warps_(MAX_THREADS / WARP) {
  const std::size_t bytes = MAX_THREADS * STACK_BYTES;
  void *memory = mmap(nullptr, bytes + STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for the stacks of a block");
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  stacks_ = reinterpret_cast<char *>((start + STACK_BYTES - 1) / STACK_BYTES * STACK_BYTES);
  const auto [shared, shared_bytes] = thread_memory();
  shared_ = shared;
  shared_bytes_ = shared_bytes;
  races_ = RaceCheck(shared_bytes);
  writer_.resize(shared_bytes / 16 + 1);
  const std::size_t index = num_workers.fetch_add(1);
  if (index < MAX_WORKERS) worker_stacks[index] = stacks_;
}

Worker *Worker::of_stack(const void *address) {
  const auto *at = static_cast<const char *>(address);
  for (std::size_t i = 0; i < std::min<std::size_t>(num_workers, MAX_WORKERS); ++i) {
    char *stacks = worker_stacks[i];
    if (!stacks || at < stacks || at >= stacks + MAX_THREADS * STACK_BYTES) continue;
    const std::size_t stack = static_cast<std::size_t>(at - stacks) / STACK_BYTES;
    return reinterpret_cast<Top *>(stacks + (stack + 1) * STACK_BYTES - POSITION_BYTES)->worker;
  }
  return nullptr;
}

Worker &Worker::current() { return *reinterpret_cast<const Top *>(&position())->worker; }

Worker::Top &Worker::top_of(unsigned thread) const {
  return *reinterpret_cast<Top *>(stacks_ + (thread + 1) * STACK_BYTES - POSITION_BYTES);
}

std::string Worker::place() const {
  if (!launch_) return "";
  const Position &at = top_of(running_).position;
  const auto triple = [](const dim3 &v) {
    return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) +
           ")";
  };
  return std::string("kernel ") + launch_->kernel->name + ", block " + triple(at.block) +
         ", thread " + triple(at.thread);
}

void Worker::fail_warp(const Warp &warp, const std::string &message) const {
  fail(message + " (warp " + std::to_string(running_ / WARP) + ": lanes " + lanes(warp.waiting) +
       " wait at " + (warp.waiting ? warp.what->name : "nothing") + ", " + lanes(warp.at_barrier) +
       " at a block barrier, " + lanes(warp.exited) + " have returned)");
}

std::string Worker::stuck() const {
  std::string text;
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    const Warp &warp = warps_[i];
    if (warp.waiting) text += "warp " + std::to_string(i) + " waits at " + warp.what->name + "; ";
    if (warp.at_barrier) text += "warp " + std::to_string(i) + " waits at a block barrier; ";
    if (warp.blocked) text += "warp " + std::to_string(i) + " waits at " + warp.blocked_at + "; ";
  }
  return text + "kernel " + launch_->kernel->name;
}

void Worker::run_block(const Launch &launch, std::uint64_t block,
                       std::shared_ptr<Cluster> cluster) {
  if (launch.kernel->cluster_blocks > Cluster::BLOCKS) fail("a cluster of more than two blocks");
  launch_ = &launch;
  cluster_ = std::move(cluster);
  rank_ = static_cast<unsigned>(block % Cluster::BLOCKS);
  cluster_arrived_ = own_rounds_ = other_rounds_ = 0;
  const dim3 size = launch.block, grid = launch.grid;
  const unsigned threads = size.x * size.y * size.z;
  const dim3 at = {static_cast<unsigned>(block % grid.x),
                   static_cast<unsigned>(block / grid.x % grid.y),
                   static_cast<unsigned>(block / grid.x / grid.y)};
  std::memset(shared_, 0xff, shared_bytes_);
  std::fill(writer_.begin(), writer_.end(), 0);
  races_.barrier();
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (; num_stacks_ < threads; ++num_stacks_)
    mprotect(stacks_ + num_stacks_ * STACK_BYTES, page, PROT_NONE);

  for (unsigned warp = 0; warp * WARP < threads; ++warp) {
    const unsigned count = std::min<unsigned>(WARP, threads - warp * WARP);
    const std::uint32_t present = count == WARP ? ALL_LANES : (1u << count) - 1;
    warps_[warp] = {present, 0, 0, ~present, 0, nullptr, 0, {}, ""};
  }
  for (unsigned thread = 0; thread < threads; ++thread) {
    Top &top = top_of(thread);
    top.position = {
        {thread % size.x, thread / size.x % size.y, thread / size.x / size.y}, at, size, grid};
    top.worker = this;
    fibers_[thread].stack_pointer = prepare_stack(&top, entry);
    fibers_[thread].groups = 0;
    fibers_[thread].unpublished.clear();
    fibers_[thread].products = {};
    fibers_[thread].waited = false;
  }
  const unsigned num_warps = (threads + WARP - 1) / WARP;
  ready_warps_ = num_warps == 32 ? ALL_LANES : (1u << num_warps) - 1;
  live_ = threads;
  arrived_ = 0;
  named_arrived_ = {};
  barriers_known = false;
  random_ = (launch.schedule.seed + 1) * 0x9e3779b97f4a7c15u ^ (block + 1) * 0xbf58476d1ce4e5b9u;

  running_ = static_cast<unsigned>(pick());
  polysift_sim_switch(&main_, fibers_[running_].stack_pointer);
  if (live_ != 0) fail("no thread of the block can go on: " + stuck());
  if (!later_.empty()) fail("copies of tiles under way when the block ended: " + stuck());
  if (cluster_) {
    const std::lock_guard<std::mutex> lock(cluster_->mutex);
    if (!cluster_->blocks[rank_].sent.empty()) fail(NEEDED_BLOCK + stuck());
    cluster_->blocks[rank_].ended = true;
    cluster_->changed.notify_all();
  }
  launch_ = nullptr;
}

void Worker::entry() {
  Worker &worker = current();
  worker.launch_->kernel->call(worker.launch_->args);
  worker.finish();
}

// ---- which thread runs -----------------------------------------------------------------------

void Worker::make_ready(unsigned warp, std::uint32_t lanes) {
  warps_[warp].ready |= lanes;
  if (warps_[warp].ready) ready_warps_ |= 1u << warp;
}

// Waits for what the other block of the cluster sends; false if it waits as well, or has ended.
bool Worker::receive() {
  if (!cluster_ || live_ == 0) return false;
  std::unique_lock<std::mutex> lock(cluster_->mutex);
  auto &own = cluster_->blocks[rank_], &other = cluster_->blocks[rank_ ^ 1];
  own.waits = true;
  cluster_->changed.notify_all();
  const auto nothing_comes = [&] { return other.ended || (other.waits && other.sent.empty()); };
  cluster_->changed.wait(lock, [&] { return !own.sent.empty() || nothing_comes(); });
  if (own.sent.empty()) return false;
  own.waits = false;
  later([this, work = std::move(own.sent.front())] { work(*this); });
  own.sent.pop_front();
  return true;
}

// Takes a thread out of those that are ready; -1 if none is.
int Worker::pick() {
  while (!ready_warps_ && (!later_.empty() || receive())) {
    // Which copy lands first is open as well.
    const bool newest = launch_->schedule.kind == Schedule::REVERSE;
    const auto work = newest ? std::move(later_.back()) : std::move(later_.front());
    if (newest)
      later_.pop_back();
    else
      later_.pop_front();
    work();
  }
  if (!ready_warps_) return -1;
  const auto choose = [this](std::uint32_t set) -> unsigned {
    switch (launch_->schedule.kind) {
      case Schedule::FORWARD:
        return static_cast<unsigned>(__builtin_ctz(set));
      case Schedule::REVERSE:
        return 31u - static_cast<unsigned>(__builtin_clz(set));
      case Schedule::RANDOM:
        break;
    }
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    auto skip =
        static_cast<unsigned>((random_ >> 32) % static_cast<unsigned>(__builtin_popcount(set)));
    for (; skip > 0; --skip) set &= set - 1;
    return static_cast<unsigned>(__builtin_ctz(set));
  };
  const unsigned warp = choose(ready_warps_), lane = choose(warps_[warp].ready);
  warps_[warp].ready &= ~(1u << lane);
  if (!warps_[warp].ready) ready_warps_ &= ~(1u << warp);
  return static_cast<int>(warp * WARP + lane);
}

// Lets another thread run; the caller has noted what it waits for.
void Worker::yield() {
  const unsigned self = running_;
  const int next = pick();
  if (next == static_cast<int>(self)) return;
  if (next < 0) {
    polysift_sim_switch(&fibers_[self].stack_pointer, main_);
  } else {
    running_ = static_cast<unsigned>(next);
    polysift_sim_switch(&fibers_[self].stack_pointer, fibers_[running_].stack_pointer);
  }
  running_ = self;
}

void Worker::release_barrier() {
  arrived_ = 0;
  races_.barrier();
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    if (!warps_[warp].at_barrier) continue;
    make_ready(warp, warps_[warp].at_barrier);
    warps_[warp].at_barrier = 0;
  }
}

void Worker::finish() {
  if (!fibers_[running_].copies.empty()) fail("a thread returned with copies under way");
  if (!products().products.empty())
    fail("a thread returned with products of its warpgroup under way");
  if (!fibers_[running_].tiles_out.empty()) fail("a thread returned with copies of tiles under way");
  if (launch_->overlaps && !fibers_[running_].waited)
    fail("a thread returned without wait_for_previous_kernels");
  Warp &warp = warps_[running_ / WARP];
  if (warp.waiting) fail_warp(warp, "a thread returned while others of its warp wait for it");
  warp.exited |= 1u << running_ % WARP;
  --live_;
  // As on the device, a thread that has returned takes no part in a barrier.
  if (live_ > 0 && arrived_ == live_) release_barrier();
  yield();
  __builtin_unreachable();
}

// ---- what threads do together ----------------------------------------------------------------

// Notes that this lane takes part; true for the last lane of its warp.
bool Worker::join(const Collective &what, int parameter, void *args) {
  Warp &warp = warps_[running_ / WARP];
  if (warp.exited) fail_warp(warp, std::string(what.name) + " without all lanes of the warp");
  if (warp.at_barrier) fail_warp(warp, std::string(what.name) + " can never complete");
  if (warp.waiting && warp.what != &what)
    fail_warp(warp, std::string(what.name) + " while other lanes are elsewhere");
  if (warp.waiting && warp.parameter != parameter)
    fail_warp(warp, std::string(what.name) + " with another argument than other lanes");
  warp.what = &what;
  warp.parameter = parameter;
  warp.args[running_ % WARP] = args;
  warp.waiting |= 1u << running_ % WARP;
  return warp.waiting == ALL_LANES;
}

void Worker::collective(const Collective &what, int parameter, void *args) {
  if (!join(what, parameter, args)) return yield();
  const unsigned index = running_ / WARP, lane = running_ % WARP;
  what.compute(warps_[index].args, parameter);
  warps_[index].waiting = 0;
  const bool stay = launch_->schedule.kind != Schedule::RANDOM;
  make_ready(index, stay ? ~(1u << lane) : ALL_LANES);
  if (!stay) yield();
}

void Worker::warp_barrier(const Collective &what) {
  collective(what, 0, nullptr);
  races_.barrier();
}

void Worker::group_collective(const Collective &what, int parameter, void *args) {
  if (!join(what, parameter, args)) return yield();
  const unsigned first = running_ / GROUP_THREADS * GROUP_WARPS;
  void *all[GROUP_THREADS];
  for (unsigned i = 0; i < GROUP_WARPS; ++i) {
    const Warp &warp = warps_[first + i];
    if (warp.waiting != ALL_LANES || warp.what != &what || warp.parameter != parameter)
      return yield();
    std::copy(warp.args, warp.args + WARP, all + i * WARP);
  }
  what.compute(all, parameter);
  for (unsigned i = 0; i < GROUP_WARPS; ++i) {
    warps_[first + i].waiting = 0;
    make_ready(first + i, ALL_LANES);
  }
  yield();
}

void Worker::barrier() {
  Warp &warp = warps_[running_ / WARP];
  if (warp.waiting) fail_warp(warp, "a block barrier that not all threads reach");
  warp.at_barrier |= 1u << running_ % WARP;
  if (++arrived_ == live_) release_barrier();
  yield();
}

void Worker::block(const char *what) {
  Warp &warp = warps_[running_ / WARP];
  warp.blocked |= 1u << running_ % WARP;
  warp.blocked_at = what;
  yield();
}

void Worker::wake() {
  for (unsigned warp = 0; warp < warps_.size(); ++warp) {
    if (!warps_[warp].blocked) continue;
    make_ready(warp, warps_[warp].blocked);
    warps_[warp].blocked = 0;
  }
}

void Worker::named_barrier(int index) {
  if (index < 1 || index >= 16) fail("a barrier of a warpgroup that does not exist");
  const auto i = static_cast<std::size_t>(index);
  const std::uint64_t generation = named_generation_[i];
  if (++named_arrived_[i] == GROUP_THREADS) {
    named_arrived_[i] = 0;
    ++named_generation_[i];
    races_.barrier();
    wake();
    return;
  }
  while (named_generation_[i] == generation) block("a barrier of its warpgroup");
}

// ---- clusters --------------------------------------------------------------------------------

void Worker::cluster_barrier() {
  const unsigned round = own_rounds_;
  if (++cluster_arrived_ == launch_->block.x * launch_->block.y * launch_->block.z) {
    cluster_arrived_ = 0;
    ++own_rounds_;
    races_.barrier();
    send(rank_ ^ 1, [](Worker &other) {
      ++other.other_rounds_;
      other.wake();
    });
    wake();
  }
  while (own_rounds_ == round || other_rounds_ <= round) block("a cluster barrier");
}

void Worker::send(unsigned block, std::function<void(Worker &)> work) {
  if (!cluster_ || block >= Cluster::BLOCKS) fail("a block that the cluster does not have");
  if (block == rank_) return later([this, work] { work(*this); });
  const std::lock_guard<std::mutex> lock(cluster_->mutex);
  if (cluster_->blocks[block].ended) fail(NEEDED_BLOCK + place());
  cluster_->blocks[block].sent.push_back(std::move(work));
  cluster_->changed.notify_all();
}

// ---- copies in the background ----------------------------------------------------------------

void Worker::check_shared(const void *address, const char *what) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto start = reinterpret_cast<std::uintptr_t>(shared_);
  if (at % 16 != 0)
    fail(std::string(what) + ": an address of shared memory that is no multiple of 16");
  if (at < start || at + 16 > start + shared_bytes_)
    fail(std::string(what) + ": an address outside of shared memory");
}

void Worker::copy_async(void *shared, const void *global, bool valid) {
  check_shared(shared, "copy_async_16");
  if (reinterpret_cast<std::uintptr_t>(global) % 16 != 0)
    fail("copy_async_16: a global address that is no multiple of 16");
  // Until the copy has landed nobody may rely on these bytes.
  note_access(shared, 16, true);
  std::memset(shared, 0xff, 16);
  Fiber &fiber = fibers_[running_];
  fiber.copies.push_back({shared, valid ? global : nullptr, fiber.groups});
}

void Worker::copy_async_commit() { ++fibers_[running_].groups; }

void Worker::copy_async_wait(int pending) {
  Fiber &fiber = fibers_[running_];
  const int groups = fiber.groups - pending;
  auto rest = fiber.copies.begin();
  for (; rest != fiber.copies.end() && rest->group < groups; ++rest) {
    note_access(rest->to, 16, true);
    const auto chunk = static_cast<std::size_t>(static_cast<char *>(rest->to) - shared_) / 16;
    fiber.unpublished.push_back(chunk);
    writer_[chunk] = static_cast<std::uint16_t>(running_ + 1);
    if (rest->from)
      std::memcpy(rest->to, rest->from, 16);
    else
      std::memset(rest->to, 0, 16);
  }
  fiber.copies.erase(fiber.copies.begin(), rest);
}

void Worker::publish() {
  Fiber &fiber = fibers_[running_];
  for (const std::size_t chunk : fiber.unpublished)
    if (writer_[chunk] == running_ + 1) writer_[chunk] = 0;
  fiber.unpublished.clear();
}

void Worker::check_published(const void *address, std::size_t bytes) {
  const auto *at = static_cast<const char *>(address);
  if (at < shared_ || at + bytes > shared_ + shared_bytes_)
    fail("a warpgroup product reads outside of shared memory");
  const auto offset = static_cast<std::size_t>(at - shared_);
  for (std::size_t chunk = offset / 16; chunk <= (offset + bytes - 1) / 16; ++chunk)
    if (writer_[chunk])
      fail("shared memory is read that was written and not published by shared_memory_fence");
  if (KERNELS_ARE_WATCHED) races_.access(offset, bytes, RaceCheck::MATRIX_UNITS, false);
}

void Worker::check_shared_bytes(const void *address, std::size_t bytes, const char *what) const {
  const auto *at = static_cast<const char *>(address);
  if (at < shared_ || at + bytes > shared_ + shared_bytes_)
    fail(std::string(what) + ": an address outside of shared memory");
}

void Worker::check_dynamic_shared(const void *start, std::size_t bytes) const {
  check_shared_bytes(start, bytes, "the shared memory of a launch");
  if (launch_->shared_bytes < bytes)
    fail("a kernel that needs " + std::to_string(bytes) + " bytes of shared memory was launched with " +
         std::to_string(launch_->shared_bytes));
}

void Worker::note_access(const void *address, std::size_t bytes, bool writes) {
  const auto *at = static_cast<const char *>(address);
  if (!KERNELS_ARE_WATCHED || at < shared_ || at >= shared_ + shared_bytes_) return;
  const auto offset = static_cast<std::size_t>(at - shared_);
  races_.access(offset, bytes, static_cast<int>(running_), writes);
  for (std::size_t chunk = offset / 16; writes && chunk <= (offset + bytes - 1) / 16; ++chunk) {
    if (writer_[chunk] == running_ + 1) continue;
    writer_[chunk] = static_cast<std::uint16_t>(running_ + 1);
    fibers_[running_].unpublished.push_back(chunk);
  }
}

}  // namespace sim
