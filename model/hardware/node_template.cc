// SPDX-License-Identifier: Apache-2.0
// Builds the node template and finds its routes with Boost's Dijkstra.
#include "model/hardware/node_template.h"

#include <algorithm>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/property_map/function_property_map.hpp>
#include <limits>

#include "model/base/check.h"
#include "model/hardware/graph.h"

namespace orrery {
namespace {

// Shortest routes from one vertex at a time.
class RouteFinder {
 public:
  template <class Keep>
  RouteFinder(const std::vector<Device>& devices, const std::vector<Link>& links, Keep keep)
      : graph_(devices.size()) {
    AddLinksTo(links, keep, &graph_);
    double slowest = std::numeric_limits<double>::infinity();
    for (const Link& link : links) slowest = std::min(slowest, link.capacity.value);
    // A hop costs 1; width and link id only decide between routes of equally many hops.
    for (std::size_t i = 0; i < links.size(); ++i) {
      weights_.push_back(1 + 0.01 * slowest / links[i].capacity.value +
                         1e-7 * static_cast<double>(i));
    }
  }

  void From(VertexId source) {
    source_ = source;
    predecessor_.assign(boost::num_vertices(graph_), 0);
    const auto weight = boost::make_function_property_map<BoostGraph::edge_descriptor, double>(
        [this](const BoostGraph::edge_descriptor& edge) {
          return weights_[static_cast<std::size_t>(graph_[edge].id)];
        });
    boost::dijkstra_shortest_paths(
        graph_, static_cast<std::size_t>(source),
        boost::weight_map(weight).predecessor_map(boost::make_iterator_property_map(
            predecessor_.begin(), boost::get(boost::vertex_index, graph_))));
  }

  // Appends the links from the source to `target`; false when there is no way.
  bool To(VertexId target, std::vector<LinkId>* route) const {
    const std::size_t begin = route->size();
    for (auto v = static_cast<std::size_t>(target); v != static_cast<std::size_t>(source_);) {
      const std::size_t u = predecessor_[v];
      if (u == v) return false;  // Boost leaves unreached vertices as their own predecessors
      route->push_back(graph_[boost::edge(u, v, graph_).first].id);
      v = u;
    }
    std::reverse(route->begin() + static_cast<std::ptrdiff_t>(begin), route->end());
    return true;
  }

