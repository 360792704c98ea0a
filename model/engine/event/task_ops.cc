// SPDX-License-Identifier: Apache-2.0
// Unfolds a stage again and deals its ops out to tasks.
#include "model/engine/event/task_ops.h"

#include <utility>

#include "model/base/check.h"
#include "model/engine/event/executor.h"
#include "model/engine/event/index.h"
#include "model/plan/ir/usage.h"

namespace orrery::sim {

TaskOps::TaskOps(const ir::Plan& plan, const PlanTasks& tasks, const Pricer& pricer,
                 std::size_t stage)
    : plan_(plan),
      program_(plan.programs[stage]),
      layout_(ir::ComputeLayout(plan, program_)),
      holding_(pricer.ops.Holds()) {
  std::vector<std::vector<ir::Instance>> streams(tasks.streams);
  std::vector<ir::Instance> senders;  // of other parts, in order of their tasks
  const std::vector<Task>& own = tasks.stages[stage].tasks;
  std::vector<ir::Instance> unfolded = ir::Unfold(plan, program_, layout_);
  for (ir::Instance& at : unfolded) at.waits = {};
  for (const Task& task : own) {
    if (task.other_part()) senders.push_back(unfolded[At(task.first)]);
  }
  for (ir::Instance& at : unfolded) streams[OpOf(at).stream].push_back(std::move(at));
  std::vector<std::size_t> next(tasks.streams, 0);
  std::size_t next_sender = 0;
  for (const Task& task : own) {
    first_.push_back(instances_.size());
    other_part_.push_back(task.other_part());
    if (task.other_part()) instances_.push_back(senders[next_sender++]);
    std::vector<ir::Instance>& stream = streams[task.stream];
    for (int32_t i = 0; i < task.ops; ++i) {
      ORRERY_CHECK(next[task.stream] < stream.size(), "stage {} stream {}", stage, task.stream);
      instances_.push_back(std::move(stream[next[task.stream]++]));
    }
  }
  first_.push_back(instances_.size());
  MeasureShares(pricer, plan.micro_batches > 1);
}

// Shapes do not depend on the micro-batch: one measurement per op of a block.
void TaskOps::MeasureShares(const Pricer& pricer, bool accumulates) {
  std::vector<std::vector<double>> known(program_.blocks.size());
  for (std::size_t b = 0; b < known.size(); ++b) {
    for (const ir::Op& op : program_.blocks[b].ops)
      known[b].push_back(pricer.ops.Price(plan_, program_, op, accumulates).device);
  }
  end_share_.resize(instances_.size());
  for (std::size_t t = 0; t + 1 < first_.size(); ++t) {
    double total = 0;
    for (std::size_t i = first_[t]; i < first_[t + 1]; ++i)
      end_share_[i] = total += known[At(instances_[i].block)][At(instances_[i].op)];
    for (std::size_t i = first_[t]; i < first_[t + 1]; ++i) {
      const bool last = i + 1 == first_[t + 1];
      end_share_[i] = last ? 1 : total > 0 ? end_share_[i] / total : 0;
    }
  }
}

std::span<const ir::Instance> TaskOps::Of(int32_t task) const {
  const std::size_t first = first_[At(task)];
  return {instances_.data() + first, first_[At(task) + 1] - first};
}

const ir::Op& TaskOps::OpOf(const ir::Instance& at) const {
  return program_.blocks[At(at.block)].ops[At(at.op)];
}

double TaskOps::EndShare(int32_t task, std::size_t i) const {
  return end_share_[first_[At(task)] + i];
}

double TaskOps::Begin(int32_t task, const TaskSpan& span, std::size_t i) const {
  return i == 0 ? span.start : End(task, span, i - 1);
}

double TaskOps::End(int32_t task, const TaskSpan& span, std::size_t i) const {
  const double share = EndShare(task, i);
  return share >= 1 ? span.end : span.start + (span.end - span.start) * share;
}

}  // namespace orrery::sim
