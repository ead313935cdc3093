// Settings, devices and contexts: the part of the fake driver that every program starts with.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.h"

namespace sim {
namespace {

bool initialised = false;

long long number(const char *name, const char *text, long long least, long long most) {
  char *end;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > most)
    fail(std::string(name) + "=" + text + " is not a number from " + std::to_string(least) +
         " to " + std::to_string(most));
  return value;
}

long long number_of(const char *name, long long otherwise, long long least, long long most) {
  const char *text = std::getenv(name);
  return text ? number(name, text, least, most) : otherwise;
}

Settings read_settings() {
  Settings settings;
  settings.devices = static_cast<int>(number_of("POLYSIFT_SIM_DEVICES", 1, 0, 64));
  settings.driver = static_cast<int>(number_of("POLYSIFT_SIM_DRIVER", 13000, 1000, 99990));
  settings.memory_bytes =
      static_cast<std::size_t>(number_of("POLYSIFT_SIM_MEMORY_BYTES", 2LL << 30, 0, 1LL << 46));
  settings.reject_cubin = number_of("POLYSIFT_SIM_REJECT_CUBIN", 0, 0, 1) == 1;
  settings.log_contexts = number_of("POLYSIFT_SIM_LOG_CONTEXTS", 0, 0, 1) == 1;
  if (const char *text = std::getenv("POLYSIFT_SIM_CAPABILITY")) {
    int major, minor, end = 0;
    if (std::sscanf(text, "%d.%d%n", &major, &minor, &end) != 2 || text[end] != '\0' || minor > 9)
      fail(std::string("POLYSIFT_SIM_CAPABILITY=") + text + " is not of the form 9.0");
    settings.capability = 10 * major + minor;
  }
  if (const char *text = std::getenv("POLYSIFT_SIM_FAIL")) {
    int end = 0;
    if (std::sscanf(text, "%d:%d%n", &settings.fail_device, &settings.fail_launch, &end) != 2 ||
        text[end] != '\0')
      fail(std::string("POLYSIFT_SIM_FAIL=") + text + " is not of the form DEVICE:LAUNCH");
  }
  if (const char *text = std::getenv("POLYSIFT_SIM_SCHEDULE"))
    if (!parse_schedule(text, settings.schedule))
      fail(std::string("POLYSIFT_SIM_SCHEDULE=") + text +
           " is not forward, reverse or random:SEED");
  if (const char *text = std::getenv("POLYSIFT_SIM_STREAMS")) {
    settings.lazy_streams = std::strcmp(text, "lazy") == 0;
    if (!settings.lazy_streams && std::strcmp(text, "eager") != 0)
      fail(std::string("POLYSIFT_SIM_STREAMS=") + text + " is not eager or lazy");
  }
  return settings;
}

// No thread_local: that memory is the kernels' (see sim.cuh).
pthread_key_t current_key() {
  static const pthread_key_t key = [] {
    pthread_key_t key;
    if (pthread_key_create(&key, nullptr) != 0) fail("no thread-specific memory");
    return key;
  }();
  return key;
}

}  // namespace

const Settings &settings() {
  static const Settings settings = read_settings();
  return settings;
}

Device *device_at(int ordinal) {
  // Never destroyed: threads may still be at work when the process ends.
  static Device *const devices = [] {
    auto *devices = new Device[static_cast<std::size_t>(settings().devices)];
    for (int i = 0; i < settings().devices; ++i) {
      devices[i].ordinal = i;
      devices[i].default_stream = std::make_shared<Stream>();
      devices[i].default_stream->device = &devices[i];
    }
    return devices;
  }();
  return ordinal >= 0 && ordinal < settings().devices ? devices + ordinal : nullptr;
}

Device *current_device() { return static_cast<Device *>(pthread_getspecific(current_key())); }
void set_current_device(Device *device) { pthread_setspecific(current_key(), device); }

}  // namespace sim

using namespace sim;

SIM_API cuInit(unsigned) {
  if (settings().devices == 0) return NO_DEVICE;
  if (!initialised) install_fault_handler();
  initialised = true;
  return SUCCESS;
}

SIM_API cuDriverGetVersion(int *version) {
  *version = settings().driver;
  return SUCCESS;
}

SIM_API cuDeviceGetCount(int *count) {
  if (settings().devices == 0) return NO_DEVICE;
  if (!initialised) return NOT_INITIALIZED;
  *count = settings().devices;
  return SUCCESS;
}

SIM_API cuDeviceGet(int *device, int ordinal) {
  if (!initialised) return NOT_INITIALIZED;
  if (!device_at(ordinal)) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

SIM_API cuDeviceGetName(char *name, int bytes, int device) {
  if (!device_at(device) || bytes <= 0) return INVALID_VALUE;
  std::snprintf(name, static_cast<std::size_t>(bytes), "Simulated CUDA device");
  return SUCCESS;
}

SIM_API cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
  if (!device_at(device)) return INVALID_VALUE;
  std::memset(uuid, 0, 16);
  uuid[15] = static_cast<unsigned char>(device);
  return SUCCESS;
}

