// Finds accesses to shared memory that no block barrier orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sim {

// kernels.cpp: whether the kernels were compiled to report their accesses (race.cpp).
extern const bool KERNELS_ARE_WATCHED;

// Who accessed each byte of a block's shared memory since the last barrier.
class RaceCheck {
 public:
  // A reader that is no single thread: the matrix units, on behalf of a warpgroup.
  static constexpr int MATRIX_UNITS = -2;

  explicit RaceCheck(std::size_t bytes) : bytes_(KERNELS_ARE_WATCHED ? bytes : 0) {}
  // What comes after is ordered with what came before.
  void barrier() { ++epoch_; }
  // Ends the process with a message if the access races with another.
  void access(std::size_t offset, std::size_t bytes, int thread, bool writes);

 private:
  struct Byte {
    std::uint64_t written = 0, read = 0;  // in which epoch
    int writer = 0, reader = 0;           // the latter: MANY if there were several
  };
  static constexpr int MANY = -1;

  std::vector<Byte> bytes_;
  std::uint64_t epoch_ = 1;
};

}  // namespace sim
