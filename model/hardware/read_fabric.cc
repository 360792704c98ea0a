// SPDX-License-Identifier: Apache-2.0
// Reads the fabric of a topology file and checks that the largest cluster fits into it.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "model/hardware/dragonfly.h"
#include "model/hardware/read_parts.h"

namespace orrery {
namespace {

constexpr int64_t kMostPorts = 4096;  // of one switch
constexpr int64_t kMostGroupRouters = 128;
constexpr int64_t kMostRouters = 65'536;

constexpr std::array<std::pair<const char*, FabricKind>, 6> kFabricKinds = {
    {{"single-switch", FabricKind::kSingleSwitch},
     {"fat-tree", FabricKind::kFatTree},
     {"rail-optimised", FabricKind::kRailOptimised},
     {"dragonfly", FabricKind::kDragonfly},
     {"torus", FabricKind::kTorus},
     {"named", FabricKind::kNamed}}};

void ReadTree(const Node& map, const TopologySpec& spec, FabricSpec* fabric) {
  fabric->levels = static_cast<int>(map.Integer("levels", 2, 3));
  fabric->leaf_ports = map.Integer("leaf_ports", 1, kMostPorts);
  fabric->oversubscription = map.Number("oversubscription", 1, 64, 1);
  if (fabric->levels == 3) fabric->pod_leaves = map.Integer("pod_leaves", 1, kMostPorts);
  const auto nics = static_cast<int64_t>(spec.node.nics.size());
  if (fabric->kind == FabricKind::kFatTree && map.diagnostics()->ok() &&
      fabric->leaf_ports < nics) {
    map.ErrorAt("leaf_ports",
                fmt::format("a node has {} NICs, one leaf {} ports", nics, fabric->leaf_ports),
                "raise leaf_ports, or use 'kind: rail-optimised', where each NIC has its own leaf");
  }
}

BytesPerSecond ReadLinkRate(const Node& map) {
  const BytesPerSecond rate = map.ReadBytesPerSecond("link_rate");
  if (map.diagnostics()->ok() && rate.value <= 0) map.ErrorAt("link_rate", "a rate of 0");
  return rate;
}

void ReadDragonfly(const Node& map, const TopologySpec& spec, FabricSpec* fabric) {
  fabric->routers_per_group = map.Integer("routers_per_group", 1, kMostGroupRouters);
  fabric->ports_per_router = map.Integer("ports_per_router", 1, kMostPorts);
  fabric->global_links = map.Integer("global_links", 1, kMostPorts);
  fabric->link_rate = ReadLinkRate(map);
  if (!map.diagnostics()->ok()) return;
  const int64_t most = DragonflyMaxNodes(*fabric, static_cast<int64_t>(spec.node.nics.size()));
  if (spec.max_nodes > most) {
    map.Error(fmt::format("max_nodes is {}, but this dragonfly connects {}", spec.max_nodes, most),
              "raise routers_per_group, ports_per_router or global_links, or lower max_nodes");
  }
}

void ReadTorus(const Node& map, const TopologySpec& spec, FabricSpec* fabric) {
  int64_t routers = 1;
  for (const Node& extent : map.Items("dims")) {
    fabric->dims.push_back(extent.AsInteger(1, kMostRouters));
    if (routers <= kMostRouters) routers *= std::max<int64_t>(1, fabric->dims.back());
  }
  fabric->link_rate = ReadLinkRate(map);
  if (!map.diagnostics()->ok()) return;
  if (fabric->dims.empty() || fabric->dims.size() > 6 || routers > kMostRouters) {
    map.ErrorAt("dims",
                fmt::format("a torus has 1 to 6 dimensions and at most {} routers", kMostRouters),
                "such as [8, 8, 4]");
  } else if (spec.max_nodes > routers) {
    map.ErrorAt(
        "dims",
        fmt::format("max_nodes is {}, but this torus has {} routers", spec.max_nodes, routers),
        "the product of dims is the number of nodes");
  }
}

}  // namespace

void ReadFabric(const Node& root, TopologySpec* spec) {
  const auto map = root.Find("fabric");
  FabricSpec& fabric = spec->fabric;
  if (!map) {
    if (spec->max_nodes > 1) {
      root.ErrorAt("max_nodes", fmt::format("{} nodes without a fabric", spec->max_nodes),
                   "add 'fabric:' and 'nics:', or set max_nodes: 1");
    }
    return;
  }
  fabric.kind =
      map->Choice("kind", std::span<const std::pair<const char*, FabricKind>>(kFabricKinds));
  fabric.reduces = map->Bool("reduces", false);
  if (map->Find("latency")) fabric.latency = map->ReadSeconds("latency");
  if (spec->node.nics.empty()) {
    map->Error("a fabric, but the node has no NIC",
               "add 'nics: {count: 1, rate: 100Gbps}' to the node");
    return;
  }
  switch (fabric.kind) {
    case FabricKind::kNone:
    case FabricKind::kSingleSwitch:
      break;
    case FabricKind::kFatTree:
    case FabricKind::kRailOptimised:
      ReadTree(*map, *spec, &fabric);
      break;
    case FabricKind::kDragonfly:
      ReadDragonfly(*map, *spec, &fabric);
      break;
    case FabricKind::kTorus:
      ReadTorus(*map, *spec, &fabric);
      break;
    case FabricKind::kNamed:
      ReadNamedFabric(*map, *spec, &fabric);
      break;
  }
  map->RejectUnknownKeys();
}

}  // namespace orrery
