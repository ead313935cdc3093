// The state behind the fake libcuda.so.1.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine.h"

namespace sim {

// CUresult values that the simulator returns.
enum Result : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX_VERSION = 222,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
  STREAM_CAPTURE_UNSUPPORTED = 900,
  STREAM_CAPTURE_INVALIDATED = 901,
  STREAM_CAPTURE_UNMATCHED = 903,
  STREAM_CAPTURE_ISOLATION = 905,
  CAPTURED_EVENT = 907,
  STREAM_CAPTURE_WRONG_THREAD = 908,
};

// From the environment, read once: see README.md.
struct Settings {
  int devices = 1;
  int capability = 90;  // 10 * major + minor
  int driver = 13000;
  std::size_t memory_bytes = std::size_t{2} << 30;
  int fail_device = -1, fail_launch = 0;
  bool reject_cubin = false;
  bool log_contexts = false;
  bool lazy_streams = false;
  Schedule schedule;
};
const Settings &settings();

// Memory that ends at a page which may not be touched, filled with 0xff.
struct Fenced {
  char *map = nullptr;
  std::size_t map_bytes = 0;
  char *start = nullptr;
  std::size_t bytes = 0;
};
bool fenced_map(std::size_t bytes, Fenced &memory);
// Any access to the memory is a fault from now on.
void fenced_unmap(const Fenced &memory);
// The kernel that touched a wrong address is named before the process ends.
void install_fault_handler();

// CUlaunchAttribute and CUlaunchConfig of cuda.h.
struct LaunchAttribute {
  int id;
  alignas(8) int value;
  char rest[60];
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void *stream;
  const LaunchAttribute *attributes;
  unsigned num_attributes;
};
constexpr int PROGRAMMATIC_STREAM_SERIALIZATION = 6;

using Operation = std::function<void()>;
struct Device;

struct Graph {
  std::vector<Operation> nodes;
};

enum CaptureMode { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
struct Capture {
  Device *device;
  CaptureMode mode;
  std::thread::id thread;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::atomic<bool> invalid{false};
};

struct Stream {
  Device *device;
  bool blocking;  // with the legacy default stream
  std::deque<Operation> queue;
  std::uint64_t submitted = 0, executed = 0;
  std::shared_ptr<Capture> capture;
};

struct Event {
  std::shared_ptr<Stream> stream;  // where it was last recorded; null if it never was
  std::uint64_t position = 0;
  std::shared_ptr<Capture> capture;  // if it was recorded into a graph
  std::chrono::steady_clock::time_point time;
};

struct Device {
  int ordinal = 0;
  std::recursive_mutex mutex;
  int retained = 0;
  int launches = 0;
  Result failed = SUCCESS;  // returned by everything from the failure on
  std::map<std::uintptr_t, Fenced> allocations;
  std::size_t used = 0;
  std::shared_ptr<Stream> default_stream;
  std::set<std::shared_ptr<Stream>> streams;

  // Whether [pointer, pointer + bytes) lies in one allocation of this device.
  bool owns(std::uint64_t pointer, std::size_t bytes) const;
  Result allocate(std::size_t bytes, std::uint64_t &pointer);
  Result release(std::uint64_t pointer);
};

// By ordinal; null if there is none.
Device *device_at(int ordinal);
// That the calling thread has made current; null if none.
Device *current_device();
void set_current_device(Device *device);

// A locked device for the duration of one call.
class Call {
 public:
  Call() : Call(current_device()) {}
  explicit Call(Device *device) : device_(device) {
    if (device) lock_ = std::unique_lock<std::recursive_mutex>(device->mutex);
  }
  Result error() const {
    return !device_ || !device_->retained ? INVALID_CONTEXT : device_->failed;
  }
  Device *operator->() const { return device_; }
  Device &operator*() const { return *device_; }

 private:
  Device *device_;
  std::unique_lock<std::recursive_mutex> lock_;
};

// The stream of a handle: null is the default stream of `device`. Null if there is no such stream.
std::shared_ptr<Stream> stream_of(Device &device, void *handle);
// Carries an operation out, queues it or adds it to the graph that the stream is captured into.
Result submit(Stream &stream, Operation operation);
// Carries out the operations of a stream up to number `position`.
void drain(Stream &stream, std::uint64_t position);
void drain_all(Device &device);
// For calls that no capture allows: if one is under way that the calling thread may disturb, it
// becomes invalid and an error is returned.
Result forbid_in_capture();
// For waits for a whole device: the same with every capture there, whatever its mode and thread.
Result forbid_in_capture_of(const Device &device);
// Counts a launch and fails it where the settings say so.
Result count_launch(Device &device);
bool is_pinned(const void *pointer, std::size_t bytes);

}  // namespace sim

#define SIM_API extern "C" __attribute__((visibility("default"))) sim::Result
// Returns from the calling function if `expression` is an error.
#define SIM_TRY(expression)                            \
  do {                                                 \
    const sim::Result sim_result = (expression);       \
    if (sim_result != sim::SUCCESS) return sim_result; \
  } while (false)
