// SPDX-License-Identifier: Apache-2.0
// The Boost graph of a cluster: vertices are devices, edges are directed links.
//
// Apart from cluster.h because Boost.Graph headers are slow to compile.
#pragma once

#include <boost/graph/adjacency_list.hpp>

#include "model/hardware/cluster.h"

namespace orrery {

struct LinkProperty {
  LinkId id = 0;  // into Cluster::links
};

using BoostGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, Device, LinkProperty>;

struct ClusterGraph {
  explicit ClusterGraph(std::size_t vertices) : graph(vertices) {}
  BoostGraph graph;
};

// Adds the links that `keep` accepts; the graph has one vertex per device. (Boost's graphs have no
// move, so that they are filled in place.)
template <class Keep>
void AddLinksTo(const std::vector<Link>& links, Keep keep, BoostGraph* graph) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (!keep(links[i])) continue;
    boost::add_edge(static_cast<std::size_t>(links[i].from), static_cast<std::size_t>(links[i].to),
                    LinkProperty{static_cast<LinkId>(i)}, *graph);
  }
}

}  // namespace orrery
