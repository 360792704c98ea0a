// SPDX-License-Identifier: Apache-2.0
// Derives the view of one group from the cluster's summary and the profiles.
#include "model/collectives/network.h"

#include <algorithm>

#include "model/hardware/measured_collectives.h"

namespace orrery {
namespace {

// Bus bandwidth of rings over `n` ranks of one node. On point-to-point links: packed Hamiltonian
// cycles times the rate of a link; where no cycle exists data pass through a GPU in between, or over PCIe.
BytesPerSecond IntraRing(const ClusterSummary& cluster, const GpuProfile& gpu,
                         const FabricProfile& fabric, int n) {
  const BytesPerSecond pcie = cluster.pcie_rate * fabric.pcie_efficiency;
  switch (cluster.intra) {
    case IntraLink::kNone:
    case IntraLink::kPcie:
      return pcie;
    case IntraLink::kNvSwitch:
      return cluster.scaleup_per_gpu * gpu.ring_efficiency;
    case IntraLink::kCubeMesh:
    case IntraLink::kFullMesh:
      break;
  }
  const int rings = std::max(cluster.PackedRings(n), cluster.RelayedRings(n));
  return rings > 0 ? cluster.per_link * (rings * gpu.ring_efficiency) : pcie;
}

// More than one leaf: the uplinks carry what crosses, and long rings lose to collisions.
double LargeRingFactor(const ClusterSummary& cluster, const FabricProfile& fabric, int nodes) {
  double factor = 1.0 / (1.0 + fabric.large_ring_loss * std::max(0.0, 1.0 - 2.0 / nodes));
  if (nodes > cluster.leaf_nodes && cluster.oversubscription > 1.0) {
    // A ring in rank order leaves each leaf once: one node's flow shares the uplinks of the leaf.
    const double crossing =
        cluster.leaf_nodes > 0 ? 1.0 / static_cast<double>(cluster.leaf_nodes) : 1.0;
    factor = std::min(factor, 1.0 / std::max(1.0, cluster.oversubscription * crossing));
  }
  return factor;
}

std::map<std::pair<int, int>, std::shared_ptr<const Network>> SweptGroups(
    const ClusterSummary& cluster, const GpuProfile& gpu, const FabricProfile& fabric) {
  FabricProfile plain = fabric;
  plain.measured = nullptr;
  std::map<std::pair<int, int>, std::shared_ptr<const Network>> groups;
  for (const GroupCurve& curve : fabric.measured->groups) {
    const int per_node = curve.ranks / curve.nodes;
    if (curve.ranks % curve.nodes != 0 || per_node > cluster.gpus_per_node) continue;
    auto& group = groups[{curve.ranks, curve.nodes}];
    if (group) continue;
    group = std::make_shared<const Network>(
        ViewNetwork(cluster, gpu, plain, GroupShape{curve.ranks, per_node, 1}));
  }
  return groups;
}

}  // namespace

GroupShape ShapeOfAxis(int size, int inner, int gpus_per_node) {
  GroupShape shape;
  shape.ranks = size;
  shape.ranks_per_node = std::clamp(gpus_per_node / std::max(inner, 1), 1, size);
  shape.sharing = std::max(1, gpus_per_node / shape.ranks_per_node);
  return shape;
}

bool EndsApart(const ClusterSummary& cluster, const GroupShape& shape) {
  if (shape.nodes() < 2 || shape.ranks_per_node < 2) return false;
  return cluster.gpus_per_node / shape.ranks_per_node >= cluster.switch_gpus;
}

BytesPerSecond ScaleUpRing(const ClusterSummary& cluster, const GpuProfile& gpu,
                           const FabricProfile& fabric, const BandwidthUse& use) {
  if (cluster.gpus_per_node < 2) return {};
  return IntraRing(cluster, gpu, fabric, cluster.gpus_per_node) * use.scaleup;
}

double TrafficShare(const ClusterSummary& cluster, const GpuProfile& gpu,
                    const FabricProfile& fabric, const GroupShape& shape, const BandwidthUse& use) {
  if (shape.nodes() < 2) return 1;
  const BytesPerSecond inside = ScaleUpRing(cluster, gpu, fabric, use);
  const BytesPerSecond between = ViewNetwork(cluster, gpu, fabric, shape, use).inter_ring;
  return inside.value > 0 ? std::min(1.0, between.value / inside.value) : 1;
}

Network ViewNetwork(const ClusterSummary& cluster, const GpuProfile& gpu,
                    const FabricProfile& fabric, const GroupShape& shape, const BandwidthUse& use) {
  Network view;
  view.shape = shape;
  const int nodes = shape.nodes();
  view.sweeps = fabric.measured;
  view.use = use;
  if (cluster.intra == IntraLink::kCubeMesh || cluster.intra == IntraLink::kFullMesh)
    view.rings = cluster.PackedRings(shape.ranks_per_node);
  view.intra = IntraRing(cluster, gpu, fabric, shape.ranks_per_node) * use.scaleup;
  if (cluster.intra == IntraLink::kNvSwitch) {
    view.in_switch = cluster.scaleup_per_gpu * (gpu.nvls_efficiency * use.scaleup);
  }
  view.local_copy = gpu.local_copy;
  view.intra_hop = gpu.scaleup_hop;
  view.switch_round_trip = gpu.nvls_round_trip;
  view.inter_hop = fabric.hop + cluster.fabric_latency;
  view.launch = nodes > 1 ? fabric.launch : gpu.collective_launch;
  view.low_latency_bandwidth = nodes > 1 ? fabric.low_latency_bandwidth : gpu.low_latency_bandwidth;
  view.low_latency_hop = nodes > 1 ? fabric.low_latency_hop : gpu.low_latency_hop;
  if (nodes == 1 && !gpu.collectives.empty()) view.measured = &gpu;
  view.pipelining = nodes > 1 ? fabric.pipelining : gpu.pipelining;
  view.chain_pipelining = nodes > 1 ? fabric.chain_pipelining : gpu.chain_pipelining;
  view.nics = cluster.nics_per_node;
  if (view.sweeps != nullptr) view.swept = SweptGroups(cluster, gpu, fabric);
  if (nodes > 1) {
    const BytesPerSecond share = cluster.node_rate() * (use.nic / shape.sharing);
    view.inter_ring =
        share * (fabric.nic_ring_efficiency * LargeRingFactor(cluster, fabric, nodes));
    view.inter_tree = share * fabric.nic_tree_efficiency;
    // Two nodes exchange S each way: ring-like. More: interior nodes of the trees send 2 S.
    view.inter_nvls_tree =
        share * (nodes == 2 ? fabric.nic_ring_efficiency : fabric.nic_nvls_tree_efficiency);
    const double uplink =
        nodes > cluster.leaf_nodes ? std::max(1.0, cluster.oversubscription) : 1.0;
    // One rank sends through its own NICs, however idle the others are.
    const double own = std::max(1, cluster.nics_per_node / std::max(1, cluster.gpus_per_node));
    const BytesPerSecond direct = std::min(share, cluster.nic_rate * (own * use.nic));
    view.inter_direct = direct * (fabric.point_to_point_efficiency / uplink);
  }
  return view;
}

}  // namespace orrery
