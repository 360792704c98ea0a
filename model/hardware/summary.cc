// SPDX-License-Identifier: Apache-2.0
// Cluster figures in closed form: counts, rates, bisection.
#include "model/hardware/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/hardware/cluster.h"
#include "model/hardware/flow.h"
#include "model/hardware/node_template.h"

namespace orrery {
namespace {

// The nodes of a torus fill whole rings of the largest dimension first only by chance: the cut
// across the largest dimension is counted for the full torus.
BytesPerSecond TorusCut(const FabricSpec& fabric) {
  int64_t routers = 1, largest = 1;
  for (const int64_t extent : fabric.dims) routers *= extent, largest = std::max(largest, extent);
  const double rings = static_cast<double>(routers) / static_cast<double>(largest);
  return fabric.link_rate * (largest == 1 ? 0.0 : rings * (largest == 2 ? 1 : 2));
}

double Oversubscription(const FabricSpec& fabric) {
  switch (fabric.kind) {
    case FabricKind::kNone:
    case FabricKind::kSingleSwitch:
    case FabricKind::kTorus:
      return 1;
    case FabricKind::kFatTree:
    case FabricKind::kRailOptimised:
    case FabricKind::kNamed:
      return fabric.oversubscription;
    case FabricKind::kDragonfly:
      return std::max(1.0, static_cast<double>(fabric.ports_per_router) /
                               static_cast<double>(fabric.global_links));
  }
  return 1;
}

// GPUs send through their nearest NICs only: those of idle GPUs are idle, too.
int NicsInUse(const NodeSpec& node, int gpus) {
  if (gpus == node.gpus) return static_cast<int>(node.nics.size());
  std::set<int> nics;
  const std::vector<std::vector<int>> nearest =
      NearestNics(node, std::vector<char>(node.nics.size(), 1));
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const std::vector<int>& own = nearest[static_cast<std::size_t>(gpu)];
    nics.insert(own.begin(), own.end());
  }
  return static_cast<int>(nics.size());
}

// Every switch with hosts holds one NIC of each.
bool RailsByName(const TopologySpec& spec) {
  return spec.node.nics.size() > 1 &&
         std::ranges::all_of(spec.fabric.switches, [](const NamedSwitch& one) {
           return one.hosts.empty() || one.nics.size() == 1;
         });
}

int GpusOnASwitch(const NodeSpec& node, int gpus) {
  int most = 1;
  for (const PcieGroup& group : node.pcie) {
    const auto used = std::ranges::count_if(group.gpus, [&](int gpu) { return gpu < gpus; });
    most = std::max(most, static_cast<int>(used));
  }
  return most;
}

int RingsAt(const std::vector<int>& rings, int n) {
  return n < 0 || static_cast<std::size_t>(n) >= rings.size() ? 0
                                                              : rings[static_cast<std::size_t>(n)];
}

// The nearest counts that fill domains evenly.
std::string EvenCounts(const TopologySpec& spec, int64_t nodes) {
  int64_t below = nodes, above = nodes;
  while (below > 1 && NodesPerDomain(spec, below) == 0) --below;
  while (above < spec.max_nodes && NodesPerDomain(spec, above) == 0) ++above;
  return NodesPerDomain(spec, above) == 0 ? fmt::format("ask for {}", below)
                                          : fmt::format("ask for {} or {}", below, above);
}

}  // namespace

int ClusterSummary::PackedRings(int n) const { return RingsAt(packed_rings, n); }

int ClusterSummary::RelayedRings(int n) const { return RingsAt(relayed_rings, n); }

void CheckCounts(const TopologySpec& spec, int64_t nodes, int gpus_per_node) {
  if (nodes < 1 || nodes > spec.max_nodes) {
    throw InputError(
        spec.max_nodes == 1
            ? fmt::format("{} nodes of topology '{}', which has one", nodes, spec.name)
            : fmt::format("{} nodes of topology '{}', which has 1 to {}", nodes, spec.name,
                          spec.max_nodes),
        nodes < 1 ? "ask for at least one node"
                  : "max_nodes in its file sets the limit; `plan discover --nodes N` writes a file "
                    "for more machines like one");
  }
  if (gpus_per_node < 0 || gpus_per_node > spec.node.gpus) {
    throw InputError(fmt::format("{} GPUs per node of topology '{}', which has {}", gpus_per_node,
                                 spec.name, spec.node.gpus),
                     fmt::format("ask for 1 to {}", spec.node.gpus));
  }
  if (NodesPerDomain(spec, nodes) == 0) {
    throw InputError(fmt::format("{} nodes cannot be laid evenly over scale-up domains of {}",
                                 nodes, spec.node.domain_nodes),
                     EvenCounts(spec, nodes));
  }
}

ClusterSummary Summarise(const TopologySpec& spec, int64_t nodes, int gpus_per_node) {
  CheckCounts(spec, nodes, gpus_per_node);
  ClusterSummary s;
  s.name = spec.name;
  s.gpu = spec.gpu;
  s.fabric_profile = spec.fabric_profile;
  s.assumed = spec.evidence == 'C';
  s.collectives = spec.collectives;
  s.nodes = nodes;
  s.gpus_per_node = gpus_per_node == 0 ? spec.node.gpus : gpus_per_node;
  s.domain_nodes = static_cast<int>(NodesPerDomain(spec, nodes));
  s.intra = spec.node.intra;
  s.scaleup_per_gpu = ScaleUpPerGpu(spec.node);
  s.per_link = spec.node.per_link;
  s.pcie_rate = spec.node.pcie_rate;
  s.nics_per_node = NicsInUse(spec.node, s.gpus_per_node);
  s.switch_gpus = GpusOnASwitch(spec.node, s.gpus_per_node);
  s.nic_rate = std::min(SlowestNic(spec.node), spec.node.pcie_rate);
  s.fabric_latency = spec.fabric.latency;
  s.oversubscription = Oversubscription(spec.fabric);
  s.leaf_nodes = LeafNodes(spec);
  s.rail_optimised = spec.fabric.kind == FabricKind::kRailOptimised ||
                     (spec.fabric.kind == FabricKind::kNamed && RailsByName(spec));
  s.node_price = spec.node_price;
  s.price_source = spec.price_source;
  s.packed_rings = spec.node.packed_rings;
  s.relayed_rings = spec.node.relayed_rings;
  s.cores = spec.cores;
  s.node = std::make_shared<const NodeSpec>(spec.node);
  s.network_reduces = spec.fabric.reduces;
  return s;
}

BytesPerSecond Bisection(const TopologySpec& spec, int64_t nodes) {
  const ClusterSummary s = Summarise(spec, nodes);
  if (s.domain_nodes > 1 && s.domains() == 1)
    return s.scaleup_per_gpu * static_cast<double>(nodes / 2 * s.gpus_per_node);
  if (spec.fabric.kind == FabricKind::kNamed) return WorstHalves(BuildCluster(spec, nodes)).rate;
  const BytesPerSecond injected = s.node_rate() * static_cast<double>(nodes / 2);
  if (spec.fabric.kind == FabricKind::kTorus) return std::min(injected, TorusCut(spec.fabric));
  return nodes <= s.leaf_nodes ? injected : injected / s.oversubscription;
}

}  // namespace orrery
