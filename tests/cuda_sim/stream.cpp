// Streams: operations are carried out at once, or when something waits for them, or recorded.
#include "driver.h"

namespace sim {
namespace {

struct {
  std::mutex mutex;
  std::set<std::shared_ptr<Capture>> active;
} captures;

// Makes the captures that are concerned invalid; an error if there is one.
template <class Concerns>
Result spoil_captures(Concerns concerns) {
  const std::lock_guard<std::mutex> lock(captures.mutex);
  Result result = SUCCESS;
  for (const auto &capture : captures.active) {
    if (!concerns(*capture)) continue;
    capture->invalid = true;
    result = STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace

std::shared_ptr<Stream> stream_of(Device &device, void *handle) {
  if (!handle) return device.default_stream;
  for (const auto &stream : device.streams)
    if (stream.get() == handle) return stream;
  return nullptr;
}

void drain(Stream &stream, std::uint64_t position) {
  while (stream.executed < position && !stream.queue.empty()) {
    const Operation operation = std::move(stream.queue.front());
    stream.queue.pop_front();
    ++stream.executed;
    operation();
  }
}

void drain_all(Device &device) {
  drain(*device.default_stream, device.default_stream->submitted);
  for (const auto &stream : device.streams) drain(*stream, stream->submitted);
}

Result submit(Stream &stream, Operation operation) {
  if (stream.capture) {
    if (stream.capture->invalid) return STREAM_CAPTURE_INVALIDATED;
    stream.capture->graph->nodes.push_back(std::move(operation));
    return SUCCESS;
  }
  // The default stream and the blocking ones wait for each other.
  Device &device = *stream.device;
  if (&stream == device.default_stream.get()) {
    for (const auto &other : device.streams)
      if (other->blocking) drain(*other, other->submitted);
  } else if (stream.blocking) {
    drain(*device.default_stream, device.default_stream->submitted);
  }
  stream.queue.push_back(std::move(operation));
  ++stream.submitted;
  if (!settings().lazy_streams) drain(stream, stream.submitted);
  return SUCCESS;
}

Result forbid_in_capture() {
  return spoil_captures([](const Capture &capture) {
    return capture.mode == CAPTURE_GLOBAL || (capture.mode == CAPTURE_THREAD_LOCAL &&
                                              capture.thread == std::this_thread::get_id());
  });
}

Result forbid_in_capture_of(const Device &device) {
  return spoil_captures([&](const Capture &capture) { return capture.device == &device; });
}

Result count_launch(Device &device) {
  ++device.launches;
  if (device.ordinal == settings().fail_device && device.launches >= settings().fail_launch)
    device.failed = LAUNCH_FAILED;
  return device.failed;
}

}  // namespace sim

using namespace sim;

namespace {

// A wait for the work of this stream: not possible while it is only being recorded.
Result wait_for(Stream &stream) {
  if (stream.capture) {
    stream.capture->invalid = true;
    return STREAM_CAPTURE_UNSUPPORTED;
  }
  drain(stream, stream.submitted);
  return SUCCESS;
}

Result find(const Call &call, void *handle, std::shared_ptr<Stream> &stream) {
  SIM_TRY(call.error());
  stream = stream_of(*call, handle);
  return stream ? SUCCESS : INVALID_HANDLE;
}

}  // namespace

SIM_API cuStreamCreate(void **handle, unsigned flags) {
  const Call call;
  SIM_TRY(call.error());
  const auto stream = std::make_shared<Stream>();
  stream->device = &*call;
  stream->blocking = !(flags & 1);
  call->streams.insert(stream);
  *handle = stream.get();
  return SUCCESS;
}

SIM_API cuStreamDestroy_v2(void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, handle, stream));
  if (!handle) return INVALID_HANDLE;
  if (stream->capture) {
    const std::lock_guard<std::mutex> lock(captures.mutex);
    captures.active.erase(stream->capture);
    stream->capture = nullptr;
  }
  drain(*stream, stream->submitted);
  call->streams.erase(stream);
  return SUCCESS;
}

SIM_API cuStreamSynchronize(void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, handle, stream));
  return wait_for(*stream);
}

// In the lazy mode every question moves the stream on by one operation.
SIM_API cuStreamQuery(void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, handle, stream));
  if (stream->capture) return wait_for(*stream);
  if (stream->executed == stream->submitted) return SUCCESS;
  drain(*stream, stream->executed + 1);
  return NOT_READY;
}

SIM_API cuCtxSynchronize() {
  const Call call;
  SIM_TRY(call.error());
  SIM_TRY(forbid_in_capture_of(*call));
  for (const auto &stream : call->streams) SIM_TRY(wait_for(*stream));
  return wait_for(*call->default_stream);
}

// ---- events ----------------------------------------------------------------------------------

namespace {

using EventHandle = std::shared_ptr<Event> *;
Event &event_of(void *handle) { return **static_cast<EventHandle>(handle); }

}  // namespace

