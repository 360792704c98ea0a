// SPDX-License-Identifier: Apache-2.0
// What NCCL would choose for a message of this twin: its algorithm, protocol and channels.
#pragma once

#include <memory>
#include <optional>

#include "model/collectives/algorithm.h"
#include "model/collectives/nccl/tuning.h"
#include "model/hardware/profile.h"
#include "model/hardware/summary.h"

namespace orrery {

// The communicator of one group: its ranks lie evenly over a node where it has several nodes, and are
// the first GPUs of it else. Null: NCCL does not run there, or the ranks do not fill their nodes evenly.
std::shared_ptr<const nccl::Communicator> NcclCommunicator(const ClusterSummary& cluster,
                                                           const GpuProfile& gpu,
                                                           const FabricProfile& fabric,
                                                           const GroupShape& shape);

// nullopt: NCCL has no algorithms for it, only messages between pairs of ranks.
std::optional<nccl::Operation> NcclOperation(Collective collective);

}  // namespace orrery
