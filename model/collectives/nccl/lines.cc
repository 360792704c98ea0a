// SPDX-License-Identifier: Apache-2.0
// Assumed latency and bandwidth of each operation, algorithm and protocol.
#include <algorithm>
#include <bit>
#include <limits>

#include "model/collectives/nccl/tuning.h"

namespace orrery::nccl {
namespace {

constexpr int kMostInSwitch = 32;  // GPUs whose gathering the switch serves
constexpr int kMostDirect = 8;     // GPUs of a node that CollNet serves

using ByProtocol = std::array<float, kProtocols>;
using ByAlgorithm = std::array<ByProtocol, kAlgorithms>;

// Microseconds, by algorithm (tree, ring, CollNet direct and chain, NVLS, NVLS tree, PAT) and protocol
// (LL, LL128, Simple).
constexpr ByAlgorithm kBase = {{{6.8F, 14.0F, 8.4F},
                                {6.6F, 14.0F, 8.4F},
                                {0, 0, 0},
                                {0, 0, 0},
                                {0, 0, 0},
                                {0, 0, 0},
                                {8.0F, 8.0F, 8.0F}}};
constexpr ByAlgorithm kHopNvLink = {{{.6F, 1.25F, 4.0F},
                                     {.6F, 1.9F, 3.4F},
                                     {0, 0, 3.7F},
                                     {0, 0, 2.8F},
                                     {0, 0, 25},
                                     {0, 0, 25},
                                     {0, 0, 4.0F}}};
constexpr ByAlgorithm kHopPcie = {{{1.0F, 1.9F, 4.0F},
                                   {1.0F, 2.5F, 5.7F},
                                   {0, 0, 3.7F},
                                   {0, 0, 2.8F},
                                   {0, 0, 0},
                                   {0, 0, 0},
                                   {0, 0, 4.0F}}};
constexpr ByAlgorithm kHopNetwork = {{{5.0F, 8.5F, 14},
                                      {2.7F, 4.0F, 14.0F},
                                      {0, 0, 31},
                                      {0, 0, 30},
                                      {0, 0, 18},
                                      {0, 0, 20.9F},
                                      {0, 0, 14}}};

// GB/s, by generation (Volta, Ampere, Hopper, Blackwell) and nodes (1, 2, more).
using ByNodes = std::array<double, 3>;
using ByGeneration = std::array<ByNodes, 4>;
// LL in all; over several nodes row 0 stands for Intel hosts and row 1 for AMD ones.
constexpr ByGeneration kMostLl = {
    {{39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}}};
// Per channel.
constexpr ByGeneration kMostRing128 = {
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr ByGeneration kMostTree128 = {
    {{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
constexpr ByGeneration kMostTree = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
constexpr ByGeneration kMostNvlsTree = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 43.8}}};
constexpr std::array<float, 4> kNvlsEfficiency = {0, 0, .85F, .74F};
// Of Blackwell in other releases: twice Hopper's before 2.28.
constexpr ByNodes kOldTree128 = {73.4, 73.4, 58.0};
constexpr ByNodes kOldTree = {77.4, 82.8, 72.0};
constexpr ByNodes kOldRing128 = {73.4, 73.4, 73.4};
constexpr ByNodes kNewRing128 = {40.0, 40.0, 40.0};
constexpr std::size_t kBlackwell = 3;
// Microseconds of a network hop of an NVLS tree before 2.28.9.
constexpr float kOldSwitchTreeHop = 14;

// Per channel, in the words of the tables above.
struct Limits {
  double ring128, tree128, tree;
};
Limits LimitsOf(Release release, std::size_t generation, std::size_t by_nodes) {
  Limits limits{kMostRing128[generation][by_nodes], kMostTree128[generation][by_nodes],
                kMostTree[generation][by_nodes]};
  if (generation != kBlackwell) return limits;
  if (release < Release::k2_28)
    limits = {kOldRing128[by_nodes], kOldTree128[by_nodes], kOldTree[by_nodes]};
  if (release > Release::k2_28) limits.ring128 = kNewRing128[by_nodes];
  return limits;
}

std::size_t Generation(int capability) {
  if (capability >= 100) return 3;
  if (capability >= 90) return 2;
  return capability >= 80 ? 1 : 0;
}

bool Gathers(Operation operation) {
  return operation == Operation::kAllGather || operation == Operation::kReduceScatter;
}

// NCCL launches a network step in so many microseconds.
float NetworkStep(HostKind cpu) { return cpu == HostKind::kAmd ? 2.0F : 1.0F; }

}  // namespace

// Of one channel through NVLink's switches.
float Communicator::SwitchRate(Operation operation, Algorithm algorithm) const {
  const std::size_t generation = Generation(capability_);
  const Graph& graph = GraphOf(algorithm);
  const auto channels = static_cast<float>(graph.channels);
  const auto per_node = static_cast<float>(ranks_) / static_cast<float>(nodes_);
  const bool tree = algorithm == Algorithm::kNvlsTree, two = tree && nodes_ <= 2;
  if (release_ < Release::k2_28)
    return std::min(graph.inside, graph.across * (tree && !two ? 0.5F : 1.0F));
  float inside = graph.inside * kNvlsEfficiency[generation] * (channels - 1) / channels;
  inside *= operation == Operation::kAllReduce ? 2.0F : (per_node - 1) / per_node;
  const float rate = std::min(inside, graph.across * (two ? 2.0F : 1.0F));
  const std::size_t by_nodes = nodes_ <= 2 ? Row(nodes_ - 1) : 2;
  return tree ? std::min(rate, static_cast<float>(kMostNvlsTree[generation][by_nodes])) : rate;
}

float Communicator::BusBandwidth(Operation operation, Algorithm algorithm,
                                 Protocol protocol) const {
  const std::size_t generation = Generation(capability_);
  const std::size_t by_nodes = nodes_ <= 2 ? Row(nodes_ - 1) : 2;
  const std::size_t ll_row = nodes_ == 1 ? generation : cpu_ == HostKind::kAmd ? 1 : 0;
  const double most_ll = kMostLl[ll_row][by_nodes];
  const Graph& graph = GraphOf(algorithm);
  const auto channels = static_cast<float>(graph.channels);
  const auto per_node = static_cast<float>(ranks_) / static_cast<float>(nodes_);
  const bool collnet =
      algorithm == Algorithm::kCollNetDirect || algorithm == Algorithm::kCollNetChain;
  float rate = nodes_ <= 2 || collnet ? graph.inside : graph.across;
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    if (graph.channels < 2) return 0;
    rate = SwitchRate(operation, algorithm);
  }
  const Limits limits = LimitsOf(release_, generation, by_nodes);
  float bus = channels * rate;
  const auto at_most = [&](double share, double limit) {
    bus = static_cast<float>(std::min(bus * share, limit));
  };
  const double unlimited = std::numeric_limits<double>::max();
  switch (algorithm) {
    case Algorithm::kRing:
      if (protocol == Protocol::kLl) at_most(.5, most_ll);
      if (protocol == Protocol::kLl128) at_most(.92, graph.channels * limits.ring128);
      break;
    case Algorithm::kTree:
      if (operation == Operation::kAllReduce) at_most(.92, graph.channels * limits.tree);
      if (protocol == Protocol::kLl) at_most(1.0 / 3.8, most_ll);
      if (protocol == Protocol::kLl128)
        at_most(nodes_ == 1 ? 7.0 / 9.0 : 120.0 / 128.0, graph.channels * limits.tree128);
      if (graph.pattern == Pattern::kTree) at_most(.85, unlimited);
      break;
    case Algorithm::kPat:
      at_most(.75, unlimited);
      break;
    case Algorithm::kCollNetDirect:
      if (Gathers(operation)) {
        bus = per_node * std::min(graph.inside, graph.across * 0.9F);
      } else {
        // As fast as its NICs where every GPU has one.
        float gpus_per_nic = per_node / channels;
        gpus_per_nic -= (gpus_per_nic - 1) / 2;
        bus /= gpus_per_nic;
        if (capability_ >= 90) at_most(.85, unlimited);
      }
      break;
    default:
      break;
  }
  return bus;
}

// All-gather and reduce-scatter in the network need a NIC to every GPU.
bool Communicator::GathersInNetwork() const { return graphs_->in_network && local_ <= heads_; }

float Communicator::Latency(Operation operation, Algorithm algorithm, Protocol protocol,
                            int steps) const {
  const std::size_t a = Row(algorithm), p = Row(protocol);
  const Graph& graph = GraphOf(algorithm);
  const ByAlgorithm& inside_hops = graph.distance_inside == kNvLink ? kHopNvLink : kHopPcie;
  const ByAlgorithm& hops = nodes_ == 1 ? inside_hops : kHopNetwork;
  const int each = ranks_ / nodes_;
  const float base = kBase[a][p];
  float inside = inside_hops[a][p];
  const float across = each == 1 ? kHopNetwork[Row(Algorithm::kTree)][p] : kHopNetwork[a][p];
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
      if (nodes_ > 1)
        inside = std::max(inside, NetworkStep(cpu_) * (protocol == Protocol::kSimple ? 3 : 1));
      const int crossing =
          nodes_ == 1 ? 0 : (operation == Operation::kAllReduce ? 2 : 1) * (nodes_ - 1);
      return base + static_cast<float>(steps - crossing) * inside +
             static_cast<float>(crossing) * across;
    }
    case Algorithm::kTree:
      return base + 2 * (others * inside + depth * across);
    case Algorithm::kCollNetDirect:
      return base + 2 * (std::min(1.0F, others) * inside + others * 0.4F) + across;
    case Algorithm::kCollNetChain:
      return base + 2 * others * inside + across;
    case Algorithm::kNvls:
      return inside + (nodes_ > 1 ? across : 0);
    case Algorithm::kNvlsTree:
      return base + inside + 2 * depth * (release_ < Release::k2_28 ? kOldSwitchTreeHop : across);
    case Algorithm::kPat:
      break;
  }
  return base + depth * (across / 3.5F) + static_cast<float>(ranks_) * 2.8F;
}

