// SPDX-License-Identifier: Apache-2.0
// Which GPUs this process sees, and whether this build can use them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::cuda {

struct Gpu {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int processors = 0;
  int64_t free_bytes = 0, total_bytes = 0;
};

struct Findings {
  std::vector<Gpu> gpus;
  int driver = 0, runtime = 0;  // versions as 1000 major + 10 minor; driver 0: none is installed
  std::string error;            // what CUDA says when it cannot be asked; empty: nothing
};

struct DeviceCheck {
  std::string refusal, hint;  // refusal empty: all is well
};

// Asks CUDA. Memory is asked for only where `memory`: that opens a context on each GPU.
Findings Probe(bool memory);
// No driver, one that is too old, no GPU, one that is older than the build, GPUs of several models. `architecture`: 90.
DeviceCheck CheckDevices(const Findings& findings, int architecture);

// Whether `ranks` ranks of `bytes` each have room: all on the first GPU (`shared`), or one on each.
DeviceCheck CheckRanks(const std::vector<Gpu>& gpus, int64_t ranks, bool shared, double bytes);

// By rank, on however many machines: the GPU, and where it is ("rank 3 on node7"). "": all are of one model.
std::string MixedModels(const std::vector<std::string>& gpus,
                        const std::vector<std::string>& places);

// What is said when the device has not got what a rank asks for.
std::string NoRoom(const Gpu& gpu, int64_t arena_bytes, int64_t scratch_bytes);

// FLOP/s of dense bf16 products by data sheet; 0: unknown.
double PeakOf(const Gpu& gpu);

}  // namespace orrery::cuda
