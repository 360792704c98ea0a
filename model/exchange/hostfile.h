// SPDX-License-Identifier: Apache-2.0
// Files of hosts that launchers take their nodes from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/exchange/setting.h"

namespace orrery::exchange {

// How a command uses one.
struct Hostfile {
  Setting file;
  int64_t tasks = 0, each = 0;  // processes of the job and of a node; 0: not said
  bool spread = false;          // one host after the other, not slot by slot
  bool agents = false;          // processes start the ranks of a node
};

// NNODES and GPUS_PER_NODE of the job on these hosts, and a note of what was counted. Throws InputError:
// lines that are no hosts, fewer hosts than processes need, processes that nodes do not share out evenly.
Settings NodesOf(const Hostfile& use, const SourcePtr& hosts, std::vector<std::string>* notes);

// Why there is none.
std::string NoHostfile(const Hostfile& use);

}  // namespace orrery::exchange
