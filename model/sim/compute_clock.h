// SPDX-License-Identifier: Apache-2.0
// How long compute tasks take, and the account of each rank's time.
#pragma once

#include "model/sim/due_timers.h"
#include "model/sim/step_state.h"

namespace orrery::sim {

class ComputeClock {
 public:
  // `state` and `perturbation` must outlive it.
  ComputeClock(StepState* state, double overlap_slowdown, const Perturbation& perturbation)
      : state_(*state),
        perturbation_(perturbation),
        slow_rate_(1.0 - overlap_slowdown),
        timers_(&state->network, this) {}

  void Start(uint32_t rank, int32_t id, const Task& task, StreamState* stream);
  // Books the time since the last change of a rank's activity, then changes it.
  void Count(uint32_t rank, int computing, int communicating);

 private:
  struct Due {
    uint32_t subject;  // rank and stream
    uint32_t version;
  };
  friend class DueTimers<Due, ComputeClock>;
  void OnDue(const Due& due);
  void AfterDue() { state_.drain(); }

  double Factor(uint32_t rank, int32_t id) const;
  double RateOf(const RankState& rank) const { return rank.communicating > 0 ? slow_rate_ : 1.0; }
  void ScheduleEnd(uint32_t rank, std::size_t s, StreamState* stream);
  void Retime(uint32_t rank, int communicating);

  StepState& state_;
  const Perturbation& perturbation_;
  const double slow_rate_;
  DueTimers<Due, ComputeClock> timers_;
};

}  // namespace orrery::sim
