// SPDX-License-Identifier: Apache-2.0
// Devices and links of a cluster with the traffic of a recorded step.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "model/engine/event/index.h"
#include "model/engine/network/network.h"
#include "model/program/common/picture_parts.h"

namespace orrery::report {
namespace {

using Json = nlohmann::ordered_json;
using sim::At;

constexpr std::size_t kMostDevices = 160;  // of a drawing

const char* WordOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "GPU";
    case DeviceKind::kNvSwitch:
      return "scale-up switch";
    case DeviceKind::kPcieSwitch:
      return "PCIe switch";
    case DeviceKind::kHost:
      return "host";
    case DeviceKind::kNic:
      return "NIC";
    case DeviceKind::kSwitch:
    case DeviceKind::kLeaf:
    case DeviceKind::kSpine:
    case DeviceKind::kCore:
    case DeviceKind::kRouter:
      return "switch";
  }
  return "switch";
}

// Links with their traffic; of a large cluster the nodes whose links are busiest, and the switches that they reach.
class Drawing {
 public:
  Drawing(const sim::Simulation& simulation, const Cluster& cluster)
      : cluster_(cluster),
        traffic_(sim::TrafficOnLinks(simulation.plan(), simulation.tasks(),
                                     simulation.communicators(), cluster.links.size())),
        seconds_(simulation.result().seconds) {}

  Json Draw() {
    ChooseNodes();
    ChooseSwitches();
    Json json = {{"nodes", cluster_.nodes}, {"nodes_shown", nodes_}};
    json["devices"] = Json::array();
    json["links"] = Json::array();
    for (const VertexId v : shown_) {
      const Device& device = cluster_.devices[At(v)];
      json["devices"].push_back(
          {{"name", cluster_.DeviceName(v)}, {"kind", WordOf(device.kind)}, {"node", device.node}});
    }
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const Link& link = cluster_.links[i];
      if (!shown_.contains(link.from) || !shown_.contains(link.to)) continue;
      json["links"].push_back({{"from", cluster_.DeviceName(link.from)},
                               {"to", cluster_.DeviceName(link.to)},
                               {"bytes", traffic_[i].bytes},
                               {"busy", Busy(i)},
                               {"efficiency", traffic_[i].efficiency()}});
    }
    return json;
  }

 private:
  double Busy(std::size_t link) const {
    return traffic_[link].occupied / cluster_.links[link].capacity.value / seconds_;
  }

  void ChooseNodes() {
    std::vector<double> busiest(At(cluster_.nodes), 0);
    std::vector<std::size_t> devices(busiest.size(), 0);
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      for (const VertexId end : {cluster_.links[i].from, cluster_.links[i].to}) {
        const int32_t node = cluster_.devices[At(end)].node;
        if (node >= 0) busiest[At(node)] = std::max(busiest[At(node)], Busy(i));
      }
    }
    for (const Device& device : cluster_.devices) {
      if (device.node >= 0) ++devices[At(device.node)];
    }
    std::vector<int64_t> order;
    for (int64_t n = 0; n < cluster_.nodes; ++n) order.push_back(n);
    std::ranges::stable_sort(order, std::greater<>(), [&](int64_t n) { return busiest[At(n)]; });
    std::size_t drawn = 0;
    for (const int64_t n : order) {
      if (!nodes_.empty() && drawn + devices[At(n)] > kMostDevices) break;
      drawn += devices[At(n)];
      nodes_.push_back(n);
    }
    std::ranges::sort(nodes_);
  }

  void ChooseSwitches() {
    for (std::size_t v = 0; v < cluster_.devices.size(); ++v) {
      if (std::ranges::binary_search(nodes_, cluster_.devices[v].node))
        shown_.insert(static_cast<VertexId>(v));
    }
    constexpr std::size_t kMostSwitches = 24;
    for (int hop = 0; hop < 2; ++hop) {
      std::set<VertexId> found;
      for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
        const Link& link = cluster_.links[i];
        if (traffic_[i].bytes <= 0 && cluster_.nodes > 1) continue;
        if (shown_.contains(link.from) && cluster_.devices[At(link.to)].node < 0)
          found.insert(link.to);
      }
      for (const VertexId v : found) {
        if (switches_ >= kMostSwitches) break;
        switches_ += shown_.insert(v).second ? 1 : 0;
      }
    }
  }

  const Cluster& cluster_;
  const std::vector<sim::LinkTraffic> traffic_;
  const double seconds_;
  std::vector<int64_t> nodes_;
  std::set<VertexId> shown_;
  std::size_t switches_ = 0;
};

}  // namespace

Json DrawCluster(const sim::Simulation& simulation, const Cluster& cluster) {
  return Drawing(simulation, cluster).Draw();
}

}  // namespace orrery::report
