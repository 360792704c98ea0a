// SPDX-License-Identifier: Apache-2.0
// Devices and directed links as a Boost graph, on which node_template.cc finds the routes inside a node.
//
// A header of its own because Boost.Graph headers are slow to compile.
#pragma once

#include <boost/graph/adjacency_list.hpp>

#include "model/hardware/cluster.h"

namespace orrery {

struct LinkProperty {
  LinkId id = 0;  // into the list of links
};

using BoostGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, Device, LinkProperty>;

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
