// SPDX-License-Identifier: Apache-2.0
// Routes the edges of rings, trees and direct exchanges.
#include "model/engine/network/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery::net {
namespace {

constexpr int kMostChannels = 64;

// The members of each node that has any, in order.
using Nodes = std::vector<std::vector<int64_t>>;

Nodes ByNode(const Cluster& cluster, std::span<const int64_t> members) {
  Nodes nodes;
  int64_t last = -1;
  for (const int64_t rank : members) {
    if (std::exchange(last, cluster.NodeOf(rank)) != cluster.NodeOf(rank)) nodes.emplace_back();
    nodes.back().push_back(rank);
  }
  return nodes;
}

// As many channels as spread the traffic over the NICs of the members.
int ChannelCount(const Cluster& cluster, const Nodes& nodes) {
  if (nodes.size() == 1) return 1;
  const int local = static_cast<int>(nodes.front().size());
  const int per_gpu =
      std::max(1, cluster.summary.nics_per_node / std::max(1, cluster.gpus_per_node));
  return std::min(kMostChannels, local * per_gpu);
}

std::vector<int> GpusOf(const Cluster& cluster, const std::vector<int64_t>& local) {
  std::vector<int> gpus;
  for (const int64_t rank : local) gpus.push_back(static_cast<int>(rank % cluster.gpus_per_node));
  return gpus;
}

std::vector<int64_t> Follow(const Order& order, const std::vector<int64_t>& local) {
  std::vector<int64_t> walk;
  for (const int place : order) walk.push_back(local[static_cast<std::size_t>(place)]);
  return walk;
}

// A channel's way through one node, from a member that turns with the channel, to all others.
std::vector<int64_t> Walk(const std::vector<int64_t>& local, bool backwards, int channel,
                          int channels, RoutingState* state) {
  std::vector<int64_t> walk(local);
  const NodeSpec& node = state->cluster.spec.node;
  const std::vector<Order>* chains = nullptr;
  if (!node.mesh.empty() && local.size() > 1)
    chains = &state->mesh.Chains(node, GpusOf(state->cluster, local), channels);
  if (chains != nullptr && !chains->empty()) {
    walk = Follow((*chains)[static_cast<std::size_t>(channel)], local);
  } else {
    const auto start = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(channel) % walk.size());
    std::ranges::rotate(walk, walk.begin() + start);
  }
  if (backwards) std::ranges::reverse(walk);
  return walk;
}

// `root`: a chain that begins there, without the edge that would close the ring; -1: a whole ring.
Channel AlongRing(const std::vector<int64_t>& ring, int64_t root, int turn, double share,
                  LinkCounter* counter) {
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const int64_t next = ring[(i + 1) % ring.size()];
    if (next != root) counter->AddEdge(ring[i], next, turn);
  }
  return {counter->Take(), share};
}

// All rings that the point-to-point links of one node hold side by side, with equal shares.
TrafficPhase MeshRingsOf(const std::vector<int64_t>& local, double share, RoutingState* state,
                         int64_t root) {
  TrafficPhase phase;
  const std::vector<Order>& rings =
      state->mesh.Rings(state->cluster.spec.node, GpusOf(state->cluster, local));
  for (const Order& ring : rings) {
    phase.push_back(AlongRing(Follow(ring, local), root, 0,
                              share / static_cast<double>(rings.size()), &state->counter));
  }
  return phase;
}

TrafficPhase Rings(const Nodes& nodes, double share, RoutingState* state, int64_t root = -1) {
  const Cluster& cluster = state->cluster;
  TrafficPhase phase;
  if (nodes.size() == 1 && !cluster.spec.node.mesh.empty())
    phase = MeshRingsOf(nodes.front(), share, state, root);
  if (!phase.empty()) return phase;
  const int channels = ChannelCount(cluster, nodes);
  const int local = static_cast<int>(nodes.front().size());
  std::vector<int64_t> ring;
  for (int c = 0; c < channels; ++c) {
    const int turn = nodes.size() > 1 ? c / local : c;  // a GPU's further NICs come after all GPUs
    ring.clear();
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const std::vector<int64_t> walk = Walk(nodes[n], n % 2 == 1, c, channels, state);
      ring.insert(ring.end(), walk.begin(), walk.end());
    }
    phase.push_back(AlongRing(ring, root, turn, share / channels, &state->counter));
  }
  return phase;
}

TrafficPhase Append(TrafficPhase phase, TrafficPhase more) {
  for (Channel& channel : more) phase.push_back(std::move(channel));
  return phase;
}

// Parent of position p in 1..n of a balanced tree in which every other position is a leaf; 0: root.
int64_t TreeParent(int64_t p, int64_t n) {
  const int64_t step = p & -p;
  const int64_t up = (p ^ step) | (step << 1);
  return up <= n ? up : p ^ step;
}

