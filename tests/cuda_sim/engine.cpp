// The pool of workers, and the device functions that need the engine.
#include "engine.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <numeric>
#include <thread>

#include "worker.h"

namespace sim {
namespace {

struct Job {
  const Launch *launch;
  std::uint64_t blocks, started, done;
  std::shared_ptr<Cluster> cluster;  // of the block that was started last
};

// Never destroyed: its threads may still wait when the process ends.
struct Pool {
  std::mutex mutex;
  std::condition_variable work, finished;
  std::list<Job *> jobs;  // with blocks to start
};

// The order of clusters, whose blocks start one after the other: the multiplication by a number
// without common divisor is a permutation.
std::uint64_t block_at(const Job &job, std::uint64_t i) {
  const Schedule &schedule = job.launch->schedule;
  const std::uint64_t size = job.launch->kernel->cluster_blocks, clusters = job.blocks / size;
  if (schedule.kind == Schedule::FORWARD) return i;
  if (schedule.kind == Schedule::REVERSE) return job.blocks - 1 - i;
  std::uint64_t step = schedule.seed * 2654435761u % clusters;
  while (std::gcd(step, clusters) != 1) ++step;
  return (i / size * step + schedule.seed) % clusters * size + i % size;
}

void work(Pool &pool) {
  Worker worker;
  std::unique_lock<std::mutex> lock(pool.mutex);
  for (;;) {
    pool.work.wait(lock, [&] { return !pool.jobs.empty(); });
    Job &job = *pool.jobs.front();
    const bool in_cluster = job.launch->kernel->cluster_blocks > 1;
    if (in_cluster && job.started % Cluster::BLOCKS == 0) job.cluster = std::make_shared<Cluster>();
    const auto cluster = job.cluster;
    const std::uint64_t block = block_at(job, job.started++);
    if (job.started == job.blocks) pool.jobs.pop_front();
    lock.unlock();
    worker.run_block(*job.launch, block, cluster);
    lock.lock();
    if (++job.done == job.blocks) pool.finished.notify_all();
  }
}

Pool &pool() {
  static Pool *const pool = [] {
    auto *pool = new Pool;
    // The blocks of a cluster need a thread each.
    const unsigned threads = std::max(Cluster::BLOCKS, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < threads; ++i) std::thread([pool] { work(*pool); }).detach();
    return pool;
  }();
  return *pool;
}

}  // namespace

bool parse_schedule(const char *text, Schedule &schedule) {
  const std::string name = text;
  if (name == "forward") {
    schedule.kind = Schedule::FORWARD;
  } else if (name == "reverse") {
    schedule.kind = Schedule::REVERSE;
  } else if (name.rfind("random:", 0) == 0 && name.size() > 7) {
    char *end;
    schedule.kind = Schedule::RANDOM;
    schedule.seed = std::strtoull(text + 7, &end, 10);
    return *end == '\0';
  } else {
    return false;
  }
  return true;
}

void run(const Launch &launch) {
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  Job job = {&launch, blocks, 0, 0, nullptr};
  Pool &shared = pool();
  std::unique_lock<std::mutex> lock(shared.mutex);
  shared.jobs.push_back(&job);
  shared.work.notify_all();
  shared.finished.wait(lock, [&] { return job.done == job.blocks; });
}

std::string running_thread() {
  const Worker *worker = Worker::of_stack(__builtin_frame_address(0));
  return worker ? worker->place() : "";
}

void fail(const std::string &message) {
  const std::string place = running_thread();
  std::fprintf(stderr, "simulated CUDA device: %s%s%s\n", message.c_str(),
               place.empty() ? "" : "; ", place.c_str());
  std::abort();
}

// ---- device functions ------------------------------------------------------------------------

namespace {

struct Fragments {
  float *acc;
  const unsigned *a;
  unsigned b0, b1;
};

struct MatrixRow {
  unsigned *out;
  const void *row;
};

void exchange(void *const *args, int mask) {
  std::uint64_t values[WARP];
  for (int lane = 0; lane < WARP; ++lane) values[lane] = *static_cast<std::uint64_t *>(args[lane]);
  for (int lane = 0; lane < WARP; ++lane)
    *static_cast<std::uint64_t *>(args[lane]) = values[lane ^ mask];
}

struct Source {
  float value;
  int lane;
};

void take_from(void *const *args, int) {
  float values[WARP];
  for (int lane = 0; lane < WARP; ++lane) values[lane] = static_cast<Source *>(args[lane])->value;
  for (int lane = 0; lane < WARP; ++lane) {
    auto &own = *static_cast<Source *>(args[lane]);
    own.value = values[own.lane];
  }
}

void vote(void *const *args, int) {
  bool any = false;
  for (int lane = 0; lane < WARP; ++lane) any |= *static_cast<bool *>(args[lane]);
  for (int lane = 0; lane < WARP; ++lane) *static_cast<bool *>(args[lane]) = any;
}

void check_uniform(void *const *args, int) {
  for (int lane = 1; lane < WARP; ++lane)
    if (*static_cast<int *>(args[lane]) != *static_cast<int *>(args[0]))
      fail("uniform_over_warp: a value that differs between lanes");
}

void meet(void *const *, int) {}

// ldmatrix.x4: lane l names row l % 8 of matrix l / 8.
void read_matrices(void *const *args, int transposed) {
  std::uint16_t matrices[4][8][8];
  for (int lane = 0; lane < WARP; ++lane)
    std::memcpy(matrices[lane / 8][lane % 8], static_cast<MatrixRow *>(args[lane])->row, 16);
  for (int lane = 0; lane < WARP; ++lane) {
    const int row = lane / 4, column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      const unsigned low = transposed ? matrices[i][column][row] : matrices[i][row][column];
      const unsigned high =
          transposed ? matrices[i][column + 1][row] : matrices[i][row][column + 1];
      static_cast<MatrixRow *>(args[lane])->out[i] = low | high << 16;
    }
  }
}

// mma.m16n8k16: with g = lane / 4 and t = lane % 4, a lane holds of a the rows g and g + 8 in the
// columns 2t and 2t + 8 (and the next ones), of b the column g in the same rows, of the sums the
// rows g and g + 8 in the columns 2t and 2t + 1.
void multiply(void *const *args, int) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < WARP; ++lane) {
    const auto &own = *static_cast<const Fragments *>(args[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      float *pair = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
      pair[0] = first_of(own.a[i]), pair[1] = second_of(own.a[i]);
      c[g + i / 2 * 8][2 * t + i % 2] = own.acc[i];
    }
    b[2 * t][g] = first_of(own.b0), b[2 * t + 1][g] = second_of(own.b0);
    b[2 * t + 8][g] = first_of(own.b1), b[2 * t + 9][g] = second_of(own.b1);
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < WARP; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i)
      static_cast<Fragments *>(args[lane])->acc[i] = c[g + i / 2 * 8][2 * t + i % 2];
  }
}

