// SPDX-License-Identifier: Apache-2.0
// Rings and chains that share the point-to-point links of one node evenly.
//
// A ring that follows the numbers of the GPUs leaves most links of a mesh idle, and some GPUs have
// no link to the next one. Libraries lay several Hamiltonian cycles side by side, in both
// directions. Here they carry equal shares. Where cycles that have no link in common (rings.h), on
// the links as they are or counted twice or three times, leave some of them idle, longer lists are
// grown by multiplicative weights: every next cycle is the shortest one (Held, Karp 1962) when the
// length of a link grows exponentially with its load; then single cycles are taken out and laid
// anew as long as that helps. The shortest list is kept that comes within one per cent of the
// fastest.
#pragma once

#include <map>
#include <vector>

#include "model/hardware/spec.h"

namespace orrery::net {

using Order = std::vector<int>;  // all GPUs, in the order of a walk

// Parallel links from one GPU to another, row by row; the same both ways.
struct LinkTable {
  int gpus = 0;
  std::vector<int> count;
  int operator()(int from, int to) const {
    return count[static_cast<std::size_t>(from * gpus + to)];
  }
};

// Closed walks over links. Empty where there is none.
std::vector<Order> PackRings(const LinkTable& links);

// `count` open walks; walk number i starts at GPU i % gpus, and every GPU ends equally many of them
// when `count` is a multiple of `gpus`. Empty as above.
std::vector<Order> PackChains(const LinkTable& links, int count);

// The rate of these rings together, in links: their number over the largest load of one link.
double RateOfRings(const LinkTable& links, const std::vector<Order>& rings);

// Finds them once for every set of GPUs of a node.
class MeshRings {
 public:
  // `gpus`: of one node, two or more. Positions in `gpus`; empty without a mesh that has any.
  const std::vector<Order>& Rings(const NodeSpec& node, const std::vector<int>& gpus);
  const std::vector<Order>& Chains(const NodeSpec& node, const std::vector<int>& gpus, int count);

 private:
  std::map<std::pair<std::vector<int>, int>, std::vector<Order>> known_;  // count 0: rings
};

}  // namespace orrery::net
