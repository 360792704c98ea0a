// SPDX-License-Identifier: Apache-2.0
// Writes a topology as text for people.
#include "model/hardware/print.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/number_runs.h"
#include "model/base/text.h"
#include "model/hardware/cluster.h"
#include "model/hardware/host_order.h"
#include "model/hardware/node_template.h"

namespace orrery {
namespace {

constexpr std::size_t kMostNicColumns = 8;

// "25.0 GB/s = 200 Gbps"
std::string BothUnits(BytesPerSecond rate) {
  return fmt::format("{} = {:.4g} Gbps", Format(rate), rate.value * 8 / 1e9);
}

std::string Line(const char* label, const std::string& text) {
  return fmt::format("  {:<10}{}\n", label, text);
}

std::string ScaleUpText(const NodeSpec& node) {
  const std::string rate = BothUnits(ScaleUpPerGpu(node)) + " per GPU";
  switch (node.intra) {
    case IntraLink::kNone:
      return "one GPU per node";
    case IntraLink::kPcie:
      return node.link_name + " through the host, " + rate;
    case IntraLink::kNvSwitch:
      return fmt::format("{} x{} into NVSwitch, {}", node.link_name, node.links_per_gpu, rate) +
             (node.domain_nodes == 1
                  ? ""
                  : fmt::format("; {} nodes = {} GPUs share one", node.domain_nodes,
                                node.domain_nodes * node.gpus));
    case IntraLink::kCubeMesh:
      return fmt::format("{} mesh, {} links of {}, at most {}", node.link_name, node.links_per_gpu,
                         BothUnits(node.per_link), rate);
    case IntraLink::kFullMesh:
      return fmt::format("{} between any two GPUs, {} links of {}, {}", node.link_name,
                         node.links_per_gpu, BothUnits(node.per_link), rate);
  }
  return "";
}

std::string RingsText(const NodeSpec& node) {
  std::string text;
  for (std::size_t n = 2; n < node.packed_rings.size(); ++n) {
    text += fmt::format("{}{} on {} GPUs", n == 2 ? "" : ", ", node.packed_rings[n], n);
  }
  return text;
}

std::string FabricText(const TopologySpec& spec) {
  const FabricSpec& f = spec.fabric;
  switch (f.kind) {
    case FabricKind::kNone:
      return "none";
    case FabricKind::kSingleSwitch:
      return "single switch (full bisection)";
    case FabricKind::kFatTree:
      return fmt::format(
          "fat tree of {} levels, {} NIC ports and {} nodes per leaf, oversubscription {:g}",
          f.levels, f.leaf_ports, LeafNodes(spec), f.oversubscription);
    case FabricKind::kRailOptimised:
      return fmt::format(
          "rail-optimised, {} levels, one leaf per NIC of {} nodes, oversubscription {:g}",
          f.levels, LeafNodes(spec), f.oversubscription);
    case FabricKind::kDragonfly:
      return fmt::format(
          "dragonfly, groups of {} routers with {} NICs and {} global links each, {} per link, "
          "shortest routes alone",
          f.routers_per_group, f.ports_per_router, f.global_links, BothUnits(f.link_rate));
    case FabricKind::kTorus:
      return fmt::format("torus {}, {} per link", fmt::join(f.dims, " x "), BothUnits(f.link_rate));
    case FabricKind::kNamed:
      return fmt::format("{} hosts on {} switches by name, {} links, oversubscription {:.3g}",
                         f.hosts.size(), f.switches.size(), f.links.size(), f.oversubscription);
  }
  return "";
}

// "leaf0: node0 .. node2 (3 hosts, nodes 0..2), nic0"
std::string LeafText(const TopologySpec& spec, const NamedSwitch& one) {
  constexpr int kMostRuns = 8;
  const auto name = [&](int64_t host) { return spec.fabric.hosts[static_cast<std::size_t>(host)]; };
  std::string text = fmt::format("{}: {}", one.name, name(one.hosts.front()));
  if (one.hosts.size() > 1)
    text += fmt::format(" .. {} ({} hosts, nodes {})", name(one.hosts.back()), one.hosts.size(),
                        RunsText(one.hosts, kMostRuns));
  else
    text += fmt::format(" (node {})", one.hosts.front());
  if (one.nics.size() < spec.node.nics.size())
    text += fmt::format(", nic{}", fmt::join(one.nics, " nic"));
  return text;
}

std::string PriceText(const TopologySpec& spec, int64_t nodes) {
  if (!spec.node_price) return "not known";
  return fmt::format("{} per node, {} for {}; {}", Format(*spec.node_price),
                     Format(*spec.node_price * static_cast<double>(nodes)), nodes,
                     spec.price_source);
}

std::string Header(const TopologySpec& spec, int64_t nodes) {
  const NodeSpec& node = spec.node;
  const std::string gpu = spec.gpu == kUnknownGpu ? "GPUs of unknown kind (give --gpu)" : spec.gpu;
  std::string text = fmt::format("{}: {} node{} x {} {}\n", spec.name, nodes, nodes == 1 ? "" : "s",
                                 node.gpus, gpu);
  text += Line("what", spec.description);
  text += Line("source", fmt::format("{} (evidence {})", spec.source, spec.evidence));
  text +=
      Line("GPUs", fmt::format("{} of at most {}", nodes * node.gpus, spec.max_nodes * node.gpus));
  text += Line("in a node", ScaleUpText(node));
  if (!node.packed_rings.empty()) text += Line("rings", RingsText(node));
  text += Line(
      "PCIe",
      fmt::format("{}; {} switches, {} host{}", BothUnits(node.pcie_rate), node.switches.size(),
                  node.hosts.size(), node.hosts.size() == 1 ? "" : "s") +
          (node.hosts.size() > 1 ? ", " + BothUnits(node.between_hosts) + " between them" : ""));
  if (!node.nics.empty()) {
    const ClusterSummary summary = Summarise(spec, nodes);
    text += Line("NICs", fmt::format("{} x {}; {} per node", node.nics.size(),
                                     BothUnits(node.nic_rate), BothUnits(summary.node_rate())));
    for (const auto& [nic, rate] : node.degraded_nics)
      text +=
          Line("degraded", fmt::format("{} at {}: the slowest NIC sets the pace of all",
                                       node.nics[static_cast<std::size_t>(nic)], BothUnits(rate)));
  }
  text += Line("fabric", fmt::format("{}; profile {}", FabricText(spec), spec.fabric_profile));
  if (!spec.collectives.empty()) text += Line("measured", "collectives " + spec.collectives);
  if (spec.fabric.kind == FabricKind::kNamed) {
    text += Line("hosts", NumberingText(spec.fabric));
    for (const NamedSwitch& one : spec.fabric.switches) {
      if (!one.hosts.empty()) text += Line("", LeafText(spec, one));
    }
  }
  if (nodes > 1) {
    text += Line("bisection",
                 fmt::format("{} between {} and {} nodes", BothUnits(Bisection(spec, nodes)),
                             nodes / 2, nodes - nodes / 2));
  }
  text += Line("price", PriceText(spec, nodes));
  return text + "  Rates are per direction.\n";
}

std::string Drawing(const NodeSpec& node) {
  std::string text = "\none node\n";
  if (node.intra == IntraLink::kNvSwitch) {
    text += fmt::format("  nvswitch{} == gpu0 .. gpu{}\n",
                        node.domain_nodes == 1 ? "" : " of the domain", node.gpus - 1);
  }
  for (std::size_t h = 0; h < node.hosts.size(); ++h) {
    text += fmt::format("  {}\n", node.hosts[h]);
    for (const PcieGroup& group : node.pcie) {
      if (group.host != static_cast<int>(h)) continue;
      std::string devices;
      for (const int gpu : group.gpus) devices += fmt::format(" gpu{}", gpu);
      for (const int nic : group.nics) devices += fmt::format(" nic{}", nic);
      const std::string via =
          group.pcie_switch < 0
              ? ""
              : node.switches[static_cast<std::size_t>(group.pcie_switch)] + " --";
      text += fmt::format("   +-- {}{}\n", via,
                          via.empty() ? devices.substr(devices.empty() ? 0 : 1) : devices);
    }
  }
  return text;
}

const char* DistanceName(int distance) {
  return distance == 0 ? "PIX" : distance == 1 ? "NODE" : "SYS";
}

std::string GpuCell(const NodeSpec& node, int a, int b) {
  if (a == b) return "X";
  if (node.intra == IntraLink::kNvSwitch) return "NVS";
  for (const MeshLink& link : node.mesh) {
    if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) {
      return fmt::format("{}{}", node.link_name.starts_with("NVLink") ? "NV" : "LK", link.count);
    }
  }
  return DistanceName(PcieDistance(GroupOfGpu(node, a), GroupOfGpu(node, b)));
}

// Like `nvidia-smi topo -m`; nodes with many NICs get one column that lists the nearest.
std::string Matrix(const NodeSpec& node, const NodeTemplate& built) {
  const bool columns = node.nics.size() <= kMostNicColumns;
  std::string text = fmt::format("\n  {:<6}", "");
  for (int b = 0; b < node.gpus; ++b) text += fmt::format("{:<6}", fmt::format("gpu{}", b));
  for (std::size_t k = 0; columns && k < node.nics.size(); ++k)
    text += fmt::format("{:<6}", node.nics[k]);
  if (!columns) text += "nearest NICs";
  for (int a = 0; a < node.gpus; ++a) {
    while (text.back() == ' ') text.pop_back();
    text += fmt::format("\n  {:<6}", fmt::format("gpu{}", a));
    for (int b = 0; b < node.gpus; ++b) text += fmt::format("{:<6}", GpuCell(node, a, b));
    for (std::size_t k = 0; columns && k < node.nics.size(); ++k) {
      text += fmt::format(
          "{:<6}",
          DistanceName(PcieDistance(GroupOfGpu(node, a), GroupOfNic(node, static_cast<int>(k)))));
    }
    if (!columns) text += fmt::format("nic{}", fmt::join(built.NearestNics(a), " nic"));
  }
  while (text.back() == ' ') text.pop_back();
  return text +
         "\n  NVn/LKn: n direct links; NVS: NVSwitch; PIX: same PCIe switch; NODE: same host; SYS: "
         "across hosts\n";
}

std::string RouteLine(const Cluster& cluster, int64_t from, int64_t to) {
  const std::vector<LinkId> route = cluster.Route(from, to);
  std::string path = cluster.DeviceName(cluster.GpuOf(from));
  for (const LinkId link : route) {
    path += " > " + cluster.DeviceName(cluster.links[static_cast<std::size_t>(link)].to);
  }
  const FabricSpec& fabric = cluster.spec.fabric;
  const int64_t a = cluster.NodeOf(from), b = cluster.NodeOf(to);
  if (a != b && !fabric.hosts.empty())
    path += fmt::format("  ({} to {})", fabric.hosts[static_cast<std::size_t>(a)],
                        fabric.hosts[static_cast<std::size_t>(b)]);
  return fmt::format("  {:<26}{}\n", BothUnits(cluster.Bottleneck(route)), path);
}

std::string Routes(const Cluster& cluster) {
  const int64_t n = cluster.gpus_per_node;
  std::string text = "\nroutes and their narrowest link\n";
  if (cluster.ranks() == 1) return text + "  a single GPU: none\n";
  if (n > 1) text += RouteLine(cluster, 0, 1);
  if (n > 2) text += RouteLine(cluster, 0, n - 1);
  if (cluster.nodes > 1) {
    text += RouteLine(cluster, 0, n);
    if (n > 1) text += RouteLine(cluster, 0, n + 1);
  }
  if (cluster.nodes > 2) text += RouteLine(cluster, 0, (cluster.nodes - 1) * n);
  return text;
}

}  // namespace

std::string PrintTopology(const TopologySpec& spec, int64_t nodes) {
  const Cluster cluster = BuildCluster(spec, nodes);
  return Header(spec, nodes) + Drawing(spec.node) + Matrix(spec.node, *cluster.node_template) +
         Routes(cluster);
}

}  // namespace orrery
