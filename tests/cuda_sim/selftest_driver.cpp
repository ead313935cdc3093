// The fake driver: memory, images, launches, graphs, streams, and the failures it is told to have.
#include <cstring>
#include <thread>

#include "selftest.h"

using namespace sim;

static std::vector<float> after(std::uint64_t x, std::size_t count) {
  return download<float>(x, count);
}

// ---- memory ----------------------------------------------------------------------------------

TEST(new_memory_is_nan_and_counted) {
  setenv("POLYSIFT_SIM_MEMORY_BYTES", "1000000", 1);
  start();
  std::uint64_t x, y;
  EQUAL(cuMemAlloc_v2(&x, 400), SUCCESS);
  for (const float value : download<float>(x, 100)) CHECK(value != value);
  EQUAL(x % 16, 0u);
  EQUAL(cuMemAlloc_v2(&y, 1000000), OUT_OF_MEMORY);
  std::size_t free, total;
  cuMemGetInfo_v2(&free, &total);
  EQUAL(total, 1000000u);
  EQUAL(free, 1000000u - 512);
  EQUAL(cuMemFree_v2(x), SUCCESS);
  EQUAL(cuMemFree_v2(x), INVALID_VALUE);
  cuMemGetInfo_v2(&free, &total);
  EQUAL(free, total);
}

TEST(a_copy_stays_within_an_allocation) {
  start();
  const std::uint64_t x = upload(std::vector<float>(100));
  std::vector<float> host(101);
  EQUAL(cuMemcpyHtoD_v2(x, host.data(), 404), INVALID_VALUE);
  EQUAL(cuMemcpyDtoH_v2(host.data(), x + 4, 400), INVALID_VALUE);
  EQUAL(cuMemcpyDtoH_v2(host.data(), x + 4, 396), SUCCESS);
  EQUAL(cuMemcpyDtoH_v2(host.data(), reinterpret_cast<std::uint64_t>(host.data()), 4),
        INVALID_VALUE);
}

// ---- images and launches ---------------------------------------------------------------------

static Result loads(const std::string &text) {
  void *module;
  return cuModuleLoadData(&module, text.c_str());
}

TEST(an_image_must_suit_the_gpu_and_the_driver) {
  setenv("POLYSIFT_SIM_CAPABILITY", "8.0", 1);
  setenv("POLYSIFT_SIM_DRIVER", "12040", 1);
  start();
  EQUAL(loads(image()), SUCCESS);
  EQUAL(loads(image("8.4")), SUCCESS);
  EQUAL(loads(image("8.5")), UNSUPPORTED_PTX_VERSION);
  EQUAL(loads(image("8.0", "sm_90")), INVALID_PTX);
  EQUAL(loads("nonsense"), INVALID_IMAGE);
  // The header of a cubin for sm_90a, as nvcc 13.0 writes it.
  std::string cubin(64, '\0');
  std::memcpy(cubin.data(),
              "\x7f"
              "ELF",
              4);
  cubin[8] = 8;
  cubin[49] = 90;
  void *module;
  EQUAL(cuModuleLoadData(&module, cubin.data()), NO_BINARY_FOR_GPU);
}

TEST(a_launch_is_checked) {
  setenv("POLYSIFT_SIM_DEVICES", "2", 1);
  start(1);
  const std::uint64_t elsewhere = upload(std::vector<float>(8));
  start(0);
  const std::uint64_t x = upload(std::vector<float>(8));
  void *missing, *module;
  EQUAL(cuModuleLoadData(&module, image().c_str()), SUCCESS);
  EQUAL(cuModuleGetFunction(&missing, module, "ad"), NOT_FOUND);
  EQUAL(launch("add", 0, 256, x, 1.0f, 8), INVALID_VALUE);
  EQUAL(launch("add", 1, 2048, x, 1.0f, 8), INVALID_VALUE);
  EQUAL(launch("add", 1, 512, x, 1.0f, 8), LAUNCH_OUT_OF_RESOURCES);  // __launch_bounds__(256)
  EQUAL(launch("add", 1, 256, x, 1.0f, 8), SUCCESS);
  EQUAL(launch("add", 1, 256, elsewhere, 1.0f, 8), ILLEGAL_ADDRESS);
  EQUAL(cuCtxSynchronize(), ILLEGAL_ADDRESS);
}

