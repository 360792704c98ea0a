// SPDX-License-Identifier: Apache-2.0
// Channels, assumed latencies and bandwidths, and the smallest time of all.
#include "model/collectives/nccl/tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace orrery::nccl {
namespace {

constexpr int kMostInSwitch = 32;  // GPUs whose gathering the switch serves
constexpr int kMostDirect = 8;     // GPUs of a node that CollNet serves
constexpr int kWarp = 32;

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

// Of a tree's bandwidth, by protocol and size: powers of two from 64 bytes.
constexpr int kTreeSizes = 23;
constexpr std::array<std::array<float, kTreeSizes>, kProtocols> kTreeShare = {
    {{1,   1,   1,   1,   .9F, .8F, .7F, .7F, .7F, .7F, .6F, .5F,
      .4F, .4F, .5F, .6F, .7F, .8F, .9F, 1,   1,   1,   1},
     {1,   1,   1,   1,   1,   .9F, .8F, .8F, .8F, .7F, .6F, .6F,
      .6F, .6F, .6F, .6F, .8F, .9F, .9F, .9F, .9F, 1,   1},
     {.9F, .9F, .9F, .9F, .9F, .9F, .9F, .8F, .7F, .6F, .6F, .5F,
      .5F, .5F, .5F, .6F, .7F, .8F, .7F, .7F, .8F, .9F, .9F}}};

std::size_t Row(auto index) { return static_cast<std::size_t>(index); }

std::size_t Generation(int capability) {
  if (capability >= 100) return 3;
  if (capability >= 90) return 2;
  return capability >= 80 ? 1 : 0;
}

int FloorLog2(int64_t value) {
  int log = 0;
  while (value >= 2) {
    value /= 2;
    ++log;
  }
  return log;
}

bool Gathers(Operation operation) {
  return operation == Operation::kAllGather || operation == Operation::kReduceScatter;
}

// NCCL launches a network step in so many microseconds.
float NetworkStep(HostKind cpu) { return cpu == HostKind::kAmd ? 2.0F : 1.0F; }

}  // namespace

const char* Name(Operation operation) {
  constexpr std::array<const char*, kOperations> kNames = {"broadcast", "reduce", "all_gather",
                                                           "reduce_scatter", "all_reduce"};
  return kNames[Row(operation)];
}

