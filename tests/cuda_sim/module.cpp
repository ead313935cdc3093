// Modules and launches of the fake driver. What runs is compiled into this library; an image is
// only asked whether a GPU would take it and whether it has the kernel.
#include <elf.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "driver.h"
#include "tensor_map.h"

namespace sim {
namespace {

struct Module {
  Device *device;
  bool binary;
  std::string image;

  bool has(const std::string &name) const {
    if (binary) {
      return image.find(".text." + name + '\0') != std::string::npos;
    }
    for (std::size_t at = 0; (at = image.find(".entry", at)) != std::string::npos; ++at) {
      const std::size_t start = image.find_first_not_of(" \t", at + 6);
      if (image.compare(start, name.size(), name) == 0 &&
          std::strchr("( \t\n", image[start + name.size()]))
        return true;
    }
    return false;
  }
};

struct Function {
  Device *device;
  const Kernel *kernel;
  unsigned shared_bytes = 0;  // that a launch may ask for, beyond 48 KiB
};

// Bytes of an ELF file: its headers and sections say where it ends.
std::size_t elf_bytes(const char *image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  std::size_t end = std::max(header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize,
                             header.e_phoff + std::size_t{header.e_phnum} * header.e_phentsize);
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + static_cast<std::size_t>(i) * header.e_shentsize,
                sizeof section);
    if (section.sh_type != SHT_NOBITS)
      end = std::max<std::size_t>(end, section.sh_offset + section.sh_size);
  }
  return end;
}

// The capability that a cubin is for: bits 8 to 15 of its flags since CUDA 13, bits 0 to 7 before.
int elf_capability(const char *image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  const unsigned newer = header.e_flags >> 8 & 0xff;
  return static_cast<int>(header.e_ident[EI_ABIVERSION] >= 8 ? newer : header.e_flags & 0xff);
}

// The newest PTX version, as 10 * major + minor, of a driver.
int newest_ptx(int driver) {
  const int major = driver / 1000, minor = driver % 1000 / 10;
  if (major < 12) return 70 + minor;
  // 12.6 brought nothing new.
  if (major == 12) return 80 + minor - (minor >= 6 ? 1 : 0);
  return 90 + minor;
}

Result check_ptx(const std::string &ptx) {
  int major, minor, target;
  const std::size_t version_at = ptx.find("\n.version"), target_at = ptx.find("\n.target");
  if (version_at == std::string::npos || target_at == std::string::npos ||
      std::sscanf(ptx.c_str() + version_at, " .version %d.%d", &major, &minor) != 2 ||
      std::sscanf(ptx.c_str() + target_at, " .target sm_%d", &target) != 1)
    return INVALID_IMAGE;
  if (10 * major + minor > newest_ptx(settings().driver)) return UNSUPPORTED_PTX_VERSION;
  return target > settings().capability ? INVALID_PTX : SUCCESS;
}

}  // namespace
}  // namespace sim

using namespace sim;

SIM_API cuModuleLoadData(void **module, const void *data) {
  const Call call;
  SIM_TRY(call.error());
  SIM_TRY(forbid_in_capture());
  const auto *image = static_cast<const char *>(data);
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) {
    if (settings().reject_cubin || elf_capability(image) / 10 != settings().capability / 10 ||
        elf_capability(image) > settings().capability)
      return NO_BINARY_FOR_GPU;
    *module = new Module{&*call, true, std::string(image, elf_bytes(image))};
    return SUCCESS;
  }
  // Text begins with a comment or a directive.
  if (*image != '/' && *image != '.' && *image != '\n') return INVALID_IMAGE;
  const std::string ptx = std::string("\n") + image;
  SIM_TRY(check_ptx(ptx));
  *module = new Module{&*call, false, ptx};
  return SUCCESS;
}

SIM_API cuModuleUnload(void *module) {
  delete static_cast<Module *>(module);
  return SUCCESS;
}

SIM_API cuModuleGetFunction(void **function, void *module, const char *name) {
  const Call call;
  SIM_TRY(call.error());
  const auto &own = *static_cast<Module *>(module);
  if (!own.has(name)) return NOT_FOUND;
  for (const Kernel &kernel : kernels()) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    // Lives as long as the process: the module may go before its functions are last used.
    static std::mutex mutex;
    static std::map<std::pair<Device *, const Kernel *>, Function> functions;
    const std::lock_guard<std::mutex> lock(mutex);
    const Function made = {own.device, &kernel};
    *function = &functions.try_emplace({own.device, &kernel}, made).first->second;
    return SUCCESS;
  }
  std::fprintf(
      stderr,
      "simulated CUDA device: the image has a kernel %s, the simulator was built without it\n",
      name);
  return NOT_FOUND;
}

SIM_API cuFuncSetAttribute(void *function, int attribute, int value) {
  // Of a multiprocessor's shared memory a block of compute capability 9.0 may have 227 KiB.
  if (attribute != 8) return SUCCESS;
  if (value < 0 || value > 227 << 10) return INVALID_VALUE;
  static_cast<Function *>(function)->shared_bytes = static_cast<unsigned>(value);
  return SUCCESS;
}

