// SPDX-License-Identifier: Apache-2.0
// The ops of each task of a stage, and what part of the task's time each of them takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/engine/event/tasks.h"
#include "model/plan/ir/hazards.h"
#include "model/price/held.h"
#include "model/price/pricer.h"

namespace orrery::sim {

struct TaskSpan;

class TaskOps {
 public:
  // `plan` must outlive it.
  TaskOps(const ir::Plan& plan, const PlanTasks& tasks, const Pricer& pricer, std::size_t stage);

  const ir::Plan& plan() const { return plan_; }
  const ir::Program& program() const { return program_; }
  const ir::Layout& layout() const { return layout_; }
  std::size_t tasks() const { return other_part_.size(); }
  // As the software holds its buffers.
  const Holding& holding() const { return holding_; }
  bool OtherPart(int32_t task) const { return other_part_[static_cast<std::size_t>(task)] != 0; }

  // In order of issue. Of the other part of a message: the op that sends it.
  std::span<const ir::Instance> Of(int32_t task) const;
  const ir::Op& OpOf(const ir::Instance& at) const;
  // Of the i-th op of a task: when it ends, as a share of the task's time; 1 for the last one. Ops
  // share the time in proportion to their device times.
  double EndShare(int32_t task, std::size_t i) const;
  // Its dates in a task that ran; i = 0 begins with the task.
  double Begin(int32_t task, const TaskSpan& span, std::size_t i) const;
  double End(int32_t task, const TaskSpan& span, std::size_t i) const;

 private:
  void MeasureShares(const Pricer& pricer, bool accumulates);

  const ir::Plan& plan_;
  const ir::Program& program_;
  ir::Layout layout_;
  Holding holding_;
  std::vector<ir::Instance> instances_;  // by task
  std::vector<std::size_t> first_;       // by task, into instances_; one more at the end
  std::vector<double> end_share_;        // by instance
  std::vector<char> other_part_;         // by task
};

}  // namespace orrery::sim
