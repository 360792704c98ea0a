// SPDX-License-Identifier: Apache-2.0
// Routes collectives on a cluster: the parts from which algorithms build their traffic.
//
// Channels turn through the GPUs of a node, so that they leave it through different NICs. In a node of
// point-to-point links rings follow its packed rings instead (model/hardware/mesh_rings.h).
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/hardware/link_counter.h"
#include "model/hardware/mesh_rings.h"
#include "model/hardware/traffic.h"

namespace orrery::net {

// A cluster and what routing on it works with.
struct RoutingState {
  explicit RoutingState(const Cluster& where, int64_t edges = int64_t{1} << 21)
      : cluster(where), counter(where), most_edges(edges) {}

  const Cluster& cluster;
  LinkCounter counter;
  MeshRings mesh;
  // Of a double tree whose channels are jobs of their own; those of 131,072 GPUs in nodes of 8 are.
  int64_t most_edges;
};

// The members of each node (scale-up domain, GroupShape) that has any, in order.
using Nodes = std::vector<std::vector<int64_t>>;

// One group on a cluster, as Algorithm::Route() sees it.
class GroupRoutes {
 public:
  // `members`: ranks in ascending order (send-recv: sender, receiver), two or more.
  GroupRoutes(std::span<const int64_t> members, RoutingState* state);

  std::span<const int64_t> members() const { return members_; }
  const Nodes& nodes() const { return nodes_; }
  int ranks() const { return static_cast<int>(members_.size()); }
  GroupShape shape() const;

  // As many channels as spread the traffic of members of one or several nodes over their NICs.
  int ChannelsOf(const Nodes& nodes) const;

  // Edges of one channel: add them, then take the channel. `turn` chooses among a GPU's nearest NICs
  // and among equivalent paths of the fabric.
  void AddEdge(int64_t from, int64_t to, int turn) { state_->counter.AddEdge(from, to, turn); }
  Channel TakeChannel(double share) { return {state_->counter.Take(), share}; }

  // A ring over all members of some nodes: every rank to the next, `share` per edge, in as many
  // channels as there are NICs. `root`: a chain that begins there, without the edge that would close
  // the ring; -1: the whole ring.
  TrafficPhase Ring(const Nodes& nodes, double share, int64_t root = -1);
  // Rings of single nodes, all at once.
  TrafficPhase RingsInsideNodes(double share);

  // Two complementary trees over the nodes, S/2 up and S/2 down every edge between two nodes.
  // `inside(walk, turn)` adds the edges of one channel inside one node; a walk begins at the member
  // that talks to other nodes.
  using InsideNode = std::function<void(const std::vector<int64_t>& walk, int turn)>;
  TrafficPhase DoubleTree(const InsideNode& inside);

 private:
  std::vector<int64_t> Walk(const std::vector<int64_t>& local, bool backwards, int channel,
                            int channels);
  Channel AlongRing(const std::vector<int64_t>& ring, int64_t root, int turn, double share);
  TrafficPhase MeshRingsOf(const std::vector<int64_t>& local, double share, int64_t root);

  std::span<const int64_t> members_;
  RoutingState* state_;
  Nodes nodes_;
};

// Traffic of a single phase, which is moved: a list in braces copies it, a hundred MB for 131,072 ranks.
inline Traffic InOnePhase(TrafficPhase phase) {
  Traffic traffic;
  traffic.push_back(std::move(phase));
  return traffic;
}

// Routes collectives on one cluster, which must outlive it.
class TrafficRouter {
 public:
  explicit TrafficRouter(const Cluster& cluster) : state_(cluster) {}
  // `most_edges`: of a double tree beyond them several channels are one.
  TrafficRouter(const Cluster& cluster, int64_t most_edges) : state_(cluster, most_edges) {}

  // `members` as GroupRoutes takes them. Throws InputError for a name that Algorithms() does not have, and
  // for an algorithm that cannot do this collective on these members.
  Traffic Route(std::string_view algorithm, Collective collective,
                std::span<const int64_t> members);

 private:
  struct Known {
    const Algorithm* algorithm;
    Collective collective;
    Traffic traffic;
  };

  RoutingState state_;
  // Of the group that was asked for last: one group's messages of several sizes follow one another, and their routes are the same.
  std::vector<int64_t> group_;
  std::vector<Known> known_;
};

}  // namespace orrery::net
