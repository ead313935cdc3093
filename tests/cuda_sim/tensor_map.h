// What the fake driver writes into the 128 bytes of a tensor map.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

constexpr std::uint64_t MAP_MAGIC = 0x70616d2d726f736e;

struct MapView {
  std::uint64_t magic;
  std::uint64_t address, rows, columns, stride;  // stride in bytes
  std::uint32_t box_rows, box_columns, value_bytes;
  std::uint32_t swizzle;  // bits 7, 8 ... of an address, as many as are set here, change bits 4, 5 ...

  std::size_t box_bytes() const {
    return std::size_t{box_rows} * box_columns * value_bytes;
  }
};

}  // namespace sim
