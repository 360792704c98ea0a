// SPDX-License-Identifier: Apache-2.0
// Rings, chains and trees over the members of a group, routed edge by edge.
#include "model/collectives/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/base/check.h"
#include "model/base/diagnostics.h"
#include "model/collectives/node_edges.h"

namespace orrery::net {
namespace {

constexpr int kMostChannels = 128;
constexpr std::size_t kMostUsesKept = std::size_t{1} << 20;  // uses of links, 16 MB

std::size_t UsesIn(const Traffic& traffic) {
  std::size_t uses = 0;
  for (const TrafficPhase& phase : traffic) {
    for (const Channel& channel : phase) uses += channel.uses.size();
  }
  return uses;
}

Nodes ByNode(const Cluster& cluster, std::span<const int64_t> members) {
  Nodes nodes;
  int64_t last = -1;
  for (const int64_t rank : members) {
    if (std::exchange(last, cluster.DomainOf(rank)) != cluster.DomainOf(rank)) nodes.emplace_back();
    nodes.back().push_back(rank);
  }
  return nodes;
}

std::vector<int> GpusOf(const Cluster& cluster, const std::vector<int64_t>& local) {
  std::vector<int> gpus;
  gpus.reserve(local.size());
  for (const int64_t rank : local) gpus.push_back(static_cast<int>(rank % cluster.gpus_per_node));
  return gpus;
}

std::vector<int64_t> Follow(const Order& order, const std::vector<int64_t>& local) {
  std::vector<int64_t> walk;
  walk.reserve(order.size());
  for (const int place : order) walk.push_back(local[static_cast<std::size_t>(place)]);
  return walk;
}

}  // namespace

GroupRoutes::GroupRoutes(std::span<const int64_t> members, RoutingState* state)
    : members_(members), state_(state), nodes_(ByNode(state->cluster, members)) {}

GroupShape GroupRoutes::shape() const {
  std::size_t local = 1;
  for (const auto& node : nodes_) local = std::max(local, node.size());
  return {ranks(), static_cast<int>(local), 1};
}

int GroupRoutes::ChannelsOf(const Nodes& nodes) const {
  if (nodes.size() == 1) return 1;
  const Cluster& cluster = state_->cluster;
  const int local = static_cast<int>(nodes.front().size());
  const int per_gpu =
      std::max(1, cluster.summary.nics_per_node / std::max(1, cluster.gpus_per_node));
  return std::min(kMostChannels, local * per_gpu);
}

// A channel's way through one node, from a member that turns with the channel, to all others.
std::vector<int64_t> GroupRoutes::Walk(const std::vector<int64_t>& local, bool backwards,
                                       int channel, int channels) {
  std::vector<int64_t> walk(local);
  const NodeSpec& node = state_->cluster.spec.node;
  const std::vector<Order>* chains = nullptr;
  if (!node.mesh.empty() && local.size() > 1)
    chains = &state_->mesh.Chains(node, GpusOf(state_->cluster, local), channels);
  if (chains != nullptr && !chains->empty()) {
    walk = Follow((*chains)[static_cast<std::size_t>(channel)], local);
  } else {
    const auto start = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(channel) % walk.size());
    std::rotate(walk.begin(), walk.begin() + start, walk.end());
  }
  if (backwards) std::ranges::reverse(walk);
  return walk;
}

Channel GroupRoutes::AlongRing(const std::vector<int64_t>& ring, int64_t root, int turn,
                               double share) {
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const int64_t next = ring[(i + 1) % ring.size()];
    if (next != root) AddEdge(ring[i], next, turn);
  }
  return TakeChannel(share);
}

// All rings that the point-to-point links of one node hold side by side, with equal shares.
TrafficPhase GroupRoutes::MeshRingsOf(const std::vector<int64_t>& local, double share,
                                      int64_t root) {
  TrafficPhase phase;
  const std::vector<Order>& rings =
      state_->mesh.Rings(state_->cluster.spec.node, GpusOf(state_->cluster, local));
  for (const Order& ring : rings)
    phase.push_back(
        AlongRing(Follow(ring, local), root, 0, share / static_cast<double>(rings.size())));
  return phase;
}