SIM_API cuEventCreate(void **handle, unsigned) {
  const Call call;
  SIM_TRY(call.error());
  *handle = new std::shared_ptr<Event>(std::make_shared<Event>());
  return SUCCESS;
}

SIM_API cuEventDestroy_v2(void *handle) {
  delete static_cast<EventHandle>(handle);
  return SUCCESS;
}

SIM_API cuEventRecord(void *handle, void *stream_handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, stream_handle, stream));
  const std::shared_ptr<Event> event = *static_cast<EventHandle>(handle);
  event->stream = stream;
  event->capture = stream->capture;
  if (stream->capture) return stream->capture->invalid ? STREAM_CAPTURE_INVALIDATED : SUCCESS;
  event->position = stream->submitted + 1;
  return submit(*stream, [event] { event->time = std::chrono::steady_clock::now(); });
}

namespace {

// The stream that an event waits in; its device must be locked to move it on.
Result move_on(Event &event, bool one_step) {
  if (event.capture) return CAPTURED_EVENT;
  if (!event.stream) return SUCCESS;
  const Call call(event.stream->device);
  SIM_TRY(call.error());
  if (event.stream->executed >= event.position) return SUCCESS;
  drain(*event.stream, one_step ? event.stream->executed + 1 : event.position);
  return one_step ? NOT_READY : SUCCESS;
}

}  // namespace

SIM_API cuEventSynchronize(void *handle) { return move_on(event_of(handle), false); }
SIM_API cuEventQuery(void *handle) { return move_on(event_of(handle), true); }

SIM_API cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  const Event &first = event_of(start), &last = event_of(end);
  if (first.capture || last.capture) return CAPTURED_EVENT;
  if (!first.stream || !last.stream) return INVALID_HANDLE;
  if (first.stream->executed < first.position || last.stream->executed < last.position)
    return NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(last.time - first.time).count();
  return SUCCESS;
}

SIM_API cuStreamWaitEvent(void *stream_handle, void *handle, unsigned) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, stream_handle, stream));
  const Event &event = event_of(handle);
  if (!event.stream) return SUCCESS;
  if (stream->capture) return event.capture == stream->capture ? SUCCESS : STREAM_CAPTURE_ISOLATION;
  // On the device this stream would now be captured too; nothing here needs that.
  if (event.capture) return NOT_SUPPORTED;
  const std::shared_ptr<Stream> other = event.stream;
  const std::uint64_t position = event.position;
  return submit(*stream, [other, position] {
    const Call of_other(other->device);
    drain(*other, position);
  });
}

// ---- graphs ----------------------------------------------------------------------------------

namespace {

using GraphHandle = std::shared_ptr<Graph> *;

}  // namespace

SIM_API cuStreamBeginCapture_v2(void *handle, int mode) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, handle, stream));
  if (!handle || mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED || stream->capture)
    return STREAM_CAPTURE_UNSUPPORTED;
  stream->capture = std::make_shared<Capture>();
  stream->capture->device = &*call;
  stream->capture->mode = static_cast<CaptureMode>(mode);
  stream->capture->thread = std::this_thread::get_id();
  const std::lock_guard<std::mutex> lock(captures.mutex);
  captures.active.insert(stream->capture);
  return SUCCESS;
}

SIM_API cuStreamEndCapture(void *handle, void **graph) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, handle, stream));
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CAPTURE_RELAXED && capture->thread != std::this_thread::get_id())
    return STREAM_CAPTURE_WRONG_THREAD;
  stream->capture = nullptr;
  {
    const std::lock_guard<std::mutex> lock(captures.mutex);
    captures.active.erase(capture);
  }
  if (capture->invalid) return STREAM_CAPTURE_INVALIDATED;
  *graph = new std::shared_ptr<Graph>(capture->graph);
  return SUCCESS;
}

SIM_API cuStreamIsCapturing(void *handle, int *status) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, handle, stream));
  *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
  return SUCCESS;
}

SIM_API cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  *exec = new std::shared_ptr<Graph>(*static_cast<GraphHandle>(graph));
  return SUCCESS;
}

SIM_API cuGraphUpload(void *, void *stream_handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  return find(call, stream_handle, stream);
}

SIM_API cuGraphLaunch(void *exec, void *stream_handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(find(call, stream_handle, stream));
  if (stream->capture) return NOT_SUPPORTED;  // a graph within a graph
  SIM_TRY(count_launch(*call));
  const std::shared_ptr<Graph> graph = *static_cast<GraphHandle>(exec);
  return submit(*stream, [graph] {
    for (const Operation &node : graph->nodes) node();
  });
}

SIM_API cuGraphDestroy(void *graph) {
  delete static_cast<GraphHandle>(graph);
  return SUCCESS;
}
SIM_API cuGraphExecDestroy(void *exec) {
  delete static_cast<GraphHandle>(exec);
  return SUCCESS;
}
