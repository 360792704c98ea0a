// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that MPI started.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/node_order.h"

namespace orrery::comm {

// Initialises MPI; once per process. The endpoint belongs to the calling thread. Destroying it
// finalises MPI, unless a rank has failed: then it waits for the end of the job. Abort() prints
// "SPEAKER: error: ..." on standard error of one rank and ends all of them with exit code 1. When
// not all ranks have come after `deadline_s` seconds, the process says so and exits with 1. Ranks are
// numbered as `nodes` places them; where the hosts are not those nodes, one process says why, and all throw CommError with `peer_failed`.
std::unique_ptr<Endpoint> ConnectMpi(double deadline_s = 120,
                                     const std::string& speaker = "plan run",
                                     const NodeOrder& nodes = {});

}  // namespace orrery::comm
