// The kernels, compiled for the CPU, and the table of them.
#include POLYSIFT_SIM_SOURCE

#include "engine.h"
#include "race.h"

#ifdef POLYSIFT_SIM_WATCHED
const bool sim::KERNELS_ARE_WATCHED = true;
#else
const bool sim::KERNELS_ARE_WATCHED = false;
#endif

// Made by kernel_names.sh from the same source, so that no kernel can be missing.
#define SIM_KERNEL(name, ...) sim::detail::Entry<name>::kernel(#name, __VA_ARGS__),
static const std::vector<sim::Kernel> table = {
#include "kernel_names.inc"
};

const std::vector<sim::Kernel> &sim::kernels() { return table; }
