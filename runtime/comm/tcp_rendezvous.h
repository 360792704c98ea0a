// SPDX-License-Identifier: Apache-2.0
// How ranks that something else started find each other: rank 0 listens where all know it, collects
// where everybody else listens, and tells them; then each pair has a connection.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/tcp.h"
#include "runtime/comm/tcp_socket.h"

namespace orrery::comm {

struct TcpPeer {
  Socket socket;  // closed for this rank itself
  std::string host;
};

// By rank. Throws InputError: the address does not resolve; CommError: the port is taken, ranks are
// missing after the deadline, by number, or cannot be reached. `peer_failed`: rank 0 says why.
std::vector<TcpPeer> MeetOverTcp(const TcpPlace& place, double deadline_s);

}  // namespace orrery::comm
