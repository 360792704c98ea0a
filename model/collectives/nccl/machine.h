// SPDX-License-Identifier: Apache-2.0
// From a topology of this twin to what NCCL sees of it, and the communicators that follow.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "model/collectives/nccl/tuning.h"
#include "model/hardware/profile.h"
#include "model/hardware/summary.h"

namespace orrery::nccl {

// Release whose rules these are.
inline constexpr const char* kRelease = "2.28.9";

// CUDA's, in tenths; 0: not a chip of that kind.
inline int Capability(const GpuProfile& gpu) {
  constexpr double kTenths = 10;
  return static_cast<int>(std::lround(gpu.compute_capability * kTenths));
}

// What NCCL sees of a node when it uses these of its GPUs. nullopt: it does not run on this chip.
std::optional<NodeDescription> Describe(const ClusterSummary& cluster, const GpuProfile& gpu,
                                        const FabricProfile& fabric, std::span<const int> gpus);

// The communicator of equal nodes. Built once for equal machines; threads may ask at the same time.
// Null: NCCL does not run there, or the nodes have no network between them.
std::shared_ptr<const Communicator> CommunicatorOf(const ClusterSummary& cluster,
                                                   const GpuProfile& gpu,
                                                   const FabricProfile& fabric,
                                                   std::span<const int> gpus, int nodes);

}  // namespace orrery::nccl