 private:
  BoostGraph graph_;
  std::vector<double> weights_;  // by link id
  VertexId source_ = 0;
  std::vector<std::size_t> predecessor_;
};

// The switch of a domain of several nodes is no part of any: BuildCluster adds it.
bool OwnSwitch(const NodeSpec& spec) {
  return spec.intra == IntraLink::kNvSwitch && spec.domain_nodes == 1;
}

}  // namespace

int PcieDistance(const PcieGroup& a, const PcieGroup& b) {
  if (a.host != b.host) return 2;
  return a.pcie_switch >= 0 && a.pcie_switch == b.pcie_switch ? 0 : 1;
}

const PcieGroup& GroupOfGpu(const NodeSpec& spec, int gpu) {
  for (const PcieGroup& group : spec.pcie) {
    if (std::find(group.gpus.begin(), group.gpus.end(), gpu) != group.gpus.end()) return group;
  }
  ORRERY_CHECK(false, "gpu{} is in no PCIe group", gpu);
  return spec.pcie.front();
}

const PcieGroup& GroupOfNic(const NodeSpec& spec, int nic) {
  for (const PcieGroup& group : spec.pcie) {
    if (std::find(group.nics.begin(), group.nics.end(), nic) != group.nics.end()) return group;
  }
  ORRERY_CHECK(false, "nic{} is in no PCIe group", nic);
  return spec.pcie.front();
}

NodeTemplate::NodeTemplate(const NodeSpec& spec)
    : gpus_(spec.gpus), nics_(static_cast<int>(spec.nics.size())) {
  AddDevices(spec);
  AddLinks(spec);
  FindRoutes();
  nearest_nics_ = orrery::NearestNics(spec, std::vector<char>(spec.nics.size(), 1));
  TurnApart(&nearest_nics_);
}

std::span<const LinkId> NodeTemplate::Stored(int route) const {
  const auto r = static_cast<std::size_t>(route);
  return std::span(route_links_).subspan(route_begin_[r], route_begin_[r + 1] - route_begin_[r]);
}

int NodeTemplate::NicOf(int gpu, int channel) const {
  const std::vector<int>& nics = NearestNics(gpu);
  return nics[static_cast<std::size_t>(channel) % nics.size()];
}

void NodeTemplate::AddDevices(const NodeSpec& spec) {
  const auto add = [this](DeviceKind kind, std::size_t count) {
    const auto first = static_cast<VertexId>(devices_.size());
    for (std::size_t i = 0; i < count; ++i) devices_.push_back({kind, 0, static_cast<int32_t>(i)});
    return first;
  };
  add(DeviceKind::kGpu, static_cast<std::size_t>(spec.gpus));
  add(DeviceKind::kNvSwitch, OwnSwitch(spec) ? 1 : 0);
  first_switch_ = add(DeviceKind::kPcieSwitch, spec.switches.size());
  first_host_ = add(DeviceKind::kHost, spec.hosts.size());
  first_nic_ = add(DeviceKind::kNic, spec.nics.size());
}

void NodeTemplate::AddBoth(VertexId a, VertexId b, BytesPerSecond capacity, LinkKind kind) {
  links_.push_back({a, b, capacity, kind});
  links_.push_back({b, a, capacity, kind});
}

void NodeTemplate::AddLinks(const NodeSpec& spec) {
  if (OwnSwitch(spec)) {
    for (VertexId gpu = 0; gpu < gpus_; ++gpu)
      AddBoth(gpu, gpus_, ScaleUpPerGpu(spec), LinkKind::kScaleUp);
  }
  for (const MeshLink& link : spec.mesh) {
    AddBoth(link.a, link.b, spec.per_link * link.count, LinkKind::kScaleUp);
  }
  for (const PcieGroup& group : spec.pcie) {
    const VertexId host = first_host_ + group.host;
    const VertexId root = group.pcie_switch < 0 ? host : first_switch_ + group.pcie_switch;
    if (root != host) AddBoth(root, host, spec.pcie_rate, LinkKind::kPcie);
    for (const int gpu : group.gpus) AddBoth(gpu, root, spec.pcie_rate, LinkKind::kPcie);
    for (const int nic : group.nics) AddBoth(NicVertex(nic), root, spec.pcie_rate, LinkKind::kPcie);
  }
  const auto hosts = static_cast<VertexId>(spec.hosts.size());
  for (VertexId a = 0; a < hosts; ++a) {
    for (VertexId b = a + 1; b < hosts; ++b) {
      AddBoth(first_host_ + a, first_host_ + b, spec.between_hosts, LinkKind::kHostLink);
    }
  }
}

void NodeTemplate::FindRoutes() {
  RouteFinder scale_up(devices_, links_,
                       [](const Link& l) { return l.kind == LinkKind::kScaleUp; });
  RouteFinder pcie(devices_, links_, [](const Link& l) { return l.kind != LinkKind::kScaleUp; });
  std::vector<LinkId> route;
  const auto store = [&](RouteFinder* first, RouteFinder* second, VertexId to) {
    const bool found = first->To(to, &route_links_) || (second && second->To(to, &route_links_));
    ORRERY_CHECK(found, "no route to local vertex {}", to);
    route_begin_.push_back(route_links_.size());
  };
  for (VertexId gpu = 0; gpu < gpus_; ++gpu) {
    scale_up.From(gpu);
    pcie.From(gpu);
    for (VertexId to = 0; to < gpus_; ++to) store(&scale_up, &pcie, to);
  }
  for (VertexId gpu = 0; gpu < gpus_; ++gpu) {
    pcie.From(gpu);
    for (int nic = 0; nic < nics_; ++nic) store(&pcie, nullptr, NicVertex(nic));
  }
  // Links come in pairs of opposite directions: the way back is the way there, reversed.
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    for (int nic = 0; nic < nics_; ++nic) {
      const std::span<const LinkId> out = GpuToNic(gpu, nic);
      std::vector<LinkId> back;
      for (auto link = out.rbegin(); link != out.rend(); ++link) back.push_back(*link ^ 1);
      route_links_.insert(route_links_.end(), back.begin(), back.end());
      route_begin_.push_back(route_links_.size());
    }
  }
}

std::vector<std::vector<int>> NearestNics(const NodeSpec& spec, const std::vector<char>& works) {
  std::vector<std::vector<int>> nics(static_cast<std::size_t>(spec.gpus));
  if (std::ranges::count(works, 1) == 0) return nics;
  for (int gpu = 0; gpu < spec.gpus; ++gpu) {
    std::vector<int>& nearest = nics[static_cast<std::size_t>(gpu)];
    for (int distance = 0; nearest.empty(); ++distance) {
      for (std::size_t nic = 0; nic < works.size(); ++nic) {
        const PcieGroup& group = GroupOfNic(spec, static_cast<int>(nic));
        if (works[nic] && PcieDistance(GroupOfGpu(spec, gpu), group) <= distance)
          nearest.push_back(static_cast<int>(nic));
      }
    }
  }
  return nics;
}

void TurnApart(std::vector<std::vector<int>>* nics) {
  const std::vector<std::vector<int>> unrotated = *nics;
  for (std::size_t gpu = 0; gpu < unrotated.size(); ++gpu) {
    const auto sharers =
        static_cast<std::size_t>(std::count(unrotated.begin(), unrotated.end(), unrotated[gpu]));
    const auto before = static_cast<std::size_t>(std::count(
        unrotated.begin(), unrotated.begin() + static_cast<std::ptrdiff_t>(gpu), unrotated[gpu]));
    const std::size_t start = before * unrotated[gpu].size() / sharers;
    std::vector<int>& turned = (*nics)[gpu];
    std::rotate(turned.begin(), turned.begin() + static_cast<std::ptrdiff_t>(start), turned.end());
  }
}

}  // namespace orrery
