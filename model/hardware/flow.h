// SPDX-License-Identifier: Apache-2.0
// What a cluster's network carries and how it routes when links have failed, on the whole graph.
//
// Links of capacity 0 are no links. Rates are maximal flows, by min-cut (Ford and Fulkerson 1956;
// Boykov and Kolmogorov's algorithm in Boost.Graph), so they hold for every fabric, also broken ones.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/hardware/cluster.h"

namespace orrery {

struct Halves {
  BytesPerSecond rate;         // of the min-cut, one direction
  std::vector<int64_t> nodes;  // of the sending half
  std::vector<LinkId> cut;     // that fill up: the min-cut, in order of ids
};

// What NICs of one set of nodes can send to NICs of another at once.
BytesPerSecond MaxFlow(const Cluster& cluster, std::span<const int64_t> from,
                       std::span<const int64_t> to, std::vector<LinkId>* cut = nullptr);

// The smallest flow from half of the nodes to the others, over all halves of neighbours: n/2 nodes
// in a row, the last one's neighbour is the first; those on a named switch are next to each other. At most 256 such halves, evenly spread. No nodes
// in it with one node.
Halves WorstHalves(const Cluster& cluster);

// Links between A and B in "A-B" or "A <-> B", both directions: names of devices ("n3.nic0",
// "leaf2"), of hosts of a named fabric and of nodes ("n3"), which stand for their NICs. Empty: no
// such link.
std::vector<LinkId> LinksBetween(const Cluster& cluster, std::string_view pair);

// These links carry nothing any more.
void FailLinks(std::span<const LinkId> links, Cluster* cluster);

// The rule's route where all its links work, else one of fewest hops around what failed; empty: none
// is left. Through the fabric and the two nodes only. `detour` says which.
std::vector<LinkId> RouteAround(const Cluster& cluster, int64_t from, int64_t to, bool* detour);

}  // namespace orrery
