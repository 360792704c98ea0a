// SPDX-License-Identifier: Apache-2.0
// Figures by which releases of NCCL choose, as far as they differ.
#pragma once

#include <array>

#include "model/collectives/nccl/tuning.h"

namespace orrery::nccl {

// By algorithm (tree, ring, CollNet direct and chain, NVLS, NVLS tree, PAT) and protocol (LL, LL128, Simple).
using ByProtocol = std::array<float, kProtocols>;
using ByAlgorithm = std::array<ByProtocol, kAlgorithms>;
// By generation (Volta, Ampere, Hopper, Blackwell) and nodes (1, 2, more).
using ByNodes = std::array<double, 3>;
using ByGeneration = std::array<ByNodes, 4>;

struct Rules {
  // Microseconds: of a call, and of a hop.
  ByAlgorithm base, hop_nvlink, hop_pcie, hop_network;
  float ll_hops = 1;      // times the hop inside a node, of LL over several
  float direct_peer = 0;  // of each peer of CollNet direct
  // GB/s of LL in all; over several nodes row 0 stands for Intel hosts and row 1 for AMD ones.
  ByGeneration most_ll;
  // GB/s of a channel.
  ByGeneration ring128, tree128, tree, nvls_tree;
  std::array<double, 4> most_bus;  // GB/s of all channels, by generation
  // Shares of the channels' bandwidth.
  double ring_ll = 0.5;
  double ring_ll_copies = 0.5;  // inside a node, of what adds nothing
  double ring128_alone = 0.92;  // one rank to a node
  double chain = 1;             // CollNet chain
  double chained_tree = 1;      // chains inside the nodes
  double pat = 0;
};

const Rules& RulesOf(Release release);

// Row of a ByGeneration for a chip. Before 2.17 the data centers' chips alone are told apart from Volta, and before 2.25
// Blackwell is Hopper.
std::size_t GenerationOf(int capability, Release release);

}  // namespace orrery::nccl
