// SPDX-License-Identifier: Apache-2.0
// Communication in a step: rendezvous, latency, then traffic phase by phase. Collectives of the same ranks run one
// at a time, in the order in which their last members arrive: NCCL runs those of a communicator so, and two that
// share all of their links would not end earlier together.
#pragma once

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/due_timers.h"
#include "model/engine/event/step_state.h"
#include "model/engine/event/tails.h"

namespace orrery::sim {

class Exchanges {
 public:
  // Both must outlive it.
  Exchanges(StepState* state, ComputeClock* clock)
      : state_(*state), clock_(*clock), tails_(state, clock), timers_(&state->network, this) {}

  // A task is the head of its stream: it arrives when the host has issued it.
  void Start(uint32_t rank, int32_t id, const Task& task);
  void CloseTimers() {
    timers_.Close();
    tails_.CloseTimers();
  }

 private:
  struct Due {
    int32_t communicator;
  };
  friend class DueTimers<Due, Exchanges>;
  void OnDue(const Due& due) { Finish(due.communicator); }
  void AfterDue() { state_.drain(); }

  std::size_t Current(int32_t communicator) const;  // into CommunicatorTable::exchanges
  void Arrive(uint32_t rank, int32_t id);
  [[noreturn]] void Disagree(const Communicator& communicator, uint32_t rank, int32_t id) const;
  void Queue(int32_t communicator);
  void Begin(int32_t communicator);
  void StartPhase(int32_t communicator);
  void EndJob(int32_t communicator);
  void Finish(int32_t communicator);
  void End(int32_t communicator);
  void CountAll(int32_t communicator, int change);

  StepState& state_;
  ComputeClock& clock_;
  Tails tails_;
  DueTimers<Due, Exchanges> timers_;
};

}  // namespace orrery::sim
