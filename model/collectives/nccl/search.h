// SPDX-License-Identifier: Apache-2.0
// NCCL's search for channels: how many rings, trees or switch reductions a node holds at which
// bandwidth each, and in which order of GPUs.
//
// Rules of NCCL 2.28.9 (NVIDIA/nccl@dbc86fd0, src/graph/search.cc), written anew: the order in which
// alternatives are tried and its limits on steps decide which of several answers comes out, so both
// are kept.
#pragma once

#include <array>
#include <vector>

#include "model/collectives/nccl/system.h"

namespace orrery::nccl {

enum class Pattern {
  kBalancedTree = 1,
  kSplitTree = 2,
  kTree = 3,
  kRing = 4,
  kNvls = 5,
  kDirect = 6
};
const char* Name(Pattern pattern);  // "balanced_tree"

// Some channels of one pattern.
struct Graph {
  Pattern pattern = Pattern::kRing;
  int cross_nic = 0;  // 2: pairs of rings that swap their NICs from node to node
  bool in_network = false;
  int least_channels = 1;
  int most_channels = 32;
  int channels = 0;
  float inside = 0;  // GB/s of each channel
  float across = 0;
  Distance distance_inside = kSameDevice;
  Distance distance_across = kOneSwitch;
  bool same_channels = true;
  int hops = 0;
  std::vector<int> order;                // GPUs by channel
  std::vector<std::array<int, 2>> nets;  // NIC into and out of the node, by channel
};

// `system` is left as it was.
void FindChannels(System* system, Graph* graph);

}  // namespace orrery::nccl