SIM_API cuDeviceTotalMem_v2(std::size_t *bytes, int device) {
  if (!device_at(device)) return INVALID_VALUE;
  *bytes = settings().memory_bytes;
  return SUCCESS;
}

SIM_API cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (!device_at(device)) return INVALID_DEVICE;
  // CUdevice_attribute. Four multiprocessors, so that persistent blocks take several work items.
  static const std::map<int, int> values = {
      // threads of a block and its extents, extents of a grid
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535},
      // shared memory of a block, threads of a warp, registers of a block
      {8, 48 << 10}, {10, WARP}, {12, 65536},
      // multiprocessors, level 2 cache, threads of a multiprocessor
      {16, 4}, {38, 8 << 20}, {39, 2048},
      // copy engines, unified addressing, memory pools
      {40, 2}, {41, 1}, {115, 1},
  };
  if (attribute == 75)
    *value = settings().capability / 10;
  else if (attribute == 76)
    *value = settings().capability % 10;
  else if (attribute == 33)
    *value = device;  // PCI bus
  else {
    const auto found = values.find(attribute);
    *value = found == values.end() ? 0 : found->second;
  }
  return SUCCESS;
}

// A context is the device itself.
SIM_API cuDevicePrimaryCtxRetain(void **context, int ordinal) {
  if (!initialised) return NOT_INITIALIZED;
  Device *device = device_at(ordinal);
  if (!device) return INVALID_DEVICE;
  const Call call(device);
  if (device->retained++ == 0 && settings().log_contexts)
    std::fprintf(stderr, "simulated CUDA device %d: new context\n", ordinal);
  *context = device;
  return SUCCESS;
}

SIM_API cuDevicePrimaryCtxRelease_v2(int ordinal) {
  Device *device = device_at(ordinal);
  if (!device) return INVALID_DEVICE;
  const Call call(device);
  if (device->retained == 0) return INVALID_CONTEXT;
  if (--device->retained > 0) return SUCCESS;
  drain_all(*device);
  device->streams.clear();
  while (!device->allocations.empty()) device->release(device->allocations.begin()->first);
  return SUCCESS;
}

SIM_API cuCtxGetCurrent(void **context) {
  *context = current_device();
  return SUCCESS;
}

SIM_API cuCtxSetCurrent(void *context) {
  set_current_device(static_cast<Device *>(context));
  return SUCCESS;
}

// ---- names of errors -------------------------------------------------------------------------

namespace {

struct ErrorText {
  const char *name, *text;
};

const ErrorText *error_text(int code) {
  static const std::map<int, ErrorText> texts = {
      {SUCCESS, {"CUDA_SUCCESS", "no error"}},
      {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
      {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
      {NOT_INITIALIZED, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
      {NO_DEVICE, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
      {INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
      {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
      {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
      {NO_BINARY_FOR_GPU,
       {"CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available for execution on the device"}},
      {INVALID_PTX, {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"}},
      {UNSUPPORTED_PTX_VERSION,
       {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the provided PTX was compiled with an unsupported toolchain."}},
      {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
      {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
      {NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
      {ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
      {LAUNCH_OUT_OF_RESOURCES,
       {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
      {LAUNCH_FAILED, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
      {NOT_SUPPORTED, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
      {STREAM_CAPTURE_UNSUPPORTED,
       {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing"}},
      {STREAM_CAPTURE_INVALIDATED,
       {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "operation failed due to a previous error during capture"}},
      {STREAM_CAPTURE_UNMATCHED,
       {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"}},
      {STREAM_CAPTURE_ISOLATION,
       {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        "dependency created on uncaptured work in another stream"}},
      {CAPTURED_EVENT,
       {"CUDA_ERROR_CAPTURED_EVENT",
        "operation not permitted on an event last recorded in a capturing stream"}},
      {STREAM_CAPTURE_WRONG_THREAD,
       {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        "attempt to terminate a thread-local capture sequence from another thread"}},
  };
  const auto found = texts.find(code);
  return found == texts.end() ? nullptr : &found->second;
}

}  // namespace

SIM_API cuGetErrorName(int code, const char **name) {
  const ErrorText *text = error_text(code);
  *name = text ? text->name : nullptr;
  return text ? SUCCESS : INVALID_VALUE;
}

SIM_API cuGetErrorString(int code, const char **string) {
  const ErrorText *text = error_text(code);
  *string = text ? text->text : nullptr;
  return text ? SUCCESS : INVALID_VALUE;
}
