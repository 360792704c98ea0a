// SPDX-License-Identifier: Apache-2.0
// Files of hosts that launchers take their nodes from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/exchange/setting.h"

namespace orrery::exchange {

// The parts of a list between its signs; an empty text is one empty part.
std::vector<std::string> SplitAt(const std::string& text, char sign);

// How a command uses one.
struct Hostfile {
  Setting file;                 // or "a:8,b:8" under the key "hosts"
  int64_t tasks = 0, each = 0;  // processes of the job and of a node; 0: not said
  bool spread = false;          // one host after the other, not slot by slot
  bool fills = false;           // slot by slot, of mpirun
  bool agents = false;          // processes start the ranks of a node
  Setting filter = {};          // of DeepSpeed: "w1:0,1@w2", hosts and slots; no value: all of them
  bool excludes = false;        // which the job leaves out

  bool filters() const { return !filter.value.empty() || !filter.unresolved.empty(); }
};

// NNODES and GPUS_PER_NODE of the job on these hosts, and a note of what was counted. None: the hosts are not known, and `unknown`
// gets why. `gpus`: slots of a host where nothing else says; 0: nobody knows. Throws InputError: lines that are no hosts, fewer hosts
// than processes need, processes that nodes do not share out evenly, a filter of other hosts.
Settings NodesOf(const Hostfile& use, const OpenNamed& open, int64_t gpus, Settings* unknown,
                 std::vector<std::string>* notes);

}  // namespace orrery::exchange
