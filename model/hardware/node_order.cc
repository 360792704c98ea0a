// SPDX-License-Identifier: Apache-2.0
// Finds the uplinks that nodes share, by the structure of each fabric.
#include "model/hardware/node_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include "model/base/diagnostics.h"
#include "model/hardware/host_order.h"

namespace orrery {
namespace {

// Parts of equal size, one after the other, with one rate out of each.
void AddParts(int64_t size, BytesPerSecond rate, int64_t nodes, std::vector<Uplinks>* all) {
  for (int64_t first = 0; first < nodes; first += size) {
    Uplinks part{std::vector<double>(static_cast<std::size_t>(nodes), 0.0), rate};
    std::fill(part.share.begin() + first, part.share.begin() + std::min(nodes, first + size), 1.0);
    all->push_back(std::move(part));
  }
}

// The rate out of each leaf of a tree, full or not; nullopt: another fabric.
std::optional<BytesPerSecond> WholeLeaf(const TopologySpec& spec) {
  const FabricSpec& fabric = spec.fabric;
  if (fabric.kind != FabricKind::kFatTree && fabric.kind != FabricKind::kRailOptimised)
    return std::nullopt;
  const double nics = static_cast<double>(spec.node.nics.size());
  const double leaf = static_cast<double>(std::max<int64_t>(1, LeafNodes(spec)));
  return spec.node.nic_rate * (leaf * nics / fabric.oversubscription);
}

// Nodes with the same coordinate along a dimension, which are between two planes of links, or one where it has two.
void AddSlabs(const FabricSpec& fabric, int64_t nodes, std::vector<Uplinks>* all) {
  int64_t routers = 1;
  for (const int64_t extent : fabric.dims) routers *= extent;
  int64_t inner = routers;
  for (const int64_t extent : fabric.dims) {
    inner /= extent;
    if (extent < 2) continue;
    const auto links = static_cast<double>(routers / extent * (extent > 2 ? 2 : 1));
    for (int64_t at = 0; at < extent; ++at) {
      Uplinks slab{std::vector<double>(static_cast<std::size_t>(nodes), 0.0),
                   fabric.link_rate * links};
      for (int64_t node = 0; node < nodes; ++node)
        slab.share[static_cast<std::size_t>(node)] = node / inner % extent == at ? 1.0 : 0.0;
      all->push_back(std::move(slab));
    }
  }
}

// Switches with the same hosts count as one; of a host's NICs those on them take their share of its traffic.
void AddNamed(const TopologySpec& spec, int64_t nodes, std::vector<Uplinks>* all) {
  const std::vector<NamedSwitch>& switches = spec.fabric.switches;
  std::map<std::vector<int64_t>, Uplinks> parts;
  for (std::size_t s = 0; s < switches.size(); ++s) {
    if (switches[s].hosts.empty()) continue;
    Uplinks& part = parts[switches[s].hosts];
    part.share.resize(static_cast<std::size_t>(nodes), 0.0);
    const double nics =
        static_cast<double>(switches[s].nics.size()) / static_cast<double>(spec.node.nics.size());
    for (const int64_t host : switches[s].hosts) {
      if (host < nodes) part.share[static_cast<std::size_t>(host)] += nics;
    }
    for (const SwitchLink& link : spec.fabric.links) {
      if (link.a == static_cast<int>(s) || link.b == static_cast<int>(s))
        part.rate = part.rate + link.rate * static_cast<double>(link.count);
    }
  }
  for (auto& [hosts, part] : parts) all->push_back(std::move(part));
}

}  // namespace

std::vector<Uplinks> UplinksOf(const TopologySpec& spec, int64_t nodes) {
  const FabricSpec& fabric = spec.fabric;
  const int64_t leaf = std::max<int64_t>(1, LeafNodes(spec));
  std::vector<Uplinks> all;
  switch (fabric.kind) {
    case FabricKind::kNone:
    case FabricKind::kSingleSwitch:
      break;
    case FabricKind::kFatTree:
    case FabricKind::kRailOptimised:
      AddParts(leaf, *WholeLeaf(spec), nodes, &all);
      break;
    case FabricKind::kDragonfly:
      AddParts(
          leaf,
          fabric.link_rate * static_cast<double>(fabric.routers_per_group * fabric.global_links),
          nodes, &all);
      break;
    case FabricKind::kTorus:
      AddSlabs(fabric, nodes, &all);
      break;
    case FabricKind::kNamed:
      AddNamed(spec, nodes, &all);
      break;
  }
  std::erase_if(all, [](const Uplinks& part) {
    return part.rate.value <= 0 ||
           std::ranges::all_of(part.share, [](double s) { return s > 0; }) ||
           std::ranges::none_of(part.share, [](double s) { return s > 0; });
  });
  return all;
}

std::vector<Uplinks> NarrowUplinks(const TopologySpec& spec, const ClusterSummary& cluster) {
  constexpr double kRounding = 1e-9;
  const double nominal = std::min(SlowestNic(spec.node), spec.node.pcie_rate).value;
  if (const auto leaf =
          WholeLeaf(spec)) {  // no list of 16,384 nodes per leaf to say that none is narrow
    const double rate = leaf->value * (cluster.nic_rate.value / nominal);
    const double nodes = static_cast<double>(std::max<int64_t>(1, LeafNodes(spec)));
    if (nodes * cluster.node_rate().value <= rate * (1 + kRounding)) return {};
  }
  std::vector<Uplinks> all = UplinksOf(spec, cluster.nodes);
  for (Uplinks& part : all) part.rate = part.rate * (cluster.nic_rate.value / nominal);
  std::erase_if(all, [&](const Uplinks& part) {
    const double nodes = std::accumulate(part.share.begin(), part.share.end(), 0.0);
    return nodes * cluster.node_rate().value <= part.rate.value * (1 + kRounding);
  });
  return all;
}

void CheckNodeOrder(std::span<const int32_t> order, int64_t nodes, int64_t domain_nodes,
                    const FabricSpec& fabric) {
  if (order.empty()) return;
  if (domain_nodes > 1) {
    throw InputError("nodes that share a scale-up domain have no order of their own",
                     "--placement with an order of axes alone, such as tp-cp-pp-dp");
  }
  const std::string hint =
      nodes == 1 ? "an order of axes alone, such as tp-cp-pp-dp"
                 : fmt::format("each of nodes 0 to {} once, such as {}", nodes - 1,
                               nodes > 3 ? fmt::format("2..{},0,1", nodes - 1) : "1,0");
  std::vector<char> named(static_cast<std::size_t>(nodes), 0);
  for (const int32_t node : order) {
    if (node < 0 || node >= nodes)
      throw InputError(
          fmt::format("the placement names node {}{}, the cluster has {}{}", node,
                      HostsText(fabric, node, node),
                      nodes == 1 ? "node 0 alone" : fmt::format("nodes 0 to {}", nodes - 1),
                      HostsText(fabric, 0, nodes - 1)),
          hint);
    if (named[static_cast<std::size_t>(node)]++ != 0)
      throw InputError(
          fmt::format("the placement names node {}{} twice", node, HostsText(fabric, node, node)),
          hint);
  }
  if (const auto missing = std::ranges::find(named, 0); missing != named.end())
    throw InputError(
        fmt::format("the placement names {} of {} nodes: node {}{} is missing", order.size(), nodes,
                    missing - named.begin(),
                    HostsText(fabric, missing - named.begin(), missing - named.begin())),
        hint);
}

}  // namespace orrery
