// SPDX-License-Identifier: Apache-2.0
// Channels of a communicator and the smallest of the assumed times (lines.cc).
#include "model/collectives/nccl/tuning.h"

#include <algorithm>
#include <bit>
#include <set>

#include "model/collectives/nccl/releases.h"

namespace orrery::nccl {
namespace {

constexpr int kWarp = 32;

// Of a tree's bandwidth, by protocol and size: powers of two from 64 bytes.
constexpr int kTreeSizes = 23;  // of NVLS trees one more, like the last
constexpr std::array<std::array<float, kTreeSizes>, kProtocols> kTreeShare = {
    {{1,   1,   1,   1,   .9F, .8F, .7F, .7F, .7F, .7F, .6F, .5F,
      .4F, .4F, .5F, .6F, .7F, .8F, .9F, 1,   1,   1,   1},
     {1,   1,   1,   1,   1,   .9F, .8F, .8F, .8F, .7F, .6F, .6F,
      .6F, .6F, .6F, .6F, .8F, .9F, .9F, .9F, .9F, 1,   1},
     {.9F, .9F, .9F, .9F, .9F, .9F, .9F, .8F, .7F, .6F, .6F, .5F,
      .5F, .5F, .5F, .6F, .7F, .8F, .7F, .7F, .8F, .9F, .9F}}};

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
                           std::shared_ptr<const Graphs> graphs, Release release)
    : capability_(node.capability),
      cpu_(node.cpu),
      nodes_(nodes),
      ranks_(nodes * static_cast<int>(node.gpus.size())),
      local_(static_cast<int>(node.gpus.size())),
      graphs_(std::move(graphs)),
      release_(release),
      rules_(RulesOf(release)),
      generation_(GenerationOf(capability_, release)) {
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
      return Since(22) ? graphs_->direct : graphs_->chain;  // one graph for both before
    case Algorithm::kCollNetChain:
      return graphs_->chain;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree:
      break;
  }
  // Before 2.18 NVLS has the channels of rings.
  return Since(18) ? graphs_->nvls : graphs_->ring;
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
  if (graphs_->nvls_support) nvls_channels_ = SwitchChannels(capability_, nodes_);
  const auto heads = [&](const Graph& graph) {
    std::set<int> distinct;
    for (int c = 0; c < graph.channels; ++c) distinct.insert(graph.order[Row(c * local_)]);
    return static_cast<int>(distinct.size());
  };
  direct_heads_ = heads(graphs_->direct);
  heads_ = graphs_->nvls_support ? heads(graphs_->nvls) : direct_heads_;
}

double Communicator::TimeOf(Operation operation, Algorithm algorithm, Protocol protocol,
                            double bytes) const {
  const Line& own = line(operation, algorithm, protocol);
  float latency = own.latency, bandwidth = own.bandwidth;
  if (bandwidth == 0) return -1;
  const auto whole = static_cast<int64_t>(bytes);
  const bool all_reduce = operation == Operation::kAllReduce;
  constexpr int kBlackwell = 100;
  const bool nvls_as_tree = algorithm == Algorithm::kNvlsTree && Since(29) &&
                            capability_ >= kBlackwell && cpu_ != HostKind::kArm;
  if ((algorithm == Algorithm::kTree || nvls_as_tree) && all_reduce && whole >= 64) {
    const int size = std::bit_width(static_cast<uint64_t>(whole / 64)) - 1;
    if (size < kTreeSizes + (nvls_as_tree ? 1 : 0))
      bandwidth *= kTreeShare[Row(protocol)][Row(std::min(size, kTreeSizes - 1))];
  }
  if (algorithm == Algorithm::kRing && protocol == Protocol::kSimple && nodes_ > 1 && all_reduce)
    latency *= RingPlateau(whole);
  return static_cast<float>(latency + static_cast<float>(whole) / (1000 * bandwidth));
}

// Of the latency of a ring over nodes, from a size on.
float Communicator::RingPlateau(int64_t bytes) const {
  constexpr int kAmpere = 80, kHopper = 90;
  if (Since(18))
    return bytes / (int64_t{channels_} * ranks_) < 64 ? 1 : capability_ < kAmpere ? 1.9F : 1.4F;
  constexpr int64_t kOfRank = 4096;
  if (bytes < kOfRank * ranks_) return 1;
  return Since(17) && capability_ >= kHopper ? 1.5F : 1.9F;
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
