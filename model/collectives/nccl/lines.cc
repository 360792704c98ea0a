// SPDX-License-Identifier: Apache-2.0
// Assumed latency and bandwidth of each operation, algorithm and protocol.
#include <algorithm>
#include <bit>
#include <limits>

#include "model/collectives/nccl/releases.h"

namespace orrery::nccl {
namespace {

constexpr int kMostInSwitch = 32;  // GPUs whose gathering the switch serves
constexpr int kMostDirect = 8;     // GPUs of a node that CollNet serves

constexpr std::array<float, 4> kNvlsEfficiency = {0, 0, .85F, .74F};  // by generation, since 2.28

bool Gathers(Operation operation) {
  return operation == Operation::kAllGather || operation == Operation::kReduceScatter;
}

// NCCL launches a network step in so many microseconds.
float NetworkStep(HostKind cpu) { return cpu == HostKind::kAmd ? 2.0F : 1.0F; }

}  // namespace

// Of one channel through NVLink's switches.
float Communicator::SwitchRate(Operation operation, Algorithm algorithm) const {
  const Graph& graph = GraphOf(algorithm);
  const auto channels = static_cast<float>(graph.channels);
  const auto per_node = static_cast<float>(ranks_) / static_cast<float>(nodes_);
  const bool tree = algorithm == Algorithm::kNvlsTree, two = tree && nodes_ <= 2;
  if (!Since(19)) return nodes_ <= 2 ? graph.inside : graph.across;
  if (!Since(28)) {
    if (tree || !Gathers(operation) || !Since(27))
      return std::min(graph.inside, graph.across * (tree && !two ? 0.5F : 1.0F));
    return std::min(graph.inside * (per_node - 1) / per_node, graph.across * 0.9F);
  }
  float inside = graph.inside * kNvlsEfficiency[generation_] * (channels - 1) / channels;
  inside *= operation == Operation::kAllReduce ? 2.0F : (per_node - 1) / per_node;
  const float rate = std::min(inside, graph.across * (two ? 2.0F : 1.0F));
  const std::size_t by_nodes = nodes_ <= 2 ? Row(nodes_ - 1) : 2;
  return tree ? std::min(rate, static_cast<float>(rules_.nvls_tree[generation_][by_nodes])) : rate;
}

float Communicator::BusBandwidth(Operation operation, Algorithm algorithm,
                                 Protocol protocol) const {
  const std::size_t by_nodes = nodes_ <= 2 ? Row(nodes_ - 1) : 2;
  const std::size_t ll_row = nodes_ == 1 ? generation_ : cpu_ == HostKind::kAmd ? 1 : 0;
  const double most_ll = rules_.most_ll[ll_row][by_nodes];
  const Graph& graph = GraphOf(algorithm);
  const auto channels = static_cast<float>(graph.channels);
  const bool collnet =
      algorithm == Algorithm::kCollNetDirect || algorithm == Algorithm::kCollNetChain;
  float rate = nodes_ <= 2 || collnet ? graph.inside : graph.across;
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    if (Since(28) && graph.channels < 2) return 0;
    rate = SwitchRate(operation, algorithm);
  }
  float bus = channels * rate;
  const auto at_most = [&](double share, double limit) {
    bus = static_cast<float>(std::min(bus * share, limit));
  };
  const double unlimited = std::numeric_limits<double>::max();
  at_most(1, rules_.most_bus[generation_]);
  switch (algorithm) {
    case Algorithm::kRing: {
      const bool copies = operation == Operation::kBroadcast || Gathers(operation);
      if (protocol == Protocol::kLl)
        at_most(nodes_ == 1 && copies ? rules_.ring_ll_copies : rules_.ring_ll, most_ll);
      if (protocol == Protocol::kLl128)
        at_most(local_ == 1 ? rules_.ring128_alone : .92,
                graph.channels * rules_.ring128[generation_][by_nodes]);
      break;
    }
    case Algorithm::kTree:
      if (operation == Operation::kAllReduce)
        at_most(.92, graph.channels * rules_.tree[generation_][by_nodes]);
      if (protocol == Protocol::kLl) at_most(1.0 / 3.8, most_ll);
      if (protocol == Protocol::kLl128)
        at_most(nodes_ == 1 ? 7.0 / 9.0 : 120.0 / 128.0,
                graph.channels * rules_.tree128[generation_][by_nodes]);
      if (graph.pattern == Pattern::kTree) at_most(rules_.chained_tree, unlimited);
      break;
    case Algorithm::kPat:
      at_most(rules_.pat, unlimited);
      break;
    case Algorithm::kCollNetChain:
      at_most(rules_.chain, unlimited);
      break;
    case Algorithm::kCollNetDirect:
      return DirectBandwidth(operation, bus);
    default:
      break;
  }
  return bus;
}

