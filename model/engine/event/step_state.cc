// SPDX-License-Identifier: Apache-2.0
// The state of all ranks before the step.
#include "model/engine/event/step_state.h"

namespace orrery::sim {

StepState::StepState(const ir::Plan& plan_in, const PlanTasks& tasks_in,
                     CommunicatorTable* table_in, Timeline* timeline_in)
    : plan(plan_in),
      tasks(tasks_in),
      table(*table_in),
      network(*table_in->network),
      stream_count(tasks_in.streams),
      timeline(timeline_in),
      ranks(table.ranks.size()),
      streams(table.ranks.size() * tasks_in.streams),
      rendezvous(table.communicators.size()),
      queued(At(table.queues)),
      arrivals(At(table.arrivals)) {
  std::size_t count = 0, epoch_count = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto stage = At(plan.mesh.Coords(table.ranks[r])[At(plan.mesh.program_axis)]);
    ranks[r].stage = &tasks.stages[stage];
    ranks[r].first_wait = count;
    ranks[r].left = ranks[r].stage->tasks.size();
    count += ranks[r].stage->tasks.size();
    ranks[r].first_epoch = epoch_count;
    epoch_count += At(ranks[r].stage->epochs);
  }
  epochs.assign(epoch_count, 0.0);
  waits.reserve(count);
  for (const RankState& rank : ranks) {
    for (const Task& task : rank.stage->tasks) waits.push_back(task.waits);
  }
  if (timeline == nullptr) return;
  timeline->clear();
  for (const RankState& rank : ranks) timeline->emplace_back(rank.stage->tasks.size());
}

std::string StepState::Where(uint32_t rank, int32_t task) const {
  const auto stage = At(ranks[rank].stage - tasks.stages.data());
  return Describe(plan, stage, ranks[rank].stage->tasks[At(task)]);
}

}  // namespace orrery::sim
