// SPDX-License-Identifier: Apache-2.0
// The part of an exchange that nobody waits for: it goes on beside what needs the rest, piece by
// piece, and still occupies its links.
#pragma once

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/due_timers.h"
#include "model/engine/event/step_state.h"

namespace orrery::sim {

class Tails {
 public:
  // Both must outlive it.
  Tails(StepState* state, ComputeClock* clock)
      : state_(*state), clock_(*clock), timers_(&state->network, this) {}

  // `Exchange::hidden` of an exchange of a communicator whose members have all arrived. They count as
  // communicating until it is over.
  void Start(const Communicator& communicator, std::size_t exchange);
  void CloseTimers() { timers_.Close(); }

 private:
  struct Tail {
    std::size_t exchange = 0;
    int32_t phase = 0;
    int32_t jobs = 0;  // of the phase, under way
    std::vector<uint32_t> ranks;
  };
  struct Due {
    int32_t tail;
  };
  friend class DueTimers<Due, Tails>;
  void OnDue(const Due& due) { Finish(due.tail); }
  void AfterDue() {}

  int32_t NewTail();
  void StartPhase(int32_t tail);
  void EndJob(int32_t tail);
  void Finish(int32_t tail);

  StepState& state_;
  ComputeClock& clock_;
  std::vector<Tail> tails_;
  std::vector<int32_t> free_;
  DueTimers<Due, Tails> timers_;
};

}  // namespace orrery::sim
