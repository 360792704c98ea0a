// SPDX-License-Identifier: Apache-2.0
// The network between nodes: adds its switches and links to a cluster and routes by rule.
//
// A port is one NIC of one node, numbered node * NICs per node + NIC.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/hardware/cluster.h"

namespace orrery {

using Port = int64_t;

class FabricRouting {
 public:
  virtual ~FabricRouting() = default;
  // Appends the links from one NIC to another NIC, both NIC ports included.
  virtual void Append(Port from, Port to, int channel, std::vector<LinkId>* route) const = 0;
};

// Adds switches and links behind those already in the cluster; `nic_vertices` by port.
std::shared_ptr<const FabricRouting> AddFabric(const TopologySpec& spec, int64_t nodes,
                                               const std::vector<VertexId>& nic_vertices,
                                               std::vector<Device>* devices,
                                               std::vector<Link>* links);

// What every fabric needs while it is built. Both directions of a link have ids 2k and 2k + 1
// relative to the id that Connect returns.
class FabricBuilder {
 public:
  FabricBuilder(std::vector<Device>* devices, std::vector<Link>* links)
      : devices_(devices), links_(links) {}

  VertexId AddSwitches(DeviceKind kind, int64_t count);  // the first of them
  LinkId Connect(VertexId a, VertexId b, BytesPerSecond capacity,
                 LinkKind kind);  // a to b; b to a follows
  LinkId next_link() const { return static_cast<LinkId>(links_->size()); }

 private:
  std::vector<Device>* devices_;
  std::vector<Link>* links_;
};

// Every NIC, node by node, on the switch that `switch_of(port)` names; returns the id of port 0's outward link.
template <class SwitchOf>
LinkId ConnectPorts(FabricBuilder* builder, const std::vector<VertexId>& nics, const NodeSpec& node,
                    SwitchOf switch_of) {
  const LinkId first = builder->next_link();
  for (std::size_t port = 0; port < nics.size(); ++port) {
    builder->Connect(nics[port], switch_of(static_cast<Port>(port)),
                     NicRate(node, static_cast<int>(port % node.nics.size())), LinkKind::kNicPort);
  }
  return first;
}

std::shared_ptr<const FabricRouting> MakeSingleSwitch(const TopologySpec& spec,
                                                      const std::vector<VertexId>& nics,
                                                      FabricBuilder* builder);
std::shared_ptr<const FabricRouting> MakeFatTree(const TopologySpec& spec,
                                                 const std::vector<VertexId>& nics,
                                                 FabricBuilder* builder);
std::shared_ptr<const FabricRouting> MakeDragonfly(const TopologySpec& spec,
                                                   const std::vector<VertexId>& nics,
                                                   FabricBuilder* builder);
std::shared_ptr<const FabricRouting> MakeTorus(const TopologySpec& spec,
                                               const std::vector<VertexId>& nics,
                                               FabricBuilder* builder);
std::shared_ptr<const FabricRouting> MakeNamed(const TopologySpec& spec,
                                               const std::vector<VertexId>& nics,
                                               FabricBuilder* builder);

}  // namespace orrery