// Odd nodes are walked backwards, so that a ring stays on one rail between two nodes.
TrafficPhase GroupRoutes::Ring(const Nodes& nodes, double share, int64_t root) {
  TrafficPhase phase;
  if (nodes.size() == 1 && !state_->cluster.spec.node.mesh.empty())
    phase = MeshRingsOf(nodes.front(), share, root);
  if (!phase.empty()) return phase;
  const int channels = ChannelsOf(nodes);
  const int local = static_cast<int>(nodes.front().size());
  std::vector<int64_t> ring;
  for (int c = 0; c < channels; ++c) {
    const int turn = nodes.size() > 1 ? c / local : c;  // a GPU's further NICs come after all GPUs
    ring.clear();
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const std::vector<int64_t> walk = Walk(nodes[n], n % 2 == 1, c, channels);
      ring.insert(ring.end(), walk.begin(), walk.end());
    }
    phase.push_back(AlongRing(ring, root, turn, share / channels));
  }
  return phase;
}

TrafficPhase GroupRoutes::RingsInsideNodes(double share) {
  TrafficPhase phase;
  for (const std::vector<int64_t>& local : nodes_) {
    if (local.size() < 2) continue;
    for (Channel& channel : Ring({local}, share)) phase.push_back(std::move(channel));
  }
  return phase;
}

// The second tree is the first one shifted by a node: leaves become interior nodes, so that a node sends
// at most 2 S over both (Sanders, Speck, Traeff 2009).
// Trees of many channels over many ranks use the same links inside nodes: several channels at once, which are one job then, hold
// those once. Each link carries what it would, and no channel of a message ends before the others.
TrafficPhase GroupRoutes::DoubleTree(const InsideNode& inside) {
  TrafficPhase phase;
  const int channels = ChannelsOf(nodes_);
  const auto count = static_cast<int64_t>(nodes_.size());
  const int64_t edges = int64_t{2} * channels * ranks();
  const int together = static_cast<int>(
      std::min<int64_t>(channels, (edges + state_->most_edges - 1) / state_->most_edges));
  std::vector<std::vector<int64_t>> walks(nodes_.size());
  const auto add = [&](int c, int64_t shift) {
    const int turn = c / static_cast<int>(nodes_.front().size());
    for (int64_t n = 0; n < count; ++n) {
      const std::vector<int64_t>& walk = walks[static_cast<std::size_t>(n)];
      inside(walk, turn);
      const int64_t parent = ParentInTree(n, count, shift);
      if (parent < 0) continue;
      const int64_t above = walks[static_cast<std::size_t>(parent)].front();
      AddEdge(walk.front(), above, turn);
      AddEdge(above, walk.front(), turn);
    }
  };
  for (int first = 0; first < channels; first += together) {
    for (const int64_t shift : {0, 1}) {
      for (int c = first; c < std::min(channels, first + together); ++c) {
        for (std::size_t n = 0; n < nodes_.size() && (shift == 0 || together > 1); ++n)
          walks[n] = Walk(nodes_[n], false, c, channels);
        add(c, shift);
      }
      phase.push_back(TakeChannel(0.5 / channels));
    }
  }
  return phase;
}

Traffic TrafficRouter::Route(std::string_view algorithm, Collective collective,
                             std::span<const int64_t> members) {
  ORRERY_CHECK(members.size() >= 2, "{} members", members.size());
  const Algorithm* found = FindAlgorithm(algorithm);
  if (!std::ranges::equal(group_, members)) {
    known_.clear();
    group_.assign(members.begin(), members.end());
  }
  for (const Known& known : known_) {
    if (known.algorithm == found && known.collective == collective) return known.traffic;
  }
  GroupRoutes routes(members, &state_);
  if (found == nullptr || !found->Serves(collective, routes.shape())) {
    throw InputError(
        fmt::format("algorithm '{}' cannot run {} among {} ranks on {} nodes", algorithm,
                    Name(collective), members.size(), routes.nodes().size()),
        SuggestName(algorithm, AlgorithmNames()));
  }
  Traffic traffic = found->Route(collective, &routes);
  if (UsesIn(traffic) <= kMostUsesKept) known_.push_back({found, collective, traffic});
  return traffic;
}

}  // namespace orrery::net
