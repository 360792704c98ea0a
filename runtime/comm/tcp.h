// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as
// torchrun and many batch systems set them: an endpoint over TCP connections of all pairs.
//
// Ranks prove to each other that they know the run's secret (tcp_door.h); what they send then is
// neither encrypted nor signed.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/node_order.h"

namespace orrery::comm {

struct TcpPlace {
  int64_t rank = 0, size = 1;
  std::string address;  // of rank 0
  int port = 0;
  std::string secret = {};  // the same on all ranks
  std::string listen = {};  // rank 0's address to listen at; empty: `address`
};

// The endpoint belongs to the calling thread. Destroying it waits a few seconds for the others to
// have read what was sent, unless a rank has failed. Abort() prints "SPEAKER: error: ..." on
// standard error of one rank and ends all of them with exit code 1. A rank that is gone is thrown
// by Idle(). Throws InputError and CommError (tcp_rendezvous.h). `nodes`: as in mpi.h.
std::unique_ptr<Endpoint> ConnectTcp(const TcpPlace& place, double deadline_s = 120,
                                     const std::string& speaker = "plan run",
                                     const NodeOrder& nodes = {});

}  // namespace orrery::comm
