// SPDX-License-Identifier: Apache-2.0
// Shapes of the communicators of a line, with those of the other ranks of the plan that send at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "model/collectives/group_shapes.h"
#include "model/engine/event/tasks.h"
#include "model/hardware/cluster.h"
#include "model/plan/ir/plan.h"

namespace orrery::sim {

// Plan, tasks and cluster must outlive it.
class LineShapes {
 public:
  LineShapes(const ir::Plan& plan, const PlanTasks& tasks, const Cluster& cluster)
      : plan_(plan), tasks_(tasks), cluster_(cluster) {}

  // `members`: of one communicator of the line.
  GroupShape Of(int32_t line, std::span<const int64_t> members);
  // Whether communicators of a line lie on nodes in different ways.
  bool Uneven(int32_t line) const;

 private:
  void AddGroups(const ir::Group& group, GroupShapes* shapes) const;
  std::vector<int64_t> DomainsOf(std::span<const int64_t> members) const;

  const ir::Plan& plan_;
  const PlanTasks& tasks_;
  const Cluster& cluster_;
  std::map<int32_t, GroupShapes> known_;  // by line
};

}  // namespace orrery::sim
