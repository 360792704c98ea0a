// SPDX-License-Identifier: Apache-2.0
// Lays the communicators of a line on nodes.
#include "model/engine/event/line_shapes.h"

#include <algorithm>

#include "model/engine/event/index.h"

namespace orrery::sim {

GroupShape LineShapes::Of(int32_t line, std::span<const int64_t> members) {
  const Line& key = tasks_.lines[At(line)].line;
  const int domain_gpus = cluster_.summary.domain_gpus();
  const auto [known, fresh] = known_.try_emplace(line, domain_gpus);
  if (fresh && Uneven(line)) AddGroups(plan_.groups[At(key.group)], &known->second);
  GroupShape shape = known->second.Of(DomainsOf(members));
  // All ranks of a stage that are on one node send at the same time.
  if (key.axis >= 0)
    shape.sharing =
        static_cast<int>(std::clamp<int64_t>(plan_.mesh.Stride(At(key.axis)), 1, domain_gpus));
  return shape;
}

bool LineShapes::Uneven(int32_t line) const {
  const Line& key = tasks_.lines[At(line)].line;
  if (key.axis >= 0) return false;
  const ir::Group& group = plan_.groups[At(key.group)];
  for (std::size_t axis = 0; axis < plan_.mesh.plain(); ++axis) {
    if ((group.axes >> axis & 1) != 0 &&
        !LieAlike(plan_.mesh.axes[axis].size, plan_.mesh.Stride(axis),
                  cluster_.summary.domain_gpus()))
      return true;
  }
  return false;
}

void LineShapes::AddGroups(const ir::Group& group, GroupShapes* shapes) const {
  std::vector<char> counted(At(plan_.mesh.ranks()), 0);
  for (int64_t rank = 0; rank < plan_.mesh.ranks(); ++rank) {
    if (counted[At(rank)]) continue;
    const std::vector<int64_t> members = ir::GroupMembers(plan_.mesh, group, rank);
    for (const int64_t member : members) counted[At(member)] = 1;
    shapes->Add(DomainsOf(members));
  }
}

std::vector<int64_t> LineShapes::DomainsOf(std::span<const int64_t> members) const {
  std::vector<int64_t> domains;
  domains.reserve(members.size());
  for (const int64_t rank : members) domains.push_back(cluster_.DomainOf(rank));
  return domains;
}

}  // namespace orrery::sim