// `in_switch`: the switch of a node adds up, so that each of its GPUs sends and receives everything
// once, as the edges of a ring through it do; without it a chain sends down what it sent up.
TrafficPhase Trees(const Nodes& nodes, bool in_switch, RoutingState* state) {
  TrafficPhase phase;
  LinkCounter* counter = &state->counter;
  const int channels = ChannelCount(state->cluster, nodes);
  const auto count = static_cast<int64_t>(nodes.size());
  for (int c = 0; c < channels; ++c) {
    const int turn = c / static_cast<int>(nodes.front().size());
    for (const int64_t shift : {0, 1}) {
      const auto both = [&](int64_t a, int64_t b) {
        counter->AddEdge(a, b, turn);
        counter->AddEdge(b, a, turn);
      };
      for (int64_t n = 0; n < count; ++n) {
        const std::vector<int64_t> chain =
            Walk(nodes[static_cast<std::size_t>(n)], false, c, channels, state);
        for (std::size_t i = 1; i < chain.size() && !in_switch; ++i) both(chain[i - 1], chain[i]);
        for (std::size_t i = 0; in_switch && i < chain.size(); ++i) {
          const int64_t next = chain[(i + 1) % chain.size()];
          if (next != chain[i]) counter->AddEdge(chain[i], next, turn);
        }
        const int64_t parent = TreeParent((n + shift) % count + 1, count);
        if (parent == 0) continue;
        const auto above = static_cast<std::size_t>((parent - 1 - shift + count) % count);
        both(chain.front(), Walk(nodes[above], false, c, channels, state).front());
      }
      phase.push_back({counter->Take(), 0.5 / channels});
    }
  }
  return phase;
}

TrafficPhase InsideNodes(const Nodes& nodes, double share, RoutingState* state) {
  TrafficPhase phase;
  for (const std::vector<int64_t>& local : nodes) {
    if (local.size() > 1) phase = Append(std::move(phase), Rings({local}, share, state));
  }
  return phase;
}

Traffic Hierarchical(Collective collective, const Nodes& nodes, RoutingState* state) {
  const std::size_t local = nodes.front().size();
  for (const auto& node : nodes) {
    if (node.size() != local)
      throw InputError("hierarchical collectives want equally many members on every node");
  }
  const double one_lap = WireFactor(Collective::kAllGather, static_cast<int>(local));
  const TrafficPhase inside = InsideNodes(nodes, one_lap, state);
  TrafficPhase between;
  for (std::size_t i = 0; i < local; ++i) {
    Nodes column;
    for (const auto& node : nodes) column.push_back({node[i]});
    const double share =
        WireFactor(collective, static_cast<int>(nodes.size())) / static_cast<double>(local);
    between = Append(std::move(between), Rings(column, share, state));
  }
  if (collective == Collective::kAllGather) return {between, inside};
  if (collective == Collective::kReduceScatter) return {inside, between};
  return {inside, between, inside};
}

TrafficPhase Direct(std::span<const int64_t> members, LinkCounter* counter) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = 0; j < members.size(); ++j) {
      if (i != j) counter->AddEdge(members[i], members[j], 0);
    }
  }
  return {{counter->Take(), 1.0 / static_cast<double>(members.size())}};
}

TrafficPhase SendRecv(const Cluster& cluster, std::span<const int64_t> members,
                      LinkCounter* counter) {
  TrafficPhase phase;
  const int channels = ChannelCount(cluster, {{members[0]}, {members[1]}});
  for (int c = 0; c < channels; ++c) {
    counter->AddEdge(members[0], members[1], c);
    phase.push_back({counter->Take(), 1.0 / channels});
  }
  return phase;
}

bool IsReduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kReduceScatter;
}

}  // namespace

Traffic TrafficRouter::Route(std::string_view algorithm, Collective collective,
                             std::span<const int64_t> members) {
  ORRERY_CHECK(members.size() >= 2, "{} members", members.size());
  const Nodes nodes = ByNode(state_.cluster, members);
  if ((algorithm == "ring" || algorithm == "nvls") && IsReduction(collective)) {
    return {Rings(nodes, WireFactor(collective, static_cast<int>(members.size())), &state_)};
  }
  if (algorithm == "ring" && collective == Collective::kBroadcast)
    return {Rings(nodes, 1.0, &state_, members.front())};
  if ((algorithm == "tree" || algorithm == "nvls-tree") && collective == Collective::kAllReduce &&
      nodes.size() > 1) {
    return {Trees(nodes, algorithm == "nvls-tree", &state_)};
  }
  if (algorithm == "hierarchical" && IsReduction(collective) && nodes.size() > 1) {
    return Hierarchical(collective, nodes, &state_);
  }
  if (algorithm == "direct" && collective == Collective::kAllToAll)
    return {Direct(members, &state_.counter)};
  if (algorithm == "send-recv" && collective == Collective::kSendRecv)
    return {SendRecv(state_.cluster, members, &state_.counter)};
  throw InputError(fmt::format("algorithm '{}' cannot run {} among {} ranks on {} nodes", algorithm,
                               Name(collective), members.size(), nodes.size()));
}

Traffic RouteCollective(std::string_view algorithm, Collective collective, const Cluster& cluster,
                        std::span<const int64_t> members) {
  return TrafficRouter(cluster).Route(algorithm, collective, members);
}

Seconds BottleneckTime(const Traffic& traffic, const Cluster& cluster, Bytes size) {
  std::vector<double> load(cluster.links.size());
  Seconds total;
  for (const TrafficPhase& phase : traffic) {
    std::ranges::fill(load, 0.0);
    for (const Channel& channel : phase) {
      for (const LinkUse& use : channel.uses) {
        load[static_cast<std::size_t>(use.link)] += use.weight * channel.share * size.value;
      }
    }
    Seconds longest;
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load[i] > 0) longest = std::max(longest, Bytes(load[i]) / cluster.links[i].capacity);
    }
    total += longest;
  }
  return total;
}

}  // namespace orrery::net
