// SPDX-License-Identifier: Apache-2.0
// Stamps the node template, adds the fabric, and answers route look-ups.
#include "model/hardware/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "model/base/check.h"
#include "model/hardware/fabric.h"
#include "model/hardware/faults.h"
#include "model/hardware/node_template.h"

namespace orrery {
namespace {

constexpr int64_t kMostInGraph = 1 << 20;  // GPUs, and NICs

void CheckGraphSize(const TopologySpec& spec, int64_t nodes) {
  const auto nics = static_cast<int64_t>(spec.node.nics.size());
  const int64_t largest = nodes * std::max<int64_t>(spec.node.gpus, nics);
  if (largest <= kMostInGraph) return;
  throw InputError(fmt::format("{} GPUs or NICs are too many for a graph", largest),
                   fmt::format("simulate at most {}", kMostInGraph));
}

void StampNodes(const NodeTemplate& node, int64_t nodes, Cluster* cluster) {
  cluster->devices.reserve(node.devices().size() * static_cast<std::size_t>(nodes));
  cluster->links.reserve(2 * node.links().size() * static_cast<std::size_t>(nodes));
  for (int64_t n = 0; n < nodes; ++n) {
    const auto base = static_cast<VertexId>(cluster->devices.size());
    for (Device device : node.devices()) {
      device.node = static_cast<int32_t>(n);
      cluster->devices.push_back(device);
    }
    for (Link link : node.links()) {
      link.from += base;
      link.to += base;
      cluster->links.push_back(link);
    }
  }
}

// One switch per domain in use; every GPU of its nodes on it, in order.
void AddDomainSwitches(Cluster* cluster) {
  const NodeSpec& node = cluster->spec.node;
  FabricBuilder builder(&cluster->devices, &cluster->links);
  cluster->domain_links = builder.next_link();
  const VertexId first = builder.AddSwitches(DeviceKind::kNvSwitch, cluster->summary.domains());
  const auto devices = static_cast<int64_t>(cluster->node_template->devices().size());
  for (int64_t n = 0; n < cluster->nodes; ++n) {
    const auto hub = static_cast<VertexId>(first + n / cluster->summary.domain_nodes);
    for (int64_t gpu = 0; gpu < node.gpus; ++gpu)
      builder.Connect(static_cast<VertexId>(n * devices + gpu), hub, ScaleUpPerGpu(node),
                      LinkKind::kScaleUp);
  }
}

void AppendShifted(std::span<const LinkId> links, int64_t shift, std::vector<LinkId>* route) {
  for (const LinkId link : links) route->push_back(static_cast<LinkId>(link + shift));
}

const char* KindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kNvSwitch:
      return "nvswitch";
    case DeviceKind::kPcieSwitch:
      return "pcie-switch";
    case DeviceKind::kHost:
      return "host";
    case DeviceKind::kNic:
      return "nic";
    case DeviceKind::kSwitch:
      return "switch";
    case DeviceKind::kLeaf:
      return "leaf";
    case DeviceKind::kSpine:
      return "spine";
    case DeviceKind::kCore:
      return "core";
    case DeviceKind::kRouter:
      return "router";
  }
  return "?";
}

// The NIC through which a rank talks to the rest.
int NicOf(const Cluster& cluster, int64_t rank, int channel, int64_t from, int64_t to) {
  const int64_t node = cluster.NodeOf(rank);
  const auto gpu = static_cast<int>(rank % cluster.gpus_per_node);
  const std::vector<int>* nics = &cluster.node_template->NearestNics(gpu);
  if (cluster.faults) {
    const auto broken = cluster.faults->nearest.find(node);
    if (broken != cluster.faults->nearest.end())
      nics = &broken->second[static_cast<std::size_t>(gpu)];
    if (nics->empty()) throw NoRoute(from, to, node);
  }
  return (*nics)[static_cast<std::size_t>(channel) % nics->size()];
}

}  // namespace

