// SPDX-License-Identifier: Apache-2.0
// Min-cuts and detours with Boost.Graph.
#include "model/hardware/flow.h"

#include <algorithm>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <limits>
#include <string>

#include "model/base/check.h"
#include "model/hardware/graph.h"
#include "model/hardware/node_template.h"

namespace orrery {
namespace {

constexpr int64_t kMostHalves = 256;

using FlowTraits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
struct FlowVertex {
  double distance = 0;
  boost::default_color_type colour = boost::white_color;
  FlowTraits::edge_descriptor predecessor;
};
struct FlowEdge {
  double capacity = 0, residual = 0;
  FlowTraits::edge_descriptor reverse;
};
using FlowGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, FlowVertex, FlowEdge>;

// The network, from NICs on: what happens inside nodes does not count.
class Flow {
 public:
  explicit Flow(const Cluster& cluster) : cluster_(cluster) {
    place_.assign(cluster.devices.size(), -1);
    for (std::size_t v = 0; v < place_.size(); ++v) {
      const Device& device = cluster.devices[v];
      if (device.node < 0 || device.kind == DeviceKind::kNic) place_[v] = vertices_++;
    }
  }

  double Run(std::span<const int64_t> from, std::span<const int64_t> to,
             std::vector<LinkId>* cut) const {
    FlowGraph graph(static_cast<std::size_t>(vertices_) + 2);
    const auto source = static_cast<std::size_t>(vertices_), sink = source + 1;
    for (const Link& link : cluster_.links) {
      const int a = place_[static_cast<std::size_t>(link.from)],
                b = place_[static_cast<std::size_t>(link.to)];
      if (a >= 0 && b >= 0 && link.capacity.value > 0)
        Add(static_cast<std::size_t>(a), static_cast<std::size_t>(b), link.capacity.value, &graph);
    }
    const double all = TotalRate();
    for (const int64_t node : from)
      EachNic(node, [&](std::size_t v) { Add(source, v, all, &graph); });
    for (const int64_t node : to) EachNic(node, [&](std::size_t v) { Add(v, sink, all, &graph); });
    const double flow = boost::boykov_kolmogorov_max_flow(
        graph, boost::get(&FlowEdge::capacity, graph), boost::get(&FlowEdge::residual, graph),
        boost::get(&FlowEdge::reverse, graph), boost::get(&FlowVertex::predecessor, graph),
        boost::get(&FlowVertex::colour, graph), boost::get(&FlowVertex::distance, graph),
        boost::get(boost::vertex_index, graph), source, sink);
    if (cut != nullptr) *cut = Cut(graph);
    return flow;
  }

 private:
  static void Add(std::size_t a, std::size_t b, double capacity, FlowGraph* graph) {
    const auto there = boost::add_edge(a, b, *graph).first;
    const auto back = boost::add_edge(b, a, *graph).first;
    (*graph)[there].capacity = capacity;
    (*graph)[there].reverse = back;
    (*graph)[back].reverse = there;
  }

  template <class Use>
  void EachNic(int64_t node, Use use) const {
    const auto base = node * static_cast<int64_t>(cluster_.node_template->devices().size());
    for (std::size_t k = 0; k < cluster_.spec.node.nics.size(); ++k) {
      const auto vertex = base + cluster_.node_template->NicVertex(static_cast<int>(k));
      use(static_cast<std::size_t>(place_[static_cast<std::size_t>(vertex)]));
    }
  }

  double TotalRate() const {
    double all = 1;
    for (const Link& link : cluster_.links) all += link.capacity.value;
    return all;
  }

  // Links from the source's side (black) to the others.
  std::vector<LinkId> Cut(const FlowGraph& graph) const {
    std::vector<LinkId> cut;
    const auto sends = [&](VertexId v) {
      const int at = place_[static_cast<std::size_t>(v)];
      return at >= 0 && graph[static_cast<std::size_t>(at)].colour == boost::black_color;
    };
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const Link& link = cluster_.links[i];
      if (place_[static_cast<std::size_t>(link.to)] < 0 || link.capacity.value <= 0) continue;
      if (sends(link.from) && !sends(link.to)) cut.push_back(static_cast<LinkId>(i));
    }
    return cut;
  }

  const Cluster& cluster_;
  std::vector<int> place_;  // by VertexId; -1: inside a node
  int vertices_ = 0;
};

// `name` is the device's, its node's or its host's.
bool IsNamed(const Cluster& cluster, VertexId vertex, std::string_view name) {
  if (cluster.DeviceName(vertex) == name) return true;
  const Device& device = cluster.devices[static_cast<std::size_t>(vertex)];
  if (device.kind != DeviceKind::kNic) return false;
  const auto node = static_cast<std::size_t>(device.node);
  const std::vector<std::string>& hosts = cluster.spec.fabric.hosts;
  return name == "n" + std::to_string(node) || (node < hosts.size() && hosts[node] == name);
}

std::vector<LinkId> Between(const Cluster& cluster, std::string_view a, std::string_view b) {
  std::vector<LinkId> found;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    if (link.kind != LinkKind::kNicPort && link.kind != LinkKind::kFabric) continue;
    if ((IsNamed(cluster, link.from, a) && IsNamed(cluster, link.to, b)) ||
        (IsNamed(cluster, link.from, b) && IsNamed(cluster, link.to, a)))
      found.push_back(static_cast<LinkId>(i));
  }
  return found;
}

