// SPDX-License-Identifier: Apache-2.0
// A fabric of named switches: any graph, with routes of fewest hops.
//
// Of the links that lead on along a shortest way (parallel ones count each), the destination's port
// and the channel choose one, so that neighbours and channels spread over equal ways.
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/breadth_first_search.hpp>
#include <cstdint>
#include <limits>

#include "model/base/check.h"
#include "model/hardware/fabric.h"

namespace orrery {
namespace {

using SwitchGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, LinkId>;

constexpr uint16_t kFar = std::numeric_limits<uint16_t>::max();

class NamedFabric : public FabricRouting {
 public:
  NamedFabric(const TopologySpec& spec, const std::vector<VertexId>& nics, FabricBuilder* builder)
      : graph_(spec.fabric.switches.size()) {
    const FabricSpec& fabric = spec.fabric;
    const std::size_t per_node = spec.node.nics.size();
    switch_of_.assign(nics.size(), 0);
    for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
      for (const int64_t host : fabric.switches[i].hosts) {
        for (const int nic : fabric.switches[i].nics) {
          const std::size_t port =
              static_cast<std::size_t>(host) * per_node + static_cast<std::size_t>(nic);
          if (port < nics.size()) switch_of_[port] = static_cast<int>(i);
        }
      }
    }
    const VertexId first =
        builder->AddSwitches(DeviceKind::kSwitch, static_cast<int64_t>(fabric.switches.size()));
    ports_ = ConnectPorts(builder, nics, spec.node, [&](Port port) {
      return static_cast<VertexId>(first + switch_of_[static_cast<std::size_t>(port)]);
    });
    for (const SwitchLink& link : fabric.links) {
      for (int copy = 0; copy < link.count; ++copy) AddLink(link, first, builder);
    }
    FindDistances();
  }

  void Append(Port from, Port to, int channel, std::vector<LinkId>* route) const override {
    route->push_back(static_cast<LinkId>(ports_ + 2 * from));
    auto at = static_cast<std::size_t>(switch_of_[static_cast<std::size_t>(from)]);
    const auto goal = static_cast<std::size_t>(switch_of_[static_cast<std::size_t>(to)]);
    const std::vector<uint16_t>& left = distance_[goal];
    while (at != goal) {
      std::vector<std::pair<LinkId, std::size_t>> ways;
      for (const auto edge : boost::make_iterator_range(boost::out_edges(at, graph_))) {
        const std::size_t next = boost::target(edge, graph_);
        if (left[next] + 1 == left[at]) ways.emplace_back(graph_[edge], next);
      }
      ORRERY_CHECK(!ways.empty(), "no way from switch {} to {}", at, goal);
      const auto& [link, next] = ways[static_cast<std::size_t>(to + channel) % ways.size()];
      route->push_back(link);
      at = next;
    }
    route->push_back(static_cast<LinkId>(ports_ + 2 * to + 1));
  }

 private:
  void AddLink(const SwitchLink& link, VertexId first, FabricBuilder* builder) {
    const LinkId there =
        builder->Connect(static_cast<VertexId>(first + link.a),
                         static_cast<VertexId>(first + link.b), link.rate, LinkKind::kFabric);
    const auto a = static_cast<std::size_t>(link.a), b = static_cast<std::size_t>(link.b);
    boost::add_edge(a, b, there, graph_);
    boost::add_edge(b, a, static_cast<LinkId>(there + 1), graph_);
  }

  // To every switch with hosts, from all others. Links lead both ways, so that distances do, too.
  void FindDistances() {
    distance_.resize(boost::num_vertices(graph_));
    std::vector<char> wanted(distance_.size(), 0);
    for (const int at : switch_of_) wanted[static_cast<std::size_t>(at)] = 1;
    for (std::size_t goal = 0; goal < distance_.size(); ++goal) {
      if (!wanted[goal]) continue;
      distance_[goal].assign(distance_.size(), kFar);
      distance_[goal][goal] = 0;
      boost::breadth_first_search(graph_, goal,
                                  boost::visitor(boost::make_bfs_visitor(boost::record_distances(
                                      distance_[goal].data(), boost::on_tree_edge()))));
    }
  }

  SwitchGraph graph_;
  std::vector<int> switch_of_;                   // by port
  std::vector<std::vector<uint16_t>> distance_;  // hops, by goal; empty: no host there
  LinkId ports_ = 0;
};

}  // namespace

std::shared_ptr<const FabricRouting> MakeNamed(const TopologySpec& spec,
                                               const std::vector<VertexId>& nics,
                                               FabricBuilder* builder) {
  return std::make_shared<NamedFabric>(spec, nics, builder);
}

}  // namespace orrery
