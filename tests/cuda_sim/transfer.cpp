// Allocation and copies of the fake driver.
#include <cstring>
#include <iterator>

#include "driver.h"

namespace sim {
namespace {

struct {
  std::mutex mutex;
  std::map<std::uintptr_t, Fenced> memories;
} pinned;

}  // namespace

bool is_pinned(const void *pointer, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard<std::mutex> lock(pinned.mutex);
  const auto after = pinned.memories.upper_bound(at);
  if (after == pinned.memories.begin()) return false;
  const auto &[start, memory] = *std::prev(after);
  return at - start <= memory.bytes && bytes <= memory.bytes - (at - start);
}

}  // namespace sim

using namespace sim;

namespace {

void *pointer_of(std::uint64_t address) { return reinterpret_cast<void *>(address); }

// The stream of a call that works on [pointer, pointer + bytes) of the device.
Result prepare(const Call &call, void *handle, std::uint64_t pointer, std::size_t bytes,
               std::shared_ptr<Stream> &stream) {
  SIM_TRY(call.error());
  stream = stream_of(*call, handle);
  if (!stream) return INVALID_HANDLE;
  return bytes == 0 || call->owns(pointer, bytes) ? SUCCESS : INVALID_VALUE;
}

// A call that returns when its work on the default stream is done.
Result finish(const Call &call) {
  const std::shared_ptr<Stream> &stream = call->default_stream;
  drain(*stream, stream->submitted);
  return SUCCESS;
}

}  // namespace

// ---- memory ----------------------------------------------------------------------------------

SIM_API cuMemGetInfo_v2(std::size_t *free, std::size_t *total) {
  const Call call;
  SIM_TRY(call.error());
  *total = settings().memory_bytes;
  *free = settings().memory_bytes - call->used;
  return SUCCESS;
}

SIM_API cuMemAlloc_v2(std::uint64_t *pointer, std::size_t bytes) {
  const Call call;
  SIM_TRY(call.error());
  SIM_TRY(forbid_in_capture());
  return call->allocate(bytes, *pointer);
}

SIM_API cuMemFree_v2(std::uint64_t pointer) {
  const Call call;
  SIM_TRY(call.error());
  SIM_TRY(forbid_in_capture());
  drain_all(*call);
  return call->release(pointer);
}

SIM_API cuMemHostAlloc(void **pointer, std::size_t bytes, unsigned) {
  const Call call;
  SIM_TRY(call.error());
  SIM_TRY(forbid_in_capture());
  if (bytes == 0) return INVALID_VALUE;
  Fenced memory;
  if (!fenced_map(bytes, memory)) return OUT_OF_MEMORY;
  const std::lock_guard<std::mutex> lock(pinned.mutex);
  pinned.memories[reinterpret_cast<std::uintptr_t>(memory.start)] = memory;
  *pointer = memory.start;
  return SUCCESS;
}

SIM_API cuMemFreeHost(void *pointer) {
  const Call call;
  SIM_TRY(call.error());
  SIM_TRY(forbid_in_capture());
  drain_all(*call);
  const std::lock_guard<std::mutex> lock(pinned.mutex);
  const auto found = pinned.memories.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == pinned.memories.end()) return INVALID_VALUE;
  fenced_unmap(found->second);
  pinned.memories.erase(found);
  return SUCCESS;
}

// The pools of a device: nothing is kept in them, so their settings change nothing.
SIM_API cuDeviceGetDefaultMemPool(void **pool, int device) {
  *pool = device_at(device);
  return *pool ? SUCCESS : INVALID_DEVICE;
}

// ---- copies ----------------------------------------------------------------------------------

SIM_API cuMemcpyHtoDAsync_v2(std::uint64_t to, const void *from, std::size_t bytes, void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(prepare(call, handle, to, bytes, stream));
  // Pageable memory is read before the call returns, except into a graph.
  if (!stream->capture && !is_pinned(from, bytes)) {
    const auto *start = static_cast<const char *>(from);
    const auto copy = std::make_shared<std::vector<char>>(start, start + bytes);
    return submit(*stream, [to, copy] { std::memcpy(pointer_of(to), copy->data(), copy->size()); });
  }
  return submit(*stream, [to, from, bytes] { std::memcpy(pointer_of(to), from, bytes); });
}

SIM_API cuMemcpyDtoHAsync_v2(void *to, std::uint64_t from, std::size_t bytes, void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(prepare(call, handle, from, bytes, stream));
  SIM_TRY(submit(*stream, [to, from, bytes] { std::memcpy(to, pointer_of(from), bytes); }));
  // Pageable memory is written before the call returns.
  if (!stream->capture && !is_pinned(to, bytes)) drain(*stream, stream->submitted);
  return SUCCESS;
}

SIM_API cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes,
                             void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(prepare(call, handle, to, bytes, stream));
  if (bytes != 0 && !call->owns(from, bytes)) return INVALID_VALUE;
  return submit(*stream,
                [to, from, bytes] { std::memmove(pointer_of(to), pointer_of(from), bytes); });
}

SIM_API cuMemsetD8Async(std::uint64_t to, unsigned char value, std::size_t bytes, void *handle) {
  const Call call;
  std::shared_ptr<Stream> stream;
  SIM_TRY(prepare(call, handle, to, bytes, stream));
  return submit(*stream, [to, value, bytes] { std::memset(pointer_of(to), value, bytes); });
}

SIM_API cuMemcpyHtoD_v2(std::uint64_t to, const void *from, std::size_t bytes) {
  SIM_TRY(forbid_in_capture());
  SIM_TRY(cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr));
  return finish(Call());
}

SIM_API cuMemcpyDtoH_v2(void *to, std::uint64_t from, std::size_t bytes) {
  SIM_TRY(forbid_in_capture());
  SIM_TRY(cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr));
  return finish(Call());
}