const char* Name(Algorithm algorithm) {
  constexpr std::array<const char*, kAlgorithms> kNames = {
      "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
  return kNames[Row(algorithm)];
}

const char* Name(Protocol protocol) {
  constexpr std::array<const char*, kProtocols> kNames = {"ll", "ll128", "simple"};
  return kNames[Row(protocol)];
}

Communicator::Communicator(const NodeDescription& node, int nodes,
                           std::shared_ptr<const Graphs> graphs)
    : capability_(node.capability),
      cpu_(node.cpu),
      nodes_(nodes),
      ranks_(nodes * static_cast<int>(node.gpus.size())),
      local_(static_cast<int>(node.gpus.size())),
      graphs_(std::move(graphs)) {
  if (ranks_ < 2) return;
  CountChannels();
  SetLines();
}

const Graph& Communicator::GraphOf(Algorithm algorithm) const {
  switch (algorithm) {
    case Algorithm::kTree:
    case Algorithm::kPat:
      return graphs_->tree;
    case Algorithm::kRing:
      return graphs_->ring;
    case Algorithm::kCollNetDirect:
      return graphs_->direct;
    case Algorithm::kCollNetChain:
      return graphs_->chain;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree:
      break;
  }
  return graphs_->nvls;
}

Graphs FindGraphs(const NodeDescription& node, bool across) {
  System system(node, across);
  Graphs found;
  FindChannels(&system, &found.ring);
  Graph& tree = found.tree;
  tree.pattern = Pattern::kBalancedTree;
  tree.least_channels = tree.most_channels = found.ring.channels;
  FindChannels(&system, &tree);
  if (node.in_network && across) {
    found.chain.pattern = Pattern::kTree;
    found.chain.in_network = true;
    found.chain.least_channels = found.chain.most_channels = found.ring.channels;
    FindChannels(&system, &found.chain);
    found.direct.pattern = Pattern::kDirect;
    found.direct.in_network = true;
    found.direct.most_channels = kMostChannels;
    FindChannels(&system, &found.direct);
    found.in_network = found.chain.channels > 0;
  }
  found.has_switch = system.count(DeviceType::kNvSwitch) > 0;
  found.nvls.pattern = Pattern::kNvls;
  found.nvls.most_channels = kMostChannels;
  if (system.gpus() > 1 && node.capability >= 90 && found.has_switch) {
    FindChannels(&system, &found.nvls);
    found.nvls_support = found.nvls.channels > 0;
  }
  // Rings and trees keep the same channels.
  tree.channels = found.ring.channels = std::min(tree.channels, found.ring.channels);
  return found;
}

// How many blocks run: the search's channels twice, and more where few are fast.
void Communicator::CountChannels() {
  channels_ = std::min(kMostChannels, 2 * graphs_->ring.channels);
  if (graphs_->in_network && graphs_->chain.inside > graphs_->chain.across && ranks_ > nodes_)
    channels_ = std::min(kMostChannels, channels_ + channels_ / 2);
  constexpr int kEnough = 16;
  if (capability_ >= 90 && nodes_ > 1 && graphs_->ring.inside > 45.0F && channels_ < kEnough)
    channels_ *= 2;
  if (graphs_->nvls_support) nvls_channels_ = capability_ < 100 ? 16 : nodes_ > 1 ? 32 : 24;
  const auto heads = [&](const Graph& graph) {
    std::set<int> distinct;
    for (int c = 0; c < graph.channels; ++c) distinct.insert(graph.order[Row(c * local_)]);
    return static_cast<int>(distinct.size());
  };
  direct_heads_ = heads(graphs_->direct);
  heads_ = graphs_->nvls_support ? heads(graphs_->nvls) : direct_heads_;
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
    float inside = graph.inside * kNvlsEfficiency[generation] * (channels - 1) / channels;
    inside *= operation == Operation::kAllReduce ? 2.0F : (per_node - 1) / per_node;
    const bool two = nodes_ <= 2 && algorithm == Algorithm::kNvlsTree;
    rate = std::min(inside, graph.across * (two ? 2.0F : 1.0F));
    if (algorithm == Algorithm::kNvlsTree)
      rate = std::min(rate, static_cast<float>(kMostNvlsTree[generation][by_nodes]));
  }
  float bus = channels * rate;
  const auto at_most = [&](double share, double limit) {
    bus = static_cast<float>(std::min(bus * share, limit));
  };
  const double unlimited = std::numeric_limits<double>::max();
  switch (algorithm) {
    case Algorithm::kRing:
      if (protocol == Protocol::kLl) at_most(.5, most_ll);
      if (protocol == Protocol::kLl128)
        at_most(.92, graph.channels * kMostRing128[generation][by_nodes]);
      break;
    case Algorithm::kTree:
      if (operation == Operation::kAllReduce)
        at_most(.92, graph.channels * kMostTree[generation][by_nodes]);
      if (protocol == Protocol::kLl) at_most(1.0 / 3.8, most_ll);
      if (protocol == Protocol::kLl128)
        at_most(nodes_ == 1 ? 7.0 / 9.0 : 120.0 / 128.0,
                graph.channels * kMostTree128[generation][by_nodes]);
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
  const auto depth = static_cast<float>(FloorLog2(nodes_));
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
      return base + inside + 2 * depth * across;
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
          rate *= cyclic ? static_cast<float>(1.0 * ranks_ / steps) : .5F;
        }
        lines_[Row(o)][Row(a)][Row(p)] = {Latency(operation, algorithm, protocol, steps), rate};
      }
    }
  }
}

