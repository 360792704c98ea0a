// SPDX-License-Identifier: Apache-2.0
// Shapes of groups that do not lie on all nodes in the same way: stages of 6 ranks on nodes of 8.
//
// A price knows regular groups (GroupShape). Of others it takes
//   ranks per node  the most that a node has, since a ring enters and leaves each node once
//   sharing         of the nodes that the group is on, the most groups of its kind that leave one: each takes the NICs of the node
//                   for what enters and leaves; a group that lies on one node takes none
// Where groups lie alike both are those of ShapeOfAxis().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/collectives/network.h"

namespace orrery {

// Whether all groups along an axis lie on nodes in the same way: neither they nor what is between neighbours begins inside a
// node that it does not fill a part of.
bool LieAlike(int64_t size, int64_t stride, int64_t domain_gpus);

// Groups of one kind that send at the same time. A domain is a node, or several that share a scale-up domain.
class GroupShapes {
 public:
  explicit GroupShapes(int domain_gpus) : domain_gpus_(domain_gpus) {}

  // `domains`: of each rank of a group; equal ones follow each other.
  void Add(std::span<const int64_t> domains);
  // Of a group that was added.
  GroupShape Of(std::span<const int64_t> domains) const;

 private:
  int domain_gpus_;
  std::vector<int> leaving_;  // by domain: groups that are on others, too
};

// Whether a message of group `a` takes longer than one of `b`, of as many ranks.
bool Slower(const GroupShape& a, const GroupShape& b);
// With the most ranks on a node and the fewest groups that share its NICs of both.
GroupShape FastestOf(const GroupShape& a, const GroupShape& b);

// Groups of so many neighbouring ranks that fill a cluster, by where they begin.
class NeighbourGroups {
 public:
  NeighbourGroups(int size, int domain_gpus, int64_t ranks);
  GroupShape Of(int64_t first) const;     // a multiple of the size
  std::vector<GroupShape> Kinds() const;  // each once

 private:
  std::vector<GroupShape> shapes_;  // from there on groups lie as before
  int size_;
};

// Of groups of neighbours along an axis that fill a cluster of `ranks` ranks, the slowest.
GroupShape SlowestOfAxis(int size, int inner, int domain_gpus, int64_t ranks);

}  // namespace orrery
