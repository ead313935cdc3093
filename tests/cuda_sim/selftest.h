// The tests of the simulator: each runs in a process of its own, as the settings are read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver.h"

struct Test {
  const char *name;
  void (*body)();
  const char *aborts;  // what the process says when it ends itself; null: it must not
};
std::vector<Test> &tests();
struct Register {
  Register(const char *name, void (*body)(), const char *aborts = nullptr) {
    tests().push_back({name, body, aborts});
  }
};

// A test that must pass, and one whose process must abort with a message that has `text` in it.
#define TEST(name)                              \
  static void name();                           \
  static Register register_##name(#name, name); \
  static void name()
#define ABORTS(name, text)                            \
  static void name();                                 \
  static Register register_##name(#name, name, text); \
  static void name()

[[noreturn]] void failed(const char *file, int line, const std::string &what);
#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) failed(__FILE__, __LINE__, #condition); \
  } while (false)
#define EQUAL(x, y)                                                                \
  do {                                                                             \
    const auto left = (x);                                                         \
    const auto right = (y);                                                        \
    if (!(left == right))                                                          \
      failed(__FILE__, __LINE__,                                                   \
             #x " is " + std::to_string(left) + ", not " + std::to_string(right)); \
  } while (false)

SIM_API cuInit(unsigned);
SIM_API cuDeviceGetCount(int *);
SIM_API cuDeviceGetAttribute(int *, int, int);
SIM_API cuDevicePrimaryCtxRetain(void **, int);
SIM_API cuCtxSetCurrent(void *);
SIM_API cuCtxSynchronize();
SIM_API cuMemAlloc_v2(std::uint64_t *, std::size_t);
SIM_API cuMemFree_v2(std::uint64_t);
SIM_API cuMemGetInfo_v2(std::size_t *, std::size_t *);
SIM_API cuMemHostAlloc(void **, std::size_t, unsigned);
SIM_API cuMemcpyHtoD_v2(std::uint64_t, const void *, std::size_t);
SIM_API cuMemcpyDtoH_v2(void *, std::uint64_t, std::size_t);
SIM_API cuMemcpyHtoDAsync_v2(std::uint64_t, const void *, std::size_t, void *);
SIM_API cuMemcpyDtoHAsync_v2(void *, std::uint64_t, std::size_t, void *);
SIM_API cuModuleLoadData(void **, const void *);
SIM_API cuModuleGetFunction(void **, void *, const char *);
SIM_API cuLaunchKernelEx(const sim::LaunchConfig *, void *, void **, void **);
SIM_API cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void *, void **, void **);
SIM_API cuStreamCreate(void **, unsigned);
SIM_API cuStreamSynchronize(void *);
SIM_API cuStreamWaitEvent(void *, void *, unsigned);
SIM_API cuEventCreate(void **, unsigned);
SIM_API cuEventRecord(void *, void *);
SIM_API cuEventQuery(void *);
SIM_API cuStreamBeginCapture_v2(void *, int);
SIM_API cuStreamEndCapture(void *, void **);
SIM_API cuStreamIsCapturing(void *, int *);
SIM_API cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
SIM_API cuGraphLaunch(void *, void *);

// Makes a device current.
void start(int ordinal = 0);
// An image that names every kernel of the tests.
std::string image(const char *version = "8.0", const char *target = "sm_80");
void *function(const char *name);

template <class T>
std::uint64_t upload(const std::vector<T> &values) {
  std::uint64_t pointer;
  EQUAL(cuMemAlloc_v2(&pointer, values.size() * sizeof(T)), sim::SUCCESS);
  EQUAL(cuMemcpyHtoD_v2(pointer, values.data(), values.size() * sizeof(T)), sim::SUCCESS);
  return pointer;
}
template <class T>
std::vector<T> download(std::uint64_t pointer, std::size_t count) {
  std::vector<T> values(count);
  EQUAL(cuMemcpyDtoH_v2(values.data(), pointer, count * sizeof(T)), sim::SUCCESS);
  return values;
}
template <class... A>
sim::Result launch_on(void *stream, const char *name, unsigned grid, unsigned block, A... args) {
  void *pointers[] = {&args...};
  return cuLaunchKernel(function(name), grid, 1, 1, block, 1, 1, 0, stream, pointers, nullptr);
}
template <class... A>
sim::Result launch(const char *name, unsigned grid, unsigned block, A... args) {
  return launch_on(nullptr, name, grid, block, args...);
}

// Numbers that look random, from -1 to 1, each a bf16.
std::vector<float> numbers(std::size_t count, unsigned seed);