double Communicator::TimeOf(Operation operation, Algorithm algorithm, Protocol protocol,
                            double bytes) const {
  const Line& own = line(operation, algorithm, protocol);
  float latency = own.latency, bandwidth = own.bandwidth;
  if (bandwidth == 0) return -1;
  const auto whole = static_cast<int64_t>(bytes);
  const bool all_reduce = operation == Operation::kAllReduce;
  if (algorithm == Algorithm::kTree && all_reduce && whole >= 64) {
    const int size = FloorLog2(whole / 64);
    if (size < kTreeSizes) bandwidth *= kTreeShare[Row(protocol)][Row(size)];
  }
  if (algorithm == Algorithm::kRing && protocol == Protocol::kSimple && nodes_ > 1 && all_reduce &&
      whole / (int64_t{channels_} * ranks_) >= 64)
    latency *= capability_ < 80 ? 1.9F : 1.4F;
  return static_cast<float>(latency + static_cast<float>(whole) / (1000 * bandwidth));
}

std::optional<Choice> Communicator::Choose(Operation operation, double bytes) const {
  std::optional<Choice> best;
  for (int a = 0; a < kAlgorithms; ++a) {
    for (int p = 0; p < kProtocols; ++p) {
      const auto algorithm = static_cast<Algorithm>(a);
      const auto protocol = static_cast<Protocol>(p);
      const double time = TimeOf(operation, algorithm, protocol, bytes);
      if (time < 0 || (best && time >= best->time)) continue;
      best = Choice{algorithm, protocol, 0, 0, time};
    }
  }
  if (!best) return best;
  CountThreads(bytes, &*best);
  best->time *= 1e-6;
  return best;
}

// Small messages take fewer channels, then fewer threads.
void Communicator::CountThreads(double bytes, Choice* choice) const {
  const Algorithm algorithm = choice->algorithm;
  const Protocol protocol = choice->protocol;
  constexpr int kSimple = 512, kMost = 640, kLow = 256;
  constexpr float kSlowLinks = 12;  // GB/s of a whole node: PCIe 3
  int threads = kMost;
  int64_t threshold = protocol == Protocol::kSimple ? 64 : 8;
  switch (algorithm) {
    case Algorithm::kRing: {
      const float inside = graphs_->ring.inside * static_cast<float>(graphs_->ring.channels);
      if (protocol == Protocol::kSimple) threads = inside <= kSlowLinks ? kLow : kSimple;
      if (protocol == Protocol::kLl) {
        threads = kSimple;
        threshold *= ranks_;
      }
      break;
    }
    case Algorithm::kTree:
      if (protocol != Protocol::kLl128) threads = kSimple;
      break;
    case Algorithm::kCollNetDirect:
    case Algorithm::kCollNetChain:
      threshold = 512;
      break;
    case Algorithm::kPat:
      threads = 0;
      break;
    default:
      break;
  }
  const auto size = static_cast<int64_t>(bytes);
  int channels = channels_;
  const auto too_small = [&](int64_t heads) {
    return size < channels * threads * heads * threshold;
  };
  const bool in_switch = algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree;
  if (algorithm == Algorithm::kCollNetDirect) {
    constexpr int kFirst = 16;
    bool small = true;
    for (int level = kFirst; level >= 1 && small; level /= 2) {
      while ((small = too_small(direct_heads_)) && channels > level) {
        if (channels == level + level / 2) threshold /= 2;
        --channels;
      }
    }
  } else if (in_switch) {
    channels = nodes_ > 1 && algorithm == Algorithm::kNvls ? std::min(nvls_channels_, channels_)
                                                           : nvls_channels_;
  } else {
    while (too_small(1) && channels >= 2) --channels;
  }
  if (!in_switch && algorithm != Algorithm::kCollNetDirect) {
    while (too_small(1) && threads % 128 == 0) threads /= 2;
  }
  if (protocol == Protocol::kSimple && algorithm == Algorithm::kRing) threads += kWarp;
  if (algorithm == Algorithm::kTree || algorithm == Algorithm::kPat) threads = kMost;
  choice->channels = channels;
  choice->threads = std::max(threads, 3 * kWarp);
}

}  // namespace orrery::nccl
