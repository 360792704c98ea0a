// SPDX-License-Identifier: Apache-2.0
// How much longer narrow uplinks take than NICs for the messages of a line, all of its communicators at once: as the closed form
// has it of a placement (model/twin/placed_traffic.h), here for each communicator by the uplinks that it crosses.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "model/collectives/network.h"
#include "model/collectives/node_edges.h"
#include "model/engine/event/lines.h"
#include "model/engine/event/tasks.h"
#include "model/hardware/cluster.h"
#include "model/plan/ir/plan.h"

namespace orrery::sim {

// The rank `delta` further along an axis, which is a ring.
int64_t NeighbourOf(const ir::Mesh& mesh, int64_t rank, int axis, int delta);

class LineStretches {
 public:
  // What it is given must outlive it.
  LineStretches(const ir::Plan& plan, const PlanTasks& tasks, const Cluster& cluster);

  bool narrow() const { return !uplinks_.empty(); }  // else all are alike
  // Of one communicator, or of a pair. 0: nodes share scale-up domains, prices go by the summary of the cluster.
  UplinkStretch Of(int32_t line, std::span<const int64_t> members);

 private:
  struct ByUplinks {
    std::vector<double> ring, tree;
  };
  const ByUplinks& OfLine(int32_t line);
  std::vector<int> PlacesOf(std::span<const int64_t> members) const;
  std::vector<char> Senders(int32_t line) const;  // by stage

  const ir::Plan& plan_;
  const PlanTasks& tasks_;
  const Cluster& cluster_;
  std::vector<Uplinks> uplinks_;
  std::vector<int32_t> order_;  // nodes by place
  std::map<int32_t, ByUplinks> known_;
};

}  // namespace orrery::sim
