// SPDX-License-Identifier: Apache-2.0
// A simulated step with everything that it leaves behind.
#pragma once

#include <vector>

#include "model/engine/event/index.h"
#include "model/engine/event/task_ops.h"
#include "tests/sim/setting.h"

namespace orrery::sim {

class RecordedTest : public SimTest {
 protected:
  void Record(const Strategy& strategy) {
    UseRanks(strategy.ranks());
    Record(Build(strategy));
  }
  void Record(ir::Plan plan) {
    plan_ = std::move(plan);
    const Pricer pricer(Setting(), Precision::kBf16);
    tasks_ = MakeTasks(plan_, pricer);
    communicators_ = MakeCommunicators(plan_, tasks_, cluster_, net::WiresOf(cluster_),
                                       pricer.messages, communicator_options_);
    result_ = Execute(plan_, tasks_, &communicators_, perturbation_, &timeline_);
    ops_.clear();
    for (std::size_t stage = 0; stage < plan_.programs.size(); ++stage)
      ops_.emplace_back(plan_, tasks_, pricer, stage);
  }

  std::size_t StageOf(std::size_t rank_index) const {
    return At(plan_.mesh.Coords(result_.ranks[rank_index])[At(plan_.mesh.program_axis)]);
  }

  CommunicatorOptions communicator_options_;
  Perturbation perturbation_;
  ir::Plan plan_;
  PlanTasks tasks_;
  CommunicatorTable communicators_;
  Timeline timeline_;
  StepResult result_;
  std::vector<TaskOps> ops_;  // by stage
};

// Layouts that overlap, interleave and shard in different ways.
inline std::vector<Strategy> VariedLayouts() {
  std::vector<Strategy> layouts;
  for (const auto& [tp, pp, dp] :
       std::vector<std::array<int, 3>>{{1, 1, 16}, {8, 1, 2}, {2, 4, 2}, {1, 4, 4}, {4, 2, 4}}) {
    Strategy strategy;
    strategy.tp = tp, strategy.pp = pp, strategy.dp = dp;
    strategy.sequence_parallel = tp > 1;
    strategy.zero = pp == 1 ? 3 : 1;
    strategy.overlap_grad_reduce = strategy.overlap_param_gather = true;
    layouts.push_back(strategy);
  }
  layouts[2].vpp = 2, layouts[2].schedule = PipelineSchedule::kInterleaved;
  layouts[3].schedule = PipelineSchedule::kGpipe, layouts[3].zero = 0;
  layouts[3].recompute = Recompute::kFull;
  layouts[4].schedule = PipelineSchedule::kZeroBubble;
  return layouts;
}

}  // namespace orrery::sim
