// SPDX-License-Identifier: Apache-2.0
// What the order of nodes under the ranks of a job depends on: which nodes share uplinks, and which are slow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/base/quantity.h"
#include "model/hardware/spec.h"
#include "model/hardware/summary.h"

namespace orrery {

// Links out of a part of the cluster: a leaf and the nodes below it, a group of a dragonfly, a slab of a torus. They count
// as one, as if routes were spread over them evenly.
struct Uplinks {
  std::vector<double>
      share;  // by node: of its traffic that leaves the part through them; 0: it is not below them
  BytesPerSecond rate;  // per direction, all of them together
};
// Of the first `nodes` nodes; parts that hold all of them, and fabrics without parts, have none.
std::vector<Uplinks> UplinksOf(const TopologySpec& spec, int64_t nodes);

// Of them those that can hold up what the NICs below them send, at the rates of `cluster`: a question of what twice the NICs
// would do doubles these, too.
std::vector<Uplinks> NarrowUplinks(const TopologySpec& spec, const ClusterSummary& cluster);

// Throws InputError: not each node of the cluster once, or nodes that share a scale-up domain. `fabric`: names hosts.
void CheckNodeOrder(std::span<const int32_t> order, int64_t nodes, int64_t domain_nodes,
                    const FabricSpec& fabric = {});

}  // namespace orrery