bool Communicator::Allowed(Operation operation, Algorithm algorithm) const {
  switch (algorithm) {
    case Algorithm::kRing:
      return true;
    case Algorithm::kTree:
      return operation == Operation::kAllReduce;
    case Algorithm::kCollNetDirect:
      if (!graphs_->in_network || !graphs_->has_switch || local_ > kMostDirect) return false;
      return operation == Operation::kAllReduce || (Gathers(operation) && GathersInNetwork());
    case Algorithm::kCollNetChain:
      return graphs_->in_network && local_ <= kMostDirect && operation == Operation::kAllReduce;
    case Algorithm::kNvls:
      if (!graphs_->nvls_support || (nodes_ > 1 && !graphs_->in_network)) return false;
      if (operation == Operation::kAllReduce) return true;
      return Gathers(operation) && local_ <= kMostInSwitch && (nodes_ == 1 || GathersInNetwork());
    case Algorithm::kNvlsTree:
      return graphs_->nvls_support && nodes_ > 1 && operation == Operation::kAllReduce;
    case Algorithm::kPat:
      return Gathers(operation) && nodes_ == ranks_ && capability_ >= 60;
  }
  return false;
}

bool Communicator::Allows128(Algorithm algorithm) const {
  const Graph& graph = GraphOf(algorithm);
  const Distance farthest = capability_ >= 90 ? kOtherGpusNic : kManySwitches;
  return graph.distance_across <= farthest && graph.distance_inside <= kNvLinkRelay &&
         capability_ >= 70;
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
        float rate = BusBandwidth(operation, algorithm, protocol);
        if (algorithm == Algorithm::kRing || !Gathers(operation)) {
          const bool cyclic = algorithm == Algorithm::kRing || algorithm == Algorithm::kNvls ||
                              algorithm == Algorithm::kNvlsTree;
          constexpr float kOldSwitchShare = 5.0F / 6.0F;
          const bool old_switch = release_ < Release::k2_28 && algorithm != Algorithm::kRing;
          rate *= !cyclic      ? .5F
                  : old_switch ? kOldSwitchShare
                               : static_cast<float>(1.0 * ranks_ / steps);
        }
        lines_[Row(o)][Row(a)][Row(p)] = {Latency(operation, algorithm, protocol, steps), rate};
      }
    }
  }
}

}  // namespace orrery::nccl
