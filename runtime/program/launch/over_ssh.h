// SPDX-License-Identifier: Apache-2.0
// `plan launch --ssh`: this program on every host of a hostfile.
#pragma once

#include <string>
#include <vector>

#include "runtime/launch/hostfile.h"

namespace orrery::launch {

struct SshJob {
  std::vector<HostSlots> hosts;         // the first is the main node
  std::string main;                     // where the others find it
  int port = 0;                         // where it listens
  std::string secret;                   // empty: one is made
  std::vector<std::string> words;       // of `plan launch` on each host, the command included
  std::vector<std::string> main_words;  // in front of those, on the main node alone
  double deadline_s = 300;              // until the agent has reached a host
};

// Starts the nodes, passes on what they print, names hosts that are not reached until the deadline, and returns the main node's exit
// code; kTooFewCode where that one is not reached. SIGTERM, SIGINT and SIGUSR1 end the command on all nodes as SIGTERM does.
int RunOverSsh(const SshJob& job);

}  // namespace orrery::launch