// Of CollNet direct, whose channels have `bus`.
float Communicator::DirectBandwidth(Operation operation, float bus) const {
  const Graph& graph = GraphOf(Algorithm::kCollNetDirect);
  const auto per_node = static_cast<float>(ranks_) / static_cast<float>(nodes_);
  constexpr float kOfHopper = .85F;
  if (Gathers(operation)) {
    if (Since(27)) return per_node * std::min(graph.inside, graph.across * 0.9F);
    // Measured with one rank to a node and with eight, and a line between.
    const float eight = (per_node - 1) / 7;
    return per_node * graph.inside * (eight * kOfHopper + (1 - eight) * .95F);
  }
  if (!Since(14)) return bus;
  // As fast as its NICs where every GPU has one.
  float gpus_per_nic = per_node / static_cast<float>(graph.channels);
  gpus_per_nic -= (gpus_per_nic - 1) / 2;
  bus /= gpus_per_nic;
  return capability_ >= 90 && Since(18) ? static_cast<float>(bus * .85) : bus;
}

// All-gather and reduce-scatter in the network need a NIC to every GPU.
bool Communicator::GathersInNetwork() const { return graphs_->in_network && local_ <= heads_; }

float Communicator::Latency(Operation operation, Algorithm algorithm, Protocol protocol,
                            int steps) const {
  const std::size_t a = Row(algorithm), p = Row(protocol);
  const Graph& graph = GraphOf(algorithm);
  const ByAlgorithm& inside_hops =
      graph.distance_inside == kNvLink ? rules_.hop_nvlink : rules_.hop_pcie;
  const ByAlgorithm& hops = nodes_ == 1 ? inside_hops : rules_.hop_network;
  const int each = ranks_ / nodes_;
  const float base = rules_.base[a][p];
  float inside = inside_hops[a][p];
  if (nodes_ > 1 && protocol == Protocol::kLl) inside *= rules_.ll_hops;
  // A rank that is alone in its node waits for the network at every step.
  const std::size_t across_as = each == 1 && Since(23) ? Row(Algorithm::kTree) : a;
  const float across = rules_.hop_network[across_as][p];
  const auto others = static_cast<float>(each - 1);
  const auto depth = static_cast<float>(std::bit_width(static_cast<unsigned>(nodes_)) - 1);
  switch (algorithm) {
    case Algorithm::kRing: {
      if (!Gathers(operation) && operation != Operation::kAllReduce) {
        if (graph.same_channels) return base + hops[a][p];
        const float hop =
            protocol == Protocol::kSimple ? hops[Row(Algorithm::kTree)][p] : hops[a][p];
        return base + static_cast<float>(steps) * hop;
      }
      if (nodes_ > 1 && Since(18))
        inside = std::max(inside, NetworkStep(cpu_) * (protocol == Protocol::kSimple ? 3 : 1));
      const bool all_reduce = operation == Operation::kAllReduce;
      const bool closes = all_reduce && Since(12) && !Since(23);  // counts the ring's way back
      const int crossing = nodes_ == 1 ? 0 : (all_reduce ? 2 : 1) * (nodes_ - (closes ? 0 : 1));
      return base + static_cast<float>(steps - crossing) * inside +
             static_cast<float>(crossing) * across;
    }
    case Algorithm::kTree:
      return base + 2 * (others * inside + depth * across);
    case Algorithm::kCollNetDirect:
      return base + 2 * (std::min(1.0F, others) * inside + others * rules_.direct_peer) + across;
    case Algorithm::kCollNetChain:
      return base + 2 * others * inside + (Since(18) ? across : 0);
    case Algorithm::kNvls:
      return base + inside + (nodes_ > 1 ? across : 0);
    case Algorithm::kNvlsTree:
      return base + inside + 2 * (Since(19) ? depth : static_cast<float>(nodes_ - 1)) * across;
    case Algorithm::kPat:
      break;
  }
  return base + depth * (across / 3.5F) + static_cast<float>(ranks_) * 2.8F;
}

