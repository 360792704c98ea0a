// SPDX-License-Identifier: Apache-2.0
// The executor: takes the head of each stream as soon as nothing holds it back.
#include "model/engine/event/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/diagnostics.h"
#include "model/engine/event/compute_clock.h"
#include "model/engine/event/deadlock.h"
#include "model/engine/event/exchanges.h"
#include "model/engine/event/parts.h"
#include "model/engine/event/step_state.h"

namespace orrery::sim {
namespace {

class Executor {
 public:
  Executor(const ir::Plan& plan, const PlanTasks& tasks, CommunicatorTable* table,
           const Perturbation& perturbation, Timeline* timeline)
      : state_(plan, tasks, table, timeline),
        clock_(&state_, perturbation),
        exchanges_(&state_, &clock_) {
    for (std::size_t r = 0; r < state_.ranks.size(); ++r) {
      const std::size_t of_plan = At(table->ranks[r]);
      if (of_plan < perturbation.slowdown.size())
        state_.ranks[r].faster = std::min(1.0, perturbation.slowdown[of_plan]);
    }
    state_.drain = [this] { Drain(); };
  }

  StepResult Run(const Parts& parts) {
    const bool split = parts.ranks.size() > 1 && state_.network.Split(parts.ranks.size());
    if (split) state_.across = &parts.across;
    for (std::size_t part = 0; part < parts.ranks.size(); ++part) {
      if (split) Select(part);
      for (const uint32_t r : parts.ranks[part]) Begin(r);
      if (split) state_.network.Run();
    }
    if (split) Join();
    state_.network.Run();
    CheckAllDone(state_);
    return Result();
  }

 private:
  void Begin(uint32_t r) {
    for (std::size_t s = 0; s < state_.stream_count; ++s) TryHead(r, static_cast<uint32_t>(s));
    Drain();
  }

  void Select(std::size_t part) {
    state_.network.Select(part);
    CloseTimers();
  }

  void Join() {
    state_.network.Join();
    state_.across = nullptr;
    CloseTimers();
  }

  // A timer belongs to the part in which it was set.
  void CloseTimers() {
    clock_.CloseTimers();
    exchanges_.CloseTimers();
  }

  // Starts the head of a stream if nothing holds it back.
  void TryHead(uint32_t r, uint32_t s) {
    const RankState& rank = state_.ranks[r];
    StreamState& stream = state_.StreamOf(r, s);
    const std::vector<int32_t>& order = rank.stage->on_stream[s];
    if (stream.busy || stream.head >= order.size()) return;
    const int32_t id = order[stream.head];
    if (state_.waits[rank.first_wait + At(id)] > 0) return;
    const Task& task = rank.stage->tasks[At(id)];
    if (task.epoch > rank.epoch && !task.syncs) return;  // not issued: the host waits
    stream.busy = true;
    if (task.syncs) OpenEpoch(r, task);
    if (state_.timeline != nullptr)
      (*state_.timeline)[r][At(id)].earliest = state_.Earliest(r, task);
    Start(r, id, task, &stream);
    if (task.syncs) TryOthers(r, s);
  }

  void Start(uint32_t r, int32_t id, const Task& task, StreamState* stream) {
    if (task.line >= 0) return exchanges_.Start(r, id, task);
    state_.Note(r, id, &TaskSpan::start);
    if (task.seconds <= 0 && state_.Earliest(r, task) <= state_.Now())
      return state_.ended.push_back({r, id});
    clock_.Start(r, id, task, stream);
  }

  void OpenEpoch(uint32_t r, const Task& task) {
    RankState& rank = state_.ranks[r];
    rank.epoch = task.epoch;
    state_.epochs[rank.first_epoch + At(task.epoch)] = state_.Now();
  }

  // What the host issues after its wait.
  void TryOthers(uint32_t r, uint32_t s) {
    for (uint32_t other = 0; other < state_.stream_count; ++other) {
      if (other != s) TryHead(r, other);
    }
  }

  // Lets go whatever waited for the tasks that have ended.
  void Drain() {
    while (!state_.ended.empty()) {
      const Arrival ended = state_.ended.back();
      state_.ended.pop_back();
      Release(ended.rank, ended.task);
    }
  }

  void Release(uint32_t r, int32_t id) {
    RankState& rank = state_.ranks[r];
    const Task& task = rank.stage->tasks[At(id)];
    StreamState& stream = state_.StreamOf(r, task.stream);
    ++stream.head;
    stream.busy = false;
    ++done_;
    rank.time.end = state_.Now();
    clock_.Ended(r);
    state_.Note(r, id, &TaskSpan::end);
    for (uint32_t i = task.successors; i < task.successors_end; ++i) {
      const int32_t next = rank.stage->successors[i];
      if (--state_.waits[rank.first_wait + At(next)] == 0)
        TryHead(r, rank.stage->tasks[At(next)].stream);
    }
    TryHead(r, task.stream);
  }

  StepResult Result() {
    StepResult result;
    result.ranks = state_.table.ranks;
    for (const RankState& rank : state_.ranks)
      result.seconds = std::max(result.seconds, rank.time.end);
    const std::vector<int32_t>& alike = state_.table.stands_for;
    for (std::size_t r = 0; r < state_.ranks.size(); ++r) {
      RankState& rank = state_.ranks[r];
      rank.time.idle += result.seconds - rank.changed;
      result.times.push_back(rank.time);
      result.ops += rank.stage->ops * (alike.empty() ? 1 : alike[r]);
    }
    result.tasks = done_;
    result.paths = state_.network.paths();
    return result;
  }

  StepState state_;
  ComputeClock clock_;
  Exchanges exchanges_;
  int64_t done_ = 0;
};

}  // namespace

StepResult Execute(const ir::Plan& plan, const PlanTasks& tasks, CommunicatorTable* communicators,
                   const Perturbation& perturbation, Timeline* timeline) {
  for (const double slowdown : perturbation.slowdown) {
    if (!(slowdown > 0))
      throw InputError(fmt::format("a rank cannot be {} times as slow", slowdown));
  }
  // Where ranks are in step, one timer serves all parts.
  const Parts parts = perturbation.jitter > 0 ? FindParts(plan, *communicators)
                                              : OnePart(communicators->ranks.size());
  return Executor(plan, tasks, communicators, perturbation, timeline).Run(parts);
}

}  // namespace orrery::sim
