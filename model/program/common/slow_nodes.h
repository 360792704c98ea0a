// SPDX-License-Identifier: Apache-2.0
// Nodes that compute slower than others: by --slow-node and by the topology's own rows.
#pragma once

#include <vector>

#include "model/program/common/job_flags.h"

namespace orrery::cli {

// "3:1.2,4..7:1.1", or "gpu-b07:1.2" where the fabric names its hosts.
std::vector<OtherNodes> ReadSlowNodes(const Flag& flag, const FabricSpec& fabric,
                                      Diagnostics* diagnostics);

// Sets the slowdown and the memory by node of the job's topology; notes both.
// Throws InputError: nodes that the job does not have.
void PriceNodes(const JobFlags& flags, const std::vector<OtherNodes>& slow, report::Job* job);

}  // namespace orrery::cli
