// SPDX-License-Identifier: Apache-2.0
// Reads capacities and names off a cluster.
#include "model/engine/network/wires.h"

namespace orrery::net {

std::string LinkName(const Cluster& cluster, LinkId link) { return cluster.LinkName(link); }

Wires WiresOf(const Cluster& cluster) {
  Wires wires;
  wires.capacity.reserve(cluster.links.size());
  for (const Link& link : cluster.links) wires.capacity.push_back(link.capacity);
  wires.name = [&cluster](LinkId link) { return LinkName(cluster, link); };
  return wires;
}

}  // namespace orrery::net
