// SPDX-License-Identifier: Apache-2.0
// Ranks of a run by the hosts that its processes are on, as a plan places them on nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::comm {

// Nodes of a plan by place (ir::Plan::nodes): place p holds as many ranks as each other one, those of node nodes[p].
// Node k is the k-th host to which the launcher has given a process. Empty: hosts do not matter.
using NodeOrder = std::vector<int32_t>;

struct OrderedRanks {
  std::vector<int64_t> ranks;  // of the run, by number of the process; empty: the same numbers
  std::string refusal, hint;   // why these hosts are not the plan's nodes; empty: they are
};

// `hosts`: by number of the process. On one host alone, where the order has no effect, the numbers stay.
OrderedRanks RanksInOrder(const std::vector<std::string>& hosts, const NodeOrder& nodes);

}  // namespace orrery::comm
