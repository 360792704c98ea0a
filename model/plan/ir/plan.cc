// SPDX-License-Identifier: Apache-2.0
// Meshes, groups and element sizes: what follows from a plan's header.
#include "model/plan/ir/plan.h"

#include <algorithm>

namespace orrery::ir {
namespace {

// The coordinates that members of `group` take on `axis`, given one member's own coordinate.
std::vector<int> MemberCoords(const Mesh& mesh, const Group& group, int axis, int own) {
  if ((group.axes >> axis & 1) == 0) return {own};
  if (group.restricted_axis == axis) {
    std::vector<int> coords = group.allowed;
    std::sort(coords.begin(), coords.end());
    return coords;
  }
  std::vector<int> coords(mesh.axes[axis].size);
  for (int i = 0; i < mesh.axes[axis].size; ++i) coords[i] = i;
  return coords;
}

}  // namespace

int64_t DtypeBytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return 8;
    case Dtype::kF32:
    case Dtype::kTf32:
    case Dtype::kI32:
      return 4;
    case Dtype::kF16:
    case Dtype::kBf16:
      return 2;
    case Dtype::kU8:
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kE8m0:
    case Dtype::kE2m1x2:
      return 1;
  }
  return 0;
}

int64_t Mesh::ranks() const {
  int64_t product = 1;
  for (const MeshAxis& axis : axes) product *= axis.of != 0 ? 1 : axis.size;
  return product;
}

std::vector<int> Mesh::Coords(int64_t rank) const {
  std::vector<int> coords(axes.size());
  for (std::size_t place = plain(); place-- > 0;) {
    const std::size_t i = At(place);
    coords[i] = static_cast<int>(rank % axes[i].size);
    rank /= axes[i].size;
  }
  for (std::size_t i = plain(); i < axes.size(); ++i) {
    for (std::size_t a = 0; a < i; ++a) {
      if (axes[i].of >> a & 1) coords[i] = coords[i] * axes[a].size + coords[a];
    }
  }
  return coords;
}

int64_t Mesh::Rank(const std::vector<int>& coords) const {
  int64_t rank = 0;
  for (std::size_t place = 0; place < plain(); ++place)
    rank = rank * axes[At(place)].size + coords[At(place)];
  return rank;
}

std::size_t Mesh::At(std::size_t place) const { return order.empty() ? place : order[place]; }

int64_t Mesh::Stride(std::size_t axis) const {
  int64_t stride = 1;
  for (std::size_t place = plain(); At(--place) != axis;) stride *= axes[At(place)].size;
  return stride;
}

std::size_t Mesh::plain() const {
  std::size_t count = axes.size();
  while (count > 0 && axes[count - 1].of != 0) --count;
  return count;
}

uint16_t Mesh::Plain(uint16_t mask) const {
  for (std::size_t i = axes.size(); i-- > plain();) {
    if (mask >> i & 1) mask = static_cast<uint16_t>((mask & ~(1u << i)) | axes[i].of);
  }
  return mask;
}

int Mesh::AxisIndex(std::string_view name) const {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::vector<int64_t> GroupMembers(const Mesh& mesh, const Group& group, int64_t rank) {
  const std::vector<int> own = mesh.Coords(rank);
  if (group.restricted_axis >= 0 && std::find(group.allowed.begin(), group.allowed.end(),
                                              own[group.restricted_axis]) == group.allowed.end()) {
    return {};
  }
  std::vector<int64_t> members = {0};  // ranks over the axes seen so far, in rank order
  for (std::size_t place = 0; place < mesh.plain(); ++place) {
    const std::size_t axis = mesh.At(place);
    const std::vector<int> coords = MemberCoords(mesh, group, static_cast<int>(axis), own[axis]);
    std::vector<int64_t> next;
    next.reserve(members.size() * coords.size());
    for (const int64_t prefix : members) {
      for (const int coord : coords) next.push_back(prefix * mesh.axes[axis].size + coord);
    }
    members = std::move(next);
  }
  return members;
}

int64_t GroupSize(const Mesh& mesh, const Group& group) {
  int64_t size = 1;
  for (std::size_t axis = 0; axis < mesh.plain(); ++axis) {
    if ((group.axes >> axis & 1) == 0) continue;
    const bool restricted = group.restricted_axis == static_cast<int>(axis);
    size *= restricted ? static_cast<int64_t>(group.allowed.size()) : mesh.axes[axis].size;
  }
  return size;
}

}  // namespace orrery::ir