bool Communicator::Allowed(Operation operation, Algorithm algorithm) const {
  const bool all_reduce = operation == Operation::kAllReduce;
  switch (algorithm) {
    case Algorithm::kRing:
      return true;
    case Algorithm::kTree:
      return all_reduce;
    case Algorithm::kCollNetDirect:
      if (!graphs_->in_network || local_ > kMostDirect) return false;
      if (!graphs_->has_switch && Since(14)) return false;
      return all_reduce || (Gathers(operation) && GathersInNetwork() && Since(20));
    case Algorithm::kCollNetChain:
      return graphs_->in_network && local_ <= kMostDirect && all_reduce && Since(14);
    case Algorithm::kNvls:
      return graphs_->nvls_support && AllowedInSwitch(operation);
    case Algorithm::kNvlsTree:
      return graphs_->nvls_support && nodes_ > 1 && all_reduce && Since(18);
    case Algorithm::kPat:
      return Gathers(operation) && nodes_ == ranks_ && capability_ >= 60 && Since(23);
  }
  return false;
}

// NVLS: since 2.17 inside a node, since 2.18 with a network that reduces; 2.18 does not gather by it, and others before 2.27
// in one node alone.
bool Communicator::AllowedInSwitch(Operation operation) const {
  if (!Since(17)) return false;
  if (nodes_ > 1 && (!graphs_->in_network || !Since(18))) return false;
  if (operation == Operation::kAllReduce) return true;
  if (!Gathers(operation) || local_ > kMostInSwitch) return false;
  if (Since(18) && !Since(19)) return false;
  return nodes_ == 1 || (Since(27) && GathersInNetwork());
}

bool Communicator::Allows128(Algorithm algorithm) const {
  const Graph& graph = GraphOf(algorithm);
  const Distance farthest = capability_ >= 90 && Since(17) ? kOtherGpusNic : kManySwitches;
  const Distance farthest_inside = Since(18, 3) ? kNvLinkRelay : kNvLink;
  if (graph.distance_across > farthest || graph.distance_inside > farthest_inside) return false;
  if (Since(27)) return capability_ >= 70;
  // Chips on which it was tried.
  return capability_ == 70 || capability_ == 80 || (capability_ == 90 && Since(15)) ||
         ((capability_ == 100 || capability_ == 120) && Since(25));
}

// Bandwidth of the whole buffer over that of the bus.
float Communicator::ShareOfBus(Operation operation, Algorithm algorithm, int steps) const {
  const auto ring = static_cast<float>(1.0 * ranks_ / steps);
  if (algorithm == Algorithm::kRing) return ring;
  if (Gathers(operation) && (Since(23) || algorithm == Algorithm::kCollNetDirect)) return 1;
  const bool nvls = algorithm == Algorithm::kNvls;
  if (!nvls && algorithm != Algorithm::kNvlsTree) return .5F;
  if (Since(28)) return ring;
  if (!nvls && !Since(19))
    return .7F * static_cast<float>(nodes_) / static_cast<float>(2 * (nodes_ - 1));
  return Since(18, 3) ? 5.0F / 6.0F : .75F;
}

void Communicator::SetLines() {
  for (int o = 0; o < kOperations; ++o) {
    const auto operation = static_cast<Operation>(o);
    const int steps = operation == Operation::kAllReduce ? 2 * (ranks_ - 1)
                      : Gathers(operation)               ? ranks_ - 1
                                                         : ranks_;
    for (int a = 0; a < kAlgorithms; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      if (!Allowed(operation, algorithm)) continue;
      const bool ring_or_tree = algorithm == Algorithm::kRing || algorithm == Algorithm::kTree;
      for (int p = 0; p < kProtocols; ++p) {
        const auto protocol = static_cast<Protocol>(p);
        if (!ring_or_tree && protocol != Protocol::kSimple) continue;
        if (protocol == Protocol::kLl128 && !Allows128(algorithm)) continue;
        const float rate =
            BusBandwidth(operation, algorithm, protocol) * ShareOfBus(operation, algorithm, steps);
        lines_[Row(o)][Row(a)][Row(p)] = {Latency(operation, algorithm, protocol, steps), rate};
      }
    }
  }
}

}  // namespace orrery::nccl