TEST(no_device_is_an_error_of_the_first_call) {
  setenv("POLYSIFT_SIM_DEVICES", "0", 1);
  int count;
  EQUAL(cuInit(0), NO_DEVICE);
  EQUAL(cuDeviceGetCount(&count), NO_DEVICE);
}

TEST(a_gpu_fails_when_told_and_never_recovers) {
  setenv("POLYSIFT_SIM_DEVICES", "2", 1);
  setenv("POLYSIFT_SIM_FAIL", "1:3", 1);
  for (int device = 0; device < 2; ++device) {
    start(device);
    void *module, *add;
    EQUAL(cuModuleLoadData(&module, image().c_str()), SUCCESS);
    EQUAL(cuModuleGetFunction(&add, module, "add"), SUCCESS);
    std::uint64_t x = upload(std::vector<float>(8));
    float one = 1.0f;
    int n = 8;
    void *args[] = {&x, &one, &n};
    for (int launch = 1; launch <= 5; ++launch) {
      const Result want = device == 1 && launch >= 3 ? LAUNCH_FAILED : SUCCESS;
      EQUAL(cuLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, nullptr, args, nullptr), want);
      EQUAL(cuCtxSynchronize(), want);
    }
    std::uint64_t y;
    EQUAL(cuMemAlloc_v2(&y, 4), device == 1 ? LAUNCH_FAILED : SUCCESS);
  }
}

// ---- graphs ----------------------------------------------------------------------------------

static void *captured(void *stream) {
  void *graph, *exec;
  EQUAL(cuStreamEndCapture(stream, &graph), SUCCESS);
  EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), SUCCESS);
  return exec;
}

TEST(a_captured_stream_records_and_the_graph_repeats) {
  start();
  void *stream;
  cuStreamCreate(&stream, 1);
  const std::uint64_t x = upload(std::vector<float>(1000));
  std::vector<float> in(1000, 2.0f), out(1000, 7.0f);
  function("add");
  EQUAL(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL), SUCCESS);
  EQUAL(cuMemcpyHtoDAsync_v2(x, in.data(), 4000, stream), SUCCESS);
  EQUAL(launch_on(stream, "add", 2, 256, x, 1.0f, 1000), SUCCESS);
  EQUAL(launch_on(stream, "add", 2, 256, x, 0.5f, 1000), SUCCESS);
  EQUAL(cuMemcpyDtoHAsync_v2(out.data(), x, 4000, stream), SUCCESS);
  int status;
  EQUAL(cuStreamIsCapturing(stream, &status), SUCCESS);
  EQUAL(status, 1);
  void *exec = captured(stream);
  EQUAL(out[999], 7.0f);
  EQUAL(after(x, 1000)[999], 0.0f);
  for (const float value : {2.0f, 10.0f}) {
    in.assign(1000, value);
    EQUAL(cuGraphLaunch(exec, stream), SUCCESS);
    EQUAL(cuStreamSynchronize(stream), SUCCESS);
    for (const float result : out) EQUAL(result, value + 1.5f);
  }
}

TEST(a_capture_does_not_survive_what_it_forbids) {
  start();
  void *stream, *graph;
  cuStreamCreate(&stream, 1);
  std::uint64_t x;
  const auto spoils = [&](auto &&call, int mode, Result want) {
    EQUAL(cuStreamBeginCapture_v2(stream, mode), SUCCESS);
    EQUAL(call(), want);
    EQUAL(cuStreamEndCapture(stream, &graph),
          want == SUCCESS ? SUCCESS : STREAM_CAPTURE_INVALIDATED);
  };
  spoils([&] { return cuStreamSynchronize(stream); }, CAPTURE_RELAXED, STREAM_CAPTURE_UNSUPPORTED);
  spoils([&] { return cuMemAlloc_v2(&x, 16); }, CAPTURE_THREAD_LOCAL, STREAM_CAPTURE_UNSUPPORTED);
  spoils([&] { return cuMemAlloc_v2(&x, 16); }, CAPTURE_RELAXED, SUCCESS);
  const auto on_another_thread = [&] {
    Result result = SUCCESS;
    std::thread([&] {
      start();
      result = cuMemAlloc_v2(&x, 16);
    }).join();
    return result;
  };
  spoils(on_another_thread, CAPTURE_THREAD_LOCAL, SUCCESS);
  spoils(on_another_thread, CAPTURE_GLOBAL, STREAM_CAPTURE_UNSUPPORTED);
  EQUAL(cuStreamEndCapture(stream, &graph), STREAM_CAPTURE_UNMATCHED);
}

