// SPDX-License-Identifier: Apache-2.0
// Fat trees of two or three levels, with leaves per group of nodes or per rail.
//
// Plain:           leaf g holds all NICs of nodes g*L .. g*L + L-1.
// Rail-optimised:  leaf g*K + k holds NIC k of those nodes (K NICs per node).
//
//   core            core[u*P + p]      spine u of every pod to all P cores of its group u
//   spine   pod 0: spine[0..U)   pod 1: spine[U..2U)   U = ceil(ports of a leaf / oversubscription)
//   leaf    every leaf of a pod to all U spines of the pod
//
// The U uplinks of a leaf together carry its ports' rate / oversubscription; above the spines there
// is full bisection. A leaf's uplink is chosen by the sender's port, turned by the channel: the mirror
// image of InfiniBand's destination-modulo rule (Zahavi, "Fat-Trees Routing and Node Ordering Providing
// Contention Free Traffic for MPI Global Collectives", 2010). Shifts between leaves do not collide
// under either; under this one rings that leave a leaf and rings that close do not either, as where
// switches route adaptively.
#include <algorithm>
#include <cmath>

#include "model/hardware/fabric.h"

namespace orrery {
namespace {

class FatTree : public FabricRouting {
 public:
  FatTree(const TopologySpec& spec, const std::vector<VertexId>& nics, FabricBuilder* builder)
      : rails_(spec.fabric.kind == FabricKind::kRailOptimised),
        nics_(static_cast<int64_t>(spec.node.nics.size())),
        leaf_nodes_(LeafNodes(spec)) {
    const int64_t nodes = static_cast<int64_t>(nics.size()) / nics_;
    const int64_t groups = (nodes + leaf_nodes_ - 1) / leaf_nodes_;
    const int64_t leaves = rails_ ? groups * nics_ : groups;
    const int64_t leaf_ports = rails_ ? leaf_nodes_ : leaf_nodes_ * nics_;
    pod_leaves_ = spec.fabric.levels == 3 ? spec.fabric.pod_leaves : leaves;
    spines_ = static_cast<int64_t>(
        std::ceil(static_cast<double>(leaf_ports) / spec.fabric.oversubscription));
    const BytesPerSecond uplink =
        spec.node.nic_rate * (static_cast<double>(leaf_ports) /
                              (spec.fabric.oversubscription * static_cast<double>(spines_)));
    const VertexId leaf = builder->AddSwitches(DeviceKind::kLeaf, leaves);
    ports_ = ConnectPorts(builder, nics, spec.node,
                          [&](Port port) { return static_cast<VertexId>(leaf + LeafOf(port)); });
    if (leaves > 1) AddSpines(leaf, leaves, uplink, builder);
  }

  void Append(Port from, Port to, int channel, std::vector<LinkId>* route) const override {
    route->push_back(static_cast<LinkId>(ports_ + 2 * from));
    const int64_t a = LeafOf(from), b = LeafOf(to);
    if (a != b) {
      const int64_t spine = (PortInLeaf(from) + channel) % spines_;
      const int64_t pod_a = a / pod_leaves_, pod_b = b / pod_leaves_;
      route->push_back(LeafLink(a, spine));
      if (pod_a != pod_b) {
        const int64_t core = (b % pod_leaves_ + channel) % pod_leaves_;
        route->push_back(CoreLink(pod_a, spine, core));
        route->push_back(CoreLink(pod_b, spine, core) + 1);
      }
      route->push_back(LeafLink(b, spine) + 1);
    }
    route->push_back(static_cast<LinkId>(ports_ + 2 * to + 1));
  }

 private:
  int64_t LeafOf(Port port) const {
    const int64_t group = port / nics_ / leaf_nodes_;
    return rails_ ? group * nics_ + port % nics_ : group;
  }
  int64_t PortInLeaf(Port port) const {
    const int64_t node = port / nics_ % leaf_nodes_;
    return rails_ ? node : node * nics_ + port % nics_;
  }
  LinkId LeafLink(int64_t leaf, int64_t spine) const {
    return static_cast<LinkId>(leaf_links_ + 2 * (leaf * spines_ + spine));
  }
  LinkId CoreLink(int64_t pod, int64_t spine, int64_t core) const {
    return static_cast<LinkId>(core_links_ + 2 * ((pod * spines_ + spine) * pod_leaves_ + core));
  }

  void AddSpines(VertexId leaf, int64_t leaves, BytesPerSecond uplink, FabricBuilder* builder) {
    const int64_t pods = (leaves + pod_leaves_ - 1) / pod_leaves_;
    const VertexId spine = builder->AddSwitches(DeviceKind::kSpine, pods * spines_);
    leaf_links_ = builder->next_link();
    for (int64_t l = 0; l < leaves; ++l) {
      for (int64_t u = 0; u < spines_; ++u) {
        builder->Connect(static_cast<VertexId>(leaf + l),
                         static_cast<VertexId>(spine + l / pod_leaves_ * spines_ + u), uplink,
                         LinkKind::kFabric);
      }
    }
    if (pods == 1) return;
    const VertexId core = builder->AddSwitches(DeviceKind::kCore, spines_ * pod_leaves_);
    core_links_ = builder->next_link();
    for (int64_t s = 0; s < pods * spines_; ++s) {
      for (int64_t c = 0; c < pod_leaves_; ++c) {
        builder->Connect(static_cast<VertexId>(spine + s),
                         static_cast<VertexId>(core + s % spines_ * pod_leaves_ + c), uplink,
                         LinkKind::kFabric);
      }
    }
  }

  bool rails_;
  int64_t nics_;  // per node
  int64_t leaf_nodes_;
  int64_t pod_leaves_ = 1;
  int64_t spines_ = 1;  // per pod
  LinkId ports_ = 0, leaf_links_ = 0, core_links_ = 0;
};

}  // namespace

std::shared_ptr<const FabricRouting> MakeFatTree(const TopologySpec& spec,
                                                 const std::vector<VertexId>& nics,
                                                 FabricBuilder* builder) {
  return std::make_shared<FatTree>(spec, nics, builder);
}

}  // namespace orrery
