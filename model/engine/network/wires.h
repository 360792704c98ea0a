// SPDX-License-Identifier: Apache-2.0
// The capacities that a network simulation runs on: one number per directed link, and its name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/hardware/cluster.h"

namespace orrery::net {

// By LinkId. A capacity of 0 is a link that is down: paths over it are refused.
struct Wires {
  std::vector<BytesPerSecond> capacity;
  std::function<std::string(LinkId)> name;  // for messages; may be empty
};

// The links of a cluster at their nominal rates. `cluster` must outlive the result.
Wires WiresOf(const Cluster& cluster);

std::string LinkName(const Cluster& cluster, LinkId link);  // "n0.nic1 -> leaf2"

}  // namespace orrery::net