std::string_view Blankless(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// Neighbours in the network, whatever their numbers: those of a named switch next to each other.
std::vector<int64_t> NeighbouringNodes(const Cluster& cluster) {
  std::vector<int64_t> nodes;
  std::vector<char> placed(static_cast<std::size_t>(cluster.nodes), 0);
  const auto place = [&](int64_t node) {
    if (node < cluster.nodes && placed[static_cast<std::size_t>(node)]++ == 0)
      nodes.push_back(node);
  };
  for (const NamedSwitch& one : cluster.spec.fabric.switches)
    for (const int64_t host : one.hosts) place(host);
  for (int64_t node = 0; node < cluster.nodes; ++node) place(node);
  return nodes;
}

}  // namespace

BytesPerSecond MaxFlow(const Cluster& cluster, std::span<const int64_t> from,
                       std::span<const int64_t> to, std::vector<LinkId>* cut) {
  return BytesPerSecond(Flow(cluster).Run(from, to, cut));
}

Halves WorstHalves(const Cluster& cluster) {
  Halves worst;
  if (cluster.nodes < 2 || cluster.spec.node.nics.empty()) return worst;
  const Flow flow(cluster);
  const int64_t half = cluster.nodes / 2;
  // Both halves of an even number are a start each, and flow is the same in both directions.
  const int64_t starts = cluster.nodes % 2 == 0 ? half : cluster.nodes;
  const int64_t stride = (starts + kMostHalves - 1) / kMostHalves;
  const std::vector<int64_t> nodes = NeighbouringNodes(cluster);
  worst.rate = BytesPerSecond(std::numeric_limits<double>::infinity());
  for (int64_t start = 0; start < starts; start += stride) {
    std::vector<int64_t> from, to;
    for (int64_t i = 0; i < cluster.nodes; ++i)
      (i < half ? from : to)
          .push_back(nodes[static_cast<std::size_t>((start + i) % cluster.nodes)]);
    std::vector<LinkId> cut;
    const BytesPerSecond rate(flow.Run(from, to, &cut));
    if (rate.value >= worst.rate.value) continue;
    worst = {rate, std::move(from), std::move(cut)};
  }
  return worst;
}

std::vector<LinkId> LinksBetween(const Cluster& cluster, std::string_view pair) {
  if (const std::size_t arrow = pair.find("<->"); arrow != std::string_view::npos)
    return Between(cluster, Blankless(pair.substr(0, arrow)), Blankless(pair.substr(arrow + 3)));
  // Names may hold hyphens: the first place where both sides are names.
  for (std::size_t at = pair.find('-'); at != std::string_view::npos; at = pair.find('-', at + 1)) {
    std::vector<LinkId> found =
        Between(cluster, Blankless(pair.substr(0, at)), Blankless(pair.substr(at + 1)));
    if (!found.empty()) return found;
  }
  return {};
}

void FailLinks(std::span<const LinkId> links, Cluster* cluster) {
  for (const LinkId link : links)
    cluster->links[static_cast<std::size_t>(link)].capacity = BytesPerSecond(0);
}

std::vector<LinkId> RouteAround(const Cluster& cluster, int64_t from, int64_t to, bool* detour) {
  std::vector<LinkId> route = cluster.Route(from, to);
  *detour = route.empty() ? false : cluster.Bottleneck(route).value <= 0;
  if (!*detour) return route;
  BoostGraph graph(cluster.devices.size());
  const int64_t a = cluster.NodeOf(from), b = cluster.NodeOf(to);
  const auto passes = [&](VertexId v) {
    const Device& device = cluster.devices[static_cast<std::size_t>(v)];
    if (device.kind == DeviceKind::kGpu) return v == cluster.GpuOf(from) || v == cluster.GpuOf(to);
    return device.node < 0 || device.node == a || device.node == b;
  };
  AddLinksTo(
      cluster.links,
      [&](const Link& link) {
        return link.capacity.value > 0 && link.kind != LinkKind::kScaleUp && passes(link.from) &&
               passes(link.to);
      },
      &graph);
  const auto start = static_cast<std::size_t>(cluster.GpuOf(from));
  std::vector<LinkId> came(cluster.devices.size(), -1);
  struct Recorder : boost::default_bfs_visitor {
    explicit Recorder(std::vector<LinkId>* links) : came_by(links) {}
    void tree_edge(BoostGraph::edge_descriptor edge, const BoostGraph& in) const {
      (*came_by)[boost::target(edge, in)] = in[edge].id;
    }
    std::vector<LinkId>* came_by;
  };
  boost::breadth_first_search(graph, start, boost::visitor(Recorder(&came)));
  route.clear();
  for (VertexId at = cluster.GpuOf(to); at != cluster.GpuOf(from);) {
    const LinkId link = came[static_cast<std::size_t>(at)];
    if (link < 0) return {};
    route.push_back(link);
    at = cluster.links[static_cast<std::size_t>(link)].from;
  }
  std::reverse(route.begin(), route.end());
  return route;
}

}  // namespace orrery
