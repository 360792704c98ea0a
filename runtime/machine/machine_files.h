// SPDX-License-Identifier: Apache-2.0
// What was measured of this machine, as a topology file and a profile that it names.
#pragma once

#include <string>
#include <vector>

#include "runtime/machine/collective_sweep.h"
#include "runtime/machine/kernel_sweep.h"

namespace orrery::machine {

struct Measured {
  int64_t cores = 1;
  Precision precision = Precision::kFp32;
  KernelSweep kernels;
  std::vector<CollectiveTime> collectives;
  double memory_bytes = 0;  // of the machine
};

inline constexpr const char* kTopologyFile = "machine.yaml";
inline constexpr const char* kProfileFile = "cpu.yaml";

std::string TopologyText(const Measured& measured);
std::string ProfileText(const Measured& measured);

// Writes both into `folder`, which is made. Throws std::runtime_error.
void WriteMachine(const Measured& measured, const std::string& folder);

}  // namespace orrery::machine
