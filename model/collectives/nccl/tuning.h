// SPDX-License-Identifier: Apache-2.0
// NCCL's tuning model: latency and bandwidth that it assumes of every algorithm and protocol, and the
// choice for a size that follows. These are figures by which NCCL ranks; times of this twin come from
// measurements (../algorithm.h).
//
// Figures and rules of NCCL 2.28.9 (NVIDIA/nccl@dbc86fd0, src/graph/tuning.cc, connect.cc,
// enqueue.cc, transport/nvls.cc), written anew. Algorithm and protocol go by the release (releases.h and Since()); the search
// for channels, and how many of them and of their threads a message takes, are those of 2.28.9 for all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "model/collectives/nccl/search.h"
#include "model/collectives/nccl/setting.h"

namespace orrery::nccl {

enum class Operation { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
inline constexpr int kOperations = 5;

struct Rules;

// In the order in which NCCL compares: of equal times the first stays.
enum class Algorithm { kTree, kRing, kCollNetDirect, kCollNetChain, kNvls, kNvlsTree, kPat };
inline constexpr int kAlgorithms = 7;
enum class Protocol { kLl, kLl128, kSimple };
inline constexpr int kProtocols = 3;
// Of a table by one of these.
constexpr std::size_t Row(auto index) { return static_cast<std::size_t>(index); }

const char* Name(Operation operation);  // "all_reduce"
const char* Name(Algorithm algorithm);  // "nvls_tree"
const char* Name(Protocol protocol);    // "ll128"

struct Choice {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  int channels = 0;  // at most
  int threads = 0;   // of each channel's block
  double time = 0;   // seconds; NCCL's estimate
};

// What the search finds for the GPUs of a node; the same whatever the number of nodes, one excepted.
struct Graphs {
  Graph ring, tree, chain, direct, nvls;
  bool nvls_support = false;
  bool in_network = false;  // the network reduces
  bool has_switch = false;
};
Graphs FindGraphs(const NodeDescription& node, bool across);

// One communicator: `nodes` nodes that are alike, with the GPUs that the description lists.
class Communicator {
 public:
  Communicator(const NodeDescription& node, int nodes, std::shared_ptr<const Graphs> graphs,
               Release release = kOwnRelease);

  // nullopt: nothing can run it (one rank).
  std::optional<Choice> Choose(Operation operation, double bytes) const;

  struct Line {
    float latency = 0;    // microseconds
    float bandwidth = 0;  // GB/s; 0: may not be chosen
  };
  const Line& line(Operation operation, Algorithm algorithm, Protocol protocol) const {
    return lines_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(algorithm)]
                 [static_cast<std::size_t>(protocol)];
  }
  Release release() const { return release_; }
  int ranks() const { return ranks_; }
  int nodes() const { return nodes_; }
  int channels() const { return channels_; }
  int nvls_channels() const { return nvls_channels_; }
  const Graphs& graphs() const { return *graphs_; }
  const Graph& GraphOf(Algorithm algorithm) const;

 private:
  void CountChannels();
  void SetLines();
  float SwitchRate(Operation operation, Algorithm algorithm) const;
  float BusBandwidth(Operation operation, Algorithm algorithm, Protocol protocol) const;
  float Latency(Operation operation, Algorithm algorithm, Protocol protocol, int steps) const;
  float DirectBandwidth(Operation operation, float bus) const;
  float ShareOfBus(Operation operation, Algorithm algorithm, int steps) const;
  bool Since(int minor, int patch = 0) const { return release_ >= Release{2, minor, patch}; }
  bool Allowed(Operation operation, Algorithm algorithm) const;
  bool AllowedInSwitch(Operation operation) const;
  bool Allows128(Algorithm algorithm) const;
  bool GathersInNetwork() const;
  double TimeOf(Operation operation, Algorithm algorithm, Protocol protocol, double bytes) const;
  float RingPlateau(int64_t bytes) const;
  void CountThreads(double bytes, Choice* choice) const;

  int capability_ = 80;
  HostKind cpu_ = HostKind::kIntel;
  int nodes_ = 1, ranks_ = 1, local_ = 1;
  int channels_ = 1, nvls_channels_ = 0;
  int heads_ = 0;         // of CollNet
  int direct_heads_ = 0;  // of CollNet direct
  std::shared_ptr<const Graphs> graphs_;
  Release release_;
  const Rules& rules_;
  std::size_t generation_;  // row of the rules
  std::array<std::array<std::array<Line, kProtocols>, kAlgorithms>, kOperations> lines_{};
};

// Into the NVLink switch (transport/nvls.cc: NVLS_NCHANNELS_SM90, _SM100 and _SM100_NVL).
inline int SwitchChannels(int capability, int nodes) {
  constexpr int kBlackwell = 100;
  return capability < kBlackwell ? 16 : nodes > 1 ? 32 : 24;
}

}  // namespace orrery::nccl