// A matrix in tiles of rows of 64 or 128 bytes, with the swizzle of as many: all that the kernels use.
SIM_API cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                               const std::uint64_t *sizes, const std::uint64_t *strides,
                               const unsigned *box, const unsigned *element_strides, int interleave,
                               int swizzle, int, int fill) {
  constexpr int UINT8 = 0, BFLOAT16 = 9, SWIZZLE_64 = 2, SWIZZLE_128 = 3;
  const unsigned value_bytes = type == UINT8 ? 1 : 2;
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const unsigned row_bytes = swizzle == SWIZZLE_64 ? 64 : 128;
  if ((type != UINT8 && type != BFLOAT16) || rank != 2 || interleave != 0 ||
      (swizzle != SWIZZLE_64 && swizzle != SWIZZLE_128) || fill != 0)
    return NOT_SUPPORTED;
  if (reinterpret_cast<std::uint64_t>(map) % 64 != 0 || at % 16 != 0 || strides[0] % 16 != 0 ||
      sizes[0] == 0 || sizes[1] == 0 || sizes[0] > 1ull << 32 || sizes[1] > 1ull << 32 ||
      strides[0] >= 1ull << 40 || box[0] == 0 || box[1] == 0 || box[0] > 256 || box[1] > 256 ||
      box[0] * value_bytes > row_bytes || element_strides[0] != 1 || element_strides[1] != 1)
    return INVALID_VALUE;
  // The simulator's tiles have whole rows of the swizzle.
  if (box[0] * value_bytes != row_bytes) return NOT_SUPPORTED;
  *static_cast<MapView *>(map) = {MAP_MAGIC,   at,     sizes[1],    sizes[0],           strides[0],
                                  box[1], box[0], value_bytes, row_bytes / 16 - 1};
  return SUCCESS;
}

namespace {

// An argument, aligned as a tensor map has to be.
struct alignas(128) Part {
  char bytes[128];
};
using Value = std::vector<Part>;

// A launch with its own copy of the arguments.
struct Recorded {
  const Kernel *kernel;
  dim3 grid, block;
  std::vector<Value> values;
  unsigned shared_bytes;
  bool overlaps;

  void run() const {
    std::vector<void *> args;
    for (const auto &value : values) args.push_back(const_cast<Part *>(value.data()));
    sim::run({kernel, grid, block, args.data(), settings().schedule, shared_bytes, overlaps});
  }
};

// Every pointer must lead into (or to the end of) memory of this device.
Result check_pointers(Device &device, const Recorded &launch) {
  for (std::size_t i = 0; i < launch.values.size(); ++i) {
    if (!launch.kernel->arg_is_pointer[i]) continue;
    std::uint64_t pointer;
    std::memcpy(&pointer, launch.values[i].data(), sizeof pointer);
    if (pointer == 0 || device.owns(pointer, 0)) continue;
    std::fprintf(stderr,
                 "simulated CUDA device: argument %zu of kernel %s is no memory of device %d\n", i,
                 launch.kernel->name, device.ordinal);
    return device.failed = ILLEGAL_ADDRESS;
  }
  return SUCCESS;
}

}  // namespace

SIM_API cuLaunchKernelEx(const LaunchConfig *config, void *handle, void **args, void **extra) {
  const Call call;
  SIM_TRY(call.error());
  const auto [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream_handle,
              attributes, num_attributes] = *config;
  bool overlaps = false;
  for (unsigned i = 0; i < num_attributes; ++i) {
    if (attributes[i].id != PROGRAMMATIC_STREAM_SERIALIZATION) return NOT_SUPPORTED;
    overlaps = attributes[i].value != 0;
  }
  const std::shared_ptr<Stream> stream = stream_of(*call, stream_handle);
  const auto &function = *static_cast<Function *>(handle);
  if (!stream || function.device != &*call) return INVALID_HANDLE;
  const std::uint64_t threads = std::uint64_t{block_x} * block_y * block_z;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || threads == 0 || grid_x > 0x7fffffff ||
      grid_y > 65535 || grid_z > 65535 || threads > 1024 || block_z > 64 ||
      shared_bytes > std::max(48u << 10, function.shared_bytes))
    return INVALID_VALUE;
  if (grid_x % function.kernel->cluster_blocks != 0) return INVALID_VALUE;
  if (extra) return NOT_SUPPORTED;
  if (threads > static_cast<std::uint64_t>(function.kernel->max_threads))
    return LAUNCH_OUT_OF_RESOURCES;

  Recorded launch = {function.kernel, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, overlaps};
  for (std::size_t i = 0; i < function.kernel->arg_bytes.size(); ++i) {
    const std::size_t bytes = function.kernel->arg_bytes[i];
    launch.values.emplace_back((bytes + sizeof(Part) - 1) / sizeof(Part));
    std::memcpy(launch.values.back().data(), args[i], bytes);
  }
  if (!stream->capture) SIM_TRY(count_launch(*call));
  SIM_TRY(check_pointers(*call, launch));
  return submit(*stream, [launch] { launch.run(); });
}

SIM_API cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       void *stream, void **args, void **extra) {
  const LaunchConfig config = {grid_x,  grid_y,       grid_z, block_x, block_y,
                               block_z, shared_bytes, stream, nullptr, 0};
  return cuLaunchKernelEx(&config, handle, args, extra);
}