const Collective SHUFFLE = {"shuffle_xor", exchange};
const Collective SHUFFLE_FROM = {"shuffle_from", take_from};
const Collective UNIFORM = {"uniform_over_warp", check_uniform};
const Collective ANY_LANE = {"any_lane", vote};
const Collective WARP_BARRIER = {"warp_barrier", meet};
const Collective LOAD_MATRICES = {"load_matrices", read_matrices};
const Collective LOAD_MATRICES_TRANSPOSED = {"load_matrices_transposed", read_matrices};
const Collective MULTIPLY_ADD = {"multiply_add", multiply};

}  // namespace

std::uint64_t shuffle_xor(std::uint64_t bits, int mask) {
  if (mask <= 0 || mask >= WARP) fail("shuffle_xor: no lane differs in these bits");
  Worker::current().collective(SHUFFLE, mask, &bits);
  return bits;
}

float shuffle_from(float value, int lane) {
  if (lane < 0 || lane >= WARP) fail("shuffle_from: there is no such lane");
  Source source = {value, lane};
  Worker::current().collective(SHUFFLE_FROM, 0, &source);
  return source.value;
}

int uniform_over_warp(int value) {
  Worker::current().collective(UNIFORM, 0, &value);
  return value;
}

bool any_lane(bool condition) {
  Worker::current().collective(ANY_LANE, 0, &condition);
  return condition;
}
void warp_barrier() { Worker::current().warp_barrier(WARP_BARRIER); }

void load_matrices(unsigned *out, const void *row, bool transposed) {
  Worker &worker = Worker::current();
  worker.check_shared(row, "load_matrices");
  worker.note_access(row, 16, false);
  MatrixRow args = {out, row};
  worker.collective(transposed ? LOAD_MATRICES_TRANSPOSED : LOAD_MATRICES, transposed, &args);
}

void multiply_add(float *acc, const unsigned *a, unsigned b0, unsigned b1) {
  Fragments args = {acc, a, b0, b1};
  Worker::current().collective(MULTIPLY_ADD, 0, &args);
}

void copy_async(void *shared, const void *global, bool valid) {
  Worker::current().copy_async(shared, global, valid);
}
void copy_async_commit() { Worker::current().copy_async_commit(); }
void copy_async_wait(int pending) { Worker::current().copy_async_wait(pending); }
void block_barrier() { Worker::current().barrier(); }
void wait_for_previous_kernels() { Worker::current().wait_for_previous_kernels(); }

}  // namespace sim
