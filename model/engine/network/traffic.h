// SPDX-License-Identifier: Apache-2.0
// What a collective puts on which links: its edges, routed, channel by channel.
//
// A channel is one coupled job (network.h): the weight of a link is the number of its edges that
// cross it, each edge carries `share` bytes per byte of S (the size that nccl-tests prints).
// Channels turn through the GPUs of a node, so that they leave it through different NICs.
//
// In a node of point-to-point links they follow its packed rings instead (mesh_rings.h).
//
//   ring          every rank to the next, 2(n-1)/n S (all-reduce) or (n-1)/n S per edge; odd nodes
//                 are walked backwards, so that a ring stays on one rail between two nodes
//                 broadcast: the ring without the edge into the root, S per edge
//   tree          two trees over nodes with chains inside, S/2 up and S/2 down each edge; the
//                 second tree is the first one shifted by a node, so that leaves become interior nodes
//                 (Sanders, Speck, Traeff 2009)
//   hierarchical  inside the nodes, then one ring per local rank between them, then inside again
//   direct        all-to-all: S/n from every rank to every other one
//   send-recv     S from the first member to the second
// In-switch algorithms put on the links of a switched node: nvls what a ring puts there, nvls-tree S
// out of and into every GPU.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/engine/network/link_counter.h"
#include "model/engine/network/mesh_rings.h"
#include "model/engine/network/network.h"

namespace orrery::net {

struct Channel {
  std::vector<LinkUse> uses;
  double share = 0;  // bytes over each edge per byte of S
};
using TrafficPhase = std::vector<Channel>;  // run together
using Traffic = std::vector<TrafficPhase>;  // run one after the other

// A cluster and what routing on it works with.
struct RoutingState {
  explicit RoutingState(const Cluster& where) : cluster(where), counter(where) {}

  const Cluster& cluster;
  LinkCounter counter;
  MeshRings mesh;
};

// Routes collectives on one cluster, which must outlive it.
class TrafficRouter {
 public:
  explicit TrafficRouter(const Cluster& cluster) : state_(cluster) {}

  // `members`: ranks in ascending order (send-recv: sender, receiver), two or more. Throws
  // InputError for an algorithm that is not in the list above or cannot do this collective on these
  // members.
  Traffic Route(std::string_view algorithm, Collective collective,
                std::span<const int64_t> members);

 private:
  RoutingState state_;
};

// One collective.
Traffic RouteCollective(std::string_view algorithm, Collective collective, const Cluster& cluster,
                        std::span<const int64_t> members);

// The time of one phase after another on links that carry nothing else: sum over phases of the
// largest over links of bytes / capacity. No latency.
Seconds BottleneckTime(const Traffic& traffic, const Cluster& cluster, Bytes size);

}  // namespace orrery::net
