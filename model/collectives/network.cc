// SPDX-License-Identifier: Apache-2.0
// Derives the view of one group from the cluster's summary and the profiles.
#include "model/collectives/network.h"

#include <algorithm>

#include "model/collectives/algorithm.h"
#include "model/collectives/nccl/tuning.h"
#include "model/hardware/measured_collectives.h"
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

// The links that a ring over `n` ranks of one node runs on. On point-to-point links: packed
// Hamiltonian cycles times the rate of a link; where no cycle exists data pass through a GPU in
// between, or over PCIe.
void SetInside(const ClusterSummary& cluster, int n, Network* view) {
  view->inside = cluster.pcie_rate;
  view->inside_is_pcie = true;
  switch (cluster.intra) {
    case IntraLink::kNone:
    case IntraLink::kPcie:
      return;
    case IntraLink::kNvSwitch:
      view->inside = cluster.scaleup_per_gpu;
      view->inside_is_pcie = false;
      return;
    case IntraLink::kCubeMesh:
    case IntraLink::kFullMesh:
      break;
  }
  const int rings = std::max(cluster.PackedRings(n), cluster.RelayedRings(n));
  if (rings == 0) return;
  view->inside = cluster.per_link * rings;
  view->inside_is_pcie = false;
}

// More than one leaf: the uplinks carry what crosses, and long rings lose to collisions.
void SetBetween(const ClusterSummary& cluster, const FabricProfile& fabric, int nodes,
                const UplinkStretch& stretch, Network* view) {
  view->node_nics = cluster.node_rate() * cluster.domain_nodes;
  const double own = std::max(1, cluster.nics_per_node / std::max(1, cluster.gpus_per_node));
  view->own_nics = cluster.nic_rate * own;
  view->sockets = fabric.socket_stream * (fabric.socket_channels * cluster.domain_nics());
  view->ring_collisions = 1.0 / (1.0 + fabric.large_ring_loss * std::max(0.0, 1.0 - 2.0 / nodes));
  if (stretch.ring > 0) {
    view->ring_uplinks = view->uplinks = 1 / std::max(1.0, stretch.ring);
    view->tree_uplinks = 1 / std::max(1.0, stretch.tree);
    return;
  }
  const int64_t on_leaf = cluster.leaf_nodes / cluster.domain_nodes;
  if (nodes <= on_leaf || cluster.oversubscription <= 1.0) return;
  // A ring in rank order leaves each leaf once: one node's flow shares the uplinks of the leaf.
  const double crossing = on_leaf > 0 ? 1.0 / static_cast<double>(on_leaf) : 1.0;
  view->ring_uplinks = 1.0 / std::max(1.0, cluster.oversubscription * crossing);
  view->uplinks = 1.0 / cluster.oversubscription;
}

std::map<std::pair<int, int>, std::shared_ptr<const Network>> SweptGroups(
    const ClusterSummary& cluster, const GpuProfile& gpu, const FabricProfile& fabric) {
  FabricProfile plain = fabric;
  plain.measured = nullptr;
  std::map<std::pair<int, int>, std::shared_ptr<const Network>> groups;
  for (const GroupCurve& curve : fabric.measured->groups) {
    const int per_node = curve.ranks / curve.nodes;
    if (curve.ranks % curve.nodes != 0 || per_node > cluster.domain_gpus()) continue;
    auto& group = groups[{curve.ranks, curve.nodes}];
    if (group) continue;
    group = std::make_shared<const Network>(
        ViewNetwork(cluster, gpu, plain, GroupShape{curve.ranks, per_node, 1}));
  }
  return groups;
}

template <class Profile>
void AddKnown(std::span<const ConstantRow<Profile>> table, const Profile& profile,
              std::vector<std::pair<std::string_view, double>>* known) {
  for (const ConstantRow<Profile>& row : table) {
    const auto* member = std::get_if<double Profile::*>(&row.member);
    if (member != nullptr && IsEfficiencyKey(row.key))
      known->emplace_back(row.key, profile.**member);
  }
}

}  // namespace

Efficiencies::Efficiencies(const GpuProfile& gpu, const FabricProfile& fabric) {
  constexpr std::size_t kUsual = 12;
  known_.reserve(kUsual);
  AddKnown(GpuConstants(), gpu, &known_);
  AddKnown(FabricConstants(), fabric, &known_);
  for (const auto& [key, value] : gpu.more_efficiencies) more_[key] = value;
  for (const auto& [key, value] : fabric.more_efficiencies) more_[key] = value;
}

double Efficiencies::operator()(std::string_view key) const {
  for (const auto& [name, value] : known_) {
    if (name == key) return value;
  }
  const auto found = more_.find(key);
  return found == more_.end() ? 1.0 : found->second;
}

BytesPerSecond Network::between_ranks() const { return std::min(between(), own_nics) * uplinks; }

double Network::BetweenShare(std::string_view key) const {
  if (sockets.value <= 0 || between().value <= 0) return efficiency(key) * use.nic;
  return std::min(efficiency(key), sockets.value / between().value);
}

double Network::InsideShare(std::string_view key) const {
  return efficiency(inside_is_pcie ? "pcie_efficiency" : key) * use.scaleup;
}

