// SPDX-License-Identifier: Apache-2.0
// Figures that follow from a topology description alone.
#include "model/hardware/spec.h"

#include <algorithm>

namespace orrery {

int64_t LeafNodes(const TopologySpec& spec) {
  const FabricSpec& fabric = spec.fabric;
  const auto nics = static_cast<int64_t>(spec.node.nics.size());
  switch (fabric.kind) {
    case FabricKind::kNone:
    case FabricKind::kSingleSwitch:
      return spec.max_nodes;
    case FabricKind::kFatTree:
      return std::max<int64_t>(1, fabric.leaf_ports / nics);
    case FabricKind::kRailOptimised:
      return fabric.leaf_ports;
    case FabricKind::kDragonfly:
      return std::max<int64_t>(1, fabric.routers_per_group * fabric.ports_per_router / nics);
    case FabricKind::kTorus:
      return 1;
    case FabricKind::kNamed: {
      // Ranks fill the hosts in order: those that share all switches of node 0 before any uplink.
      std::size_t together = fabric.hosts.size();
      for (const NamedSwitch& one : fabric.switches) {
        if (one.hosts.empty() || one.hosts.front() != 0) continue;
        std::size_t here = 0;
        while (here < one.hosts.size() && one.hosts[here] == static_cast<int64_t>(here)) ++here;
        together = std::min(together, here);
      }
      return static_cast<int64_t>(std::max<std::size_t>(1, together));
    }
  }
  return 1;
}

int64_t NodesPerDomain(const TopologySpec& spec, int64_t nodes) {
  const int64_t most = spec.node.domain_nodes;
  for (int64_t domains = (nodes + most - 1) / most; domains <= nodes; ++domains) {
    const int64_t each = nodes / domains;
    if (domains > 1 && 2 * each < most) break;
    if (nodes % domains == 0) return each;
  }
  return 0;
}

BytesPerSecond ScaleUpPerGpu(const NodeSpec& node) {
  switch (node.intra) {
    case IntraLink::kNone:
      return BytesPerSecond(0);
    case IntraLink::kPcie:
      return node.pcie_rate;
    case IntraLink::kNvSwitch:
    case IntraLink::kCubeMesh:
    case IntraLink::kFullMesh:
      return node.per_link * node.links_per_gpu;
  }
  return BytesPerSecond(0);
}

BytesPerSecond NicRate(const NodeSpec& node, int nic) {
  const auto degraded = node.degraded_nics.find(nic);
  return degraded == node.degraded_nics.end() ? node.nic_rate : degraded->second;
}

BytesPerSecond SlowestNic(const NodeSpec& node) {
  BytesPerSecond slowest = node.nic_rate;
  for (const auto& [nic, rate] : node.degraded_nics) slowest = std::min(slowest, rate);
  return slowest;
}

}  // namespace orrery