Cluster BuildCluster(const TopologySpec& spec, int64_t nodes, int gpus_per_node) {
  Cluster cluster;
  cluster.summary = Summarise(spec, nodes, gpus_per_node);
  CheckGraphSize(spec, nodes);
  cluster.spec = spec;
  cluster.nodes = nodes;
  cluster.gpus_per_node = cluster.summary.gpus_per_node;
  const auto node = std::make_shared<NodeTemplate>(spec.node);
  cluster.node_template = node;
  StampNodes(*node, nodes, &cluster);
  std::vector<VertexId> nics;
  for (int64_t n = 0; n < nodes; ++n) {
    const auto base = n * static_cast<int64_t>(node->devices().size());
    for (std::size_t k = 0; k < spec.node.nics.size(); ++k) {
      nics.push_back(static_cast<VertexId>(base + node->NicVertex(static_cast<int>(k))));
    }
  }
  if (spec.node.domain_nodes > 1) AddDomainSwitches(&cluster);
  cluster.fabric = AddFabric(spec, nodes, nics, &cluster.devices, &cluster.links);
  return cluster;
}

VertexId Cluster::GpuOf(int64_t rank) const {
  ORRERY_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  return static_cast<VertexId>(
      NodeOf(rank) * static_cast<int64_t>(node_template->devices().size()) + rank % gpus_per_node);
}

std::vector<LinkId> Cluster::Route(int64_t from, int64_t to, int channel) const {
  std::vector<LinkId> route;
  route.reserve(16);
  AppendRoute(from, to, channel, &route);
  return route;
}

void Cluster::AppendRoute(int64_t from, int64_t to, int channel, std::vector<LinkId>* route) const {
  ORRERY_CHECK(from >= 0 && from < ranks() && to >= 0 && to < ranks() && channel >= 0,
               "route {} to {} of {} ranks, channel {}", from, to, ranks(), channel);
  const int64_t node_a = NodeOf(from), node_b = NodeOf(to);
  const auto links_per_node = static_cast<int64_t>(node_template->links().size());
  const auto gpu_a = static_cast<int>(from % gpus_per_node),
             gpu_b = static_cast<int>(to % gpus_per_node);
  if (spec.node.domain_nodes > 1 && DomainOf(from) == DomainOf(to)) {
    if (from == to) return;
    const auto up = [&](int64_t node, int gpu) {
      return static_cast<LinkId>(domain_links + 2 * (node * spec.node.gpus + gpu));
    };
    route->push_back(up(node_a, gpu_a));
    route->push_back(static_cast<LinkId>(up(node_b, gpu_b) + 1));
    return;
  }
  if (node_a == node_b) {
    AppendShifted(node_template->GpuToGpu(gpu_a, gpu_b), node_a * links_per_node, route);
    return;
  }
  const auto nics = static_cast<int64_t>(spec.node.nics.size());
  const int nic_a = NicOf(*this, from, channel, from, to),
            nic_b = NicOf(*this, to, channel, from, to);
  AppendShifted(node_template->GpuToNic(gpu_a, nic_a), node_a * links_per_node, route);
  fabric->Append(node_a * nics + nic_a, node_b * nics + nic_b, channel, route);
  AppendShifted(node_template->NicToGpu(nic_b, gpu_b), node_b * links_per_node, route);
}

BytesPerSecond Cluster::Bottleneck(std::span<const LinkId> route) const {
  BytesPerSecond smallest(std::numeric_limits<double>::infinity());
  for (const LinkId link : route)
    smallest = std::min(smallest, links[static_cast<std::size_t>(link)].capacity);
  return smallest;
}

std::string Cluster::DeviceName(VertexId vertex) const {
  const Device& device = devices[static_cast<std::size_t>(vertex)];
  const auto index = static_cast<std::size_t>(device.index);
  std::string name = fmt::format("{}{}", KindName(device.kind), device.index);
  if (device.kind == DeviceKind::kNvSwitch && device.node >= 0) name = "nvswitch";
  if (device.kind == DeviceKind::kSwitch)
    name = spec.fabric.kind == FabricKind::kNamed ? spec.fabric.switches[index].name : "switch";
  if (device.kind == DeviceKind::kPcieSwitch) name = spec.node.switches[index];
  if (device.kind == DeviceKind::kHost) name = spec.node.hosts[index];
  return device.node < 0 ? name : fmt::format("n{}.{}", device.node, name);
}

std::string Cluster::LinkName(LinkId link) const {
  const Link& ends = links[static_cast<std::size_t>(link)];
  return fmt::format("{} -> {}", DeviceName(ends.from), DeviceName(ends.to));
}

}  // namespace orrery