GroupShape ShapeOfAxis(int size, int inner, int domain_gpus) {
  GroupShape shape;
  shape.ranks = size;
  shape.ranks_per_node = std::clamp(domain_gpus / std::max(inner, 1), 1, size);
  shape.sharing = std::max(1, domain_gpus / shape.ranks_per_node);
  return shape;
}

bool EndsApart(const ClusterSummary& cluster, const GroupShape& shape) {
  if (shape.nodes() < 2 || shape.ranks_per_node < 2) return false;
  return cluster.domain_gpus() / shape.ranks_per_node >= cluster.switch_gpus;
}

BytesPerSecond ScaleUpRing(const ClusterSummary& cluster, const GpuProfile& gpu,
                           const FabricProfile& fabric, const BandwidthUse& use) {
  if (cluster.domain_gpus() < 2) return {};
  Network node;
  node.use = use;
  node.efficiency = Efficiencies(gpu, fabric);
  SetInside(cluster, cluster.domain_gpus(), &node);
  return RingAlgorithm().Rates(node).inside;
}

double SlowerPerByte(const ClusterSummary& cluster, const GpuProfile& gpu,
                     const FabricProfile& fabric, const GroupShape& shape, const BandwidthUse& use,
                     const UplinkStretch& stretch) {
  if (shape.nodes() < 2) return 0;
  Network group;
  group.shape = shape;
  group.use = use;
  group.efficiency = Efficiencies(gpu, fabric);
  SetBetween(cluster, fabric, shape.nodes(), stretch, &group);
  const bool mesh = cluster.intra == IntraLink::kCubeMesh || cluster.intra == IntraLink::kFullMesh;
  if (mesh && shape.ranks_per_node > 1) SetInside(cluster, shape.ranks_per_node, &group);
  const double inside = ScaleUpRing(cluster, gpu, fabric, use).value;
  const LineRates rates = RingAlgorithm().Rates(group);
  double pace = rates.between.value;
  if (rates.inside.value > 0) pace = std::min(pace, rates.inside.value);  // few links of a mesh
  if (inside <= pace || pace <= 0) return 0;
  return (1.0 - 1.0 / shape.ranks) * (1.0 / pace - 1.0 / inside);
}

Network ViewNetwork(const ClusterSummary& cluster, const GpuProfile& gpu,
                    const FabricProfile& fabric, const GroupShape& shape, const BandwidthUse& use,
                    const UplinkStretch& stretch) {
  Network view;
  view.shape = shape;
  const int nodes = shape.nodes();
  view.sweeps = fabric.measured;
  view.use = use;
  view.efficiency = Efficiencies(gpu, fabric);
  if (cluster.intra == IntraLink::kCubeMesh || cluster.intra == IntraLink::kFullMesh)
    view.rings = cluster.PackedRings(shape.ranks_per_node);
  SetInside(cluster, shape.ranks_per_node, &view);
  if (cluster.intra == IntraLink::kNvSwitch && gpu.nvls_efficiency > 0)
    view.into_switch = cluster.scaleup_per_gpu;
  view.local_copy = gpu.local_copy;
  view.intra_hop = gpu.scaleup_hop;
  view.switch_round_trip = gpu.nvls_round_trip;
  view.inter_hop = fabric.hop + cluster.fabric_latency;
  view.launch = nodes > 1 ? fabric.launch : gpu.collective_launch;
  view.bandwidth_launch = nodes > 1 ? fabric.bandwidth_launch : gpu.bandwidth_launch;
  view.low_latency_bandwidth = nodes > 1 ? fabric.low_latency_bandwidth : gpu.low_latency_bandwidth;
  const double hops[] = {gpu.low_latency_hop, fabric.low_latency_hop};  // in a node, between nodes
  view.low_latency_inside_hop = hops[0];
  view.low_latency_hop = nodes > 1 ? hops[1] : hops[0];
  view.low_latency_channel = fabric.low_latency_channel;
  if (nodes > 1) view.line128_bandwidth = fabric.ll128_bandwidth;
  if (nodes == 1 && !gpu.collectives.empty()) view.measured = &gpu;
  view.pipelining = nodes > 1 ? fabric.pipelining : gpu.pipelining;
  view.chain_pipelining = nodes > 1 ? fabric.chain_pipelining : gpu.chain_pipelining;
  view.nics = cluster.domain_nics();
  if (nccl::HasRails(fabric)) view.nics = std::min(view.nics, cluster.domain_gpus());
  view.switch_channels = nccl::SwitchChannels(nccl::Capability(gpu), nodes);
  if (view.sweeps != nullptr) view.swept = SweptGroups(cluster, gpu, fabric);
  if (nodes > 1) SetBetween(cluster, fabric, nodes, stretch, &view);
  // Software that runs one algorithm is not NCCL. Inside a node, and for one rank of each, the fastest agrees better with what
  // was measured.
  if (nodes > 1 && shape.ranks_per_node > 1 && use.algorithm.empty())
    view.nccl = nccl::SettingOf(cluster, gpu, fabric);
  view.nccl.release = use.nccl;
  return view;
}

}  // namespace orrery
