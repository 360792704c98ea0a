// SPDX-License-Identifier: Apache-2.0
// Counts ranks on nodes, and groups that leave them.
#include "model/collectives/group_shapes.h"

#include <algorithm>
#include <numeric>

namespace orrery {
namespace {

bool Fits(int64_t block, int64_t domain_gpus) {
  return block % domain_gpus == 0 || domain_gpus % block == 0;
}

}  // namespace

bool LieAlike(int64_t size, int64_t stride, int64_t domain_gpus) {
  return size == 1 || (Fits(stride, domain_gpus) && Fits(size * stride, domain_gpus));
}

void GroupShapes::Add(std::span<const int64_t> domains) {
  if (domains.empty() || domains.front() == domains.back()) return;
  int64_t before = -1;
  for (const int64_t domain : domains) {
    if (domain == before) continue;
    if (static_cast<std::size_t>(domain) >= leaving_.size())
      leaving_.resize(static_cast<std::size_t>(domain) + 1, 0);
    ++leaving_[static_cast<std::size_t>(domain)];
    before = domain;
  }
}

GroupShape GroupShapes::Of(std::span<const int64_t> domains) const {
  GroupShape shape;
  shape.ranks = static_cast<int>(domains.size());
  int here = 0, most = 0;
  int64_t before = -1;
  for (const int64_t domain : domains) {
    here = domain == before ? here + 1 : 1;
    before = domain;
    shape.ranks_per_node = std::max(shape.ranks_per_node, here);
    if (static_cast<std::size_t>(domain) < leaving_.size())
      most = std::max(most, leaving_[static_cast<std::size_t>(domain)]);
  }
  // Inside a node nothing is shared; the number is then that of ShapeOfAxis().
  shape.sharing = shape.nodes() > 1 && most > 0 ? most : domain_gpus_ / shape.ranks_per_node;
  shape.sharing = std::max(1, shape.sharing);
  return shape;
}

bool Slower(const GroupShape& a, const GroupShape& b) {
  if ((a.nodes() > 1) != (b.nodes() > 1)) return a.nodes() > 1;
  if (a.sharing != b.sharing) return a.sharing > b.sharing;
  return a.ranks_per_node < b.ranks_per_node;
}

GroupShape FastestOf(const GroupShape& a, const GroupShape& b) {
  return {a.ranks, std::max(a.ranks_per_node, b.ranks_per_node), std::min(a.sharing, b.sharing)};
}

NeighbourGroups::NeighbourGroups(int size, int domain_gpus, int64_t ranks) : size_(size) {
  const int64_t end = std::min(ranks / size * size, std::lcm<int64_t>(size, domain_gpus));
  GroupShapes shapes(domain_gpus);
  std::vector<int64_t> domains(static_cast<std::size_t>(size));
  for (const bool adds : {true, false}) {
    for (int64_t first = 0; first < end; first += size) {
      for (int64_t i = 0; i < size; ++i)
        domains[static_cast<std::size_t>(i)] = (first + i) / domain_gpus;
      if (adds) {
        shapes.Add(domains);
      } else {
        shapes_.push_back(shapes.Of(domains));
      }
    }
  }
}

GroupShape NeighbourGroups::Of(int64_t first) const {
  return shapes_[static_cast<std::size_t>(first / size_) % shapes_.size()];
}

std::vector<GroupShape> NeighbourGroups::Kinds() const {
  std::vector<GroupShape> kinds = shapes_;
  std::ranges::sort(kinds);
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  return kinds;
}

GroupShape SlowestOfAxis(int size, int inner, int domain_gpus, int64_t ranks) {
  if (LieAlike(size, inner, domain_gpus)) return ShapeOfAxis(size, inner, domain_gpus);
  const int64_t block = int64_t{1} * size * inner;
  // From there on groups lie as before.
  const int64_t end = std::min(ranks / block * block, std::lcm<int64_t>(block, domain_gpus));
  GroupShapes shapes(domain_gpus);
  GroupShape slowest;
  std::vector<int64_t> domains(static_cast<std::size_t>(size));
  for (const bool adds : {true, false}) {
    for (int64_t first = 0; first < end; first += block) {
      for (int64_t offset = 0; offset < inner; ++offset) {
        for (int64_t i = 0; i < size; ++i)
          domains[static_cast<std::size_t>(i)] = (first + offset + i * inner) / domain_gpus;
        if (adds) {
          shapes.Add(domains);
          continue;
        }
        const GroupShape shape = shapes.Of(domains);
        if (slowest.ranks == 1 || Slower(shape, slowest)) slowest = shape;
      }
    }
  }
  return slowest.ranks > 1 ? slowest : ShapeOfAxis(size, inner, domain_gpus);
}

}  // namespace orrery