TEST(a_wait_for_a_device_spoils_its_captures_of_every_mode_and_thread) {
  setenv("POLYSIFT_SIM_DEVICES", "2", 1);
  start();
  void *stream, *graph;
  cuStreamCreate(&stream, 1);
  for (const int mode : {CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED})
    for (const int device : {0, 1}) {
      const Result want = device == 0 ? STREAM_CAPTURE_UNSUPPORTED : SUCCESS;
      EQUAL(cuStreamBeginCapture_v2(stream, mode), SUCCESS);
      std::thread([&] {
        start(device);
        EQUAL(cuCtxSynchronize(), want);
      }).join();
      EQUAL(cuStreamEndCapture(stream, &graph),
            device == 0 ? STREAM_CAPTURE_INVALIDATED : SUCCESS);
    }
  EQUAL(cuCtxSynchronize(), SUCCESS);
}

// ---- lazy streams ----------------------------------------------------------------------------

TEST(work_of_a_lazy_stream_happens_when_it_is_waited_for) {
  setenv("POLYSIFT_SIM_STREAMS", "lazy", 1);
  start();
  void *first, *second, *event, *memory;
  cuStreamCreate(&first, 1);
  cuStreamCreate(&second, 1);
  cuEventCreate(&event, 0);
  const std::uint64_t x = upload(std::vector<float>(4));
  EQUAL(cuMemHostAlloc(&memory, 16, 0), SUCCESS);
  auto *pinned = static_cast<float *>(memory);
  EQUAL(launch_on(first, "add", 1, 32, x, 1.0f, 4), SUCCESS);
  EQUAL(cuEventRecord(event, first), SUCCESS);
  EQUAL(cuMemcpyDtoHAsync_v2(pinned, x, 16, second), SUCCESS);
  EQUAL(cuStreamSynchronize(second), SUCCESS);
  EQUAL(pinned[0], 0.0f);  // nothing made the second stream wait for the first
  EQUAL(cuStreamWaitEvent(second, event, 0), SUCCESS);
  EQUAL(cuMemcpyDtoHAsync_v2(pinned, x, 16, second), SUCCESS);
  EQUAL(pinned[0], 0.0f);  // not waited for
  EQUAL(cuStreamSynchronize(second), SUCCESS);
  EQUAL(pinned[0], 1.0f);
}

TEST(asking_for_an_event_of_a_lazy_stream_moves_it_on) {
  setenv("POLYSIFT_SIM_STREAMS", "lazy", 1);
  start();
  void *stream, *event;
  cuStreamCreate(&stream, 1);
  cuEventCreate(&event, 0);
  const std::uint64_t x = upload(std::vector<float>(4));
  EQUAL(launch_on(stream, "add", 1, 32, x, 1.0f, 4), SUCCESS);
  EQUAL(cuEventRecord(event, stream), SUCCESS);
  EQUAL(cuEventQuery(event), NOT_READY);
  EQUAL(cuEventQuery(event), NOT_READY);
  EQUAL(cuEventQuery(event), SUCCESS);
  EQUAL(after(x, 4)[0], 1.0f);
}

// ---- kernels that may overlap ----------------------------------------------------------------

static Result launch_overlapping(int all) {
  start();
  const LaunchAttribute attribute = {PROGRAMMATIC_STREAM_SERIALIZATION, 1, {}};
  const LaunchConfig config = {1, 1, 1, 64, 1, 1, 0, nullptr, &attribute, 1};
  void *arguments[] = {&all};
  return cuLaunchKernelEx(&config, function("waits"), arguments, nullptr);
}
TEST(kernels_that_wait_for_each_other_may_overlap) { EQUAL(launch_overlapping(1), SUCCESS); }
ABORTS(a_kernel_that_overlaps_and_does_not_wait_is_named,
       "a thread returned without wait_for_previous_kernels; kernel waits, block (0, 0, 0), thread "
       "(32, 0, 0)") {
  launch_overlapping(0);
}
