// SPDX-License-Identifier: Apache-2.0
// From a topology of this twin to what NCCL sees of it, and the communicators that follow.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "model/collectives/nccl/setting.h"
#include "model/collectives/nccl/tuning.h"

namespace orrery::nccl {

// What NCCL sees of a node when it uses these of its GPUs. nullopt: it does not run on this chip.
std::optional<NodeDescription> Describe(const Setting& setting, std::span<const int> gpus);

// The communicator of equal nodes. Built once for equal machines; threads may ask at the same time.
// Null: NCCL does not run there, or the nodes have no network between them.
std::shared_ptr<const Communicator> CommunicatorOf(const Setting& setting,
                                                   std::span<const int> gpus, int nodes);

// Throws InputError: NCCL does not run on this chip, or not in this release.
void RequireRelease(Release release, const GpuProfile& gpu);

}  // namespace orrery::nccl
