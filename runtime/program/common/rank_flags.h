// SPDX-License-Identifier: Apache-2.0
// The flags that say how ranks are started: --comm and --timeout.
#pragma once

#include <memory>
#include <string>

#include "model/program/common/flags.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/node_order.h"
#include "runtime/launch/place.h"

namespace orrery::cli {

// Seconds; 120 when it was not given.
double ReadTimeout(const Flag& flag, Diagnostics* diagnostics);

enum class Comm {
  kLocal,  // threads of this process
  kMpi,    // processes of mpirun, or of a batch system
  kTcp,    // processes that find each other by MASTER_ADDR
};
const char* CommName(Comm comm);  // as --comm has it

// What `ranks` ranks are to be, from --comm, from how this process was started and from what this
// build and machine have.
Comm ReadComm(const Flag& flag, const launch::Place& place, int64_t ranks,
              Diagnostics* diagnostics);

// The endpoint of a rank that is a process. Null: ranks do not come together, and it was said; `peer_failed`: because of
// another rank. Its rank is that of `nodes`, which need not be place.rank. Throws InputError.
std::unique_ptr<comm::Endpoint> ConnectProcess(Comm comm, const launch::Place& place,
                                               double deadline_s, const std::string& speaker,
                                               const comm::NodeOrder& nodes = {},
                                               bool* peer_failed = nullptr);

}  // namespace orrery::cli
