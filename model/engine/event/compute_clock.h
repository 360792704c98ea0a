// SPDX-License-Identifier: Apache-2.0
// How long compute tasks take, and the account of each rank's time.
//
// Where ranks share cores (CommunicatorTable::cores), n of them that compute at the same time run at
// min(1, cores / n) of their rate each.
#pragma once

#include "model/engine/event/due_timers.h"
#include "model/engine/event/step_state.h"

namespace orrery::sim {

// How many times as long as usual a compute task takes. Slow are kernels: copies and ops of the CPU are not.
double ComputeFactor(const Perturbation& perturbation, int64_t rank, int32_t id, const Task& task);

class ComputeClock {
 public:
  // `state` and `perturbation` must outlive it.
  ComputeClock(StepState* state, const Perturbation& perturbation);

  void Start(uint32_t rank, int32_t id, const Task& task, StreamState* stream);
  // A task of the rank has ended.
  void Ended(uint32_t rank);
  // An exchange, index into CommunicatorTable::exchanges, begins (+1) or ends (-1) on a rank.
  void CountExchange(uint32_t rank, std::size_t exchange, int change);
  void CloseTimers() { timers_.Close(); }

 private:
  struct Due {
    uint32_t subject;  // rank and stream
    uint32_t version;
  };
  friend class DueTimers<Due, ComputeClock>;
  void OnDue(const Due& due);
  void AfterDue() { state_.drain(); }

  void ClassifyExchanges();
  double RateOf(uint32_t rank) const;
  // Books the time since the last change of a rank's activity.
  void Book(RankState* rank);
  void ScheduleEnd(uint32_t rank, std::size_t s, StreamState* stream);
  void Retime(uint32_t rank, double before);
  double Share() const;
  void CountBusy(int change);  // ranks that compute

  StepState& state_;
  const Perturbation& perturbation_;
  std::vector<double> rates_;       // of compute beside an exchange: all that differ, ascending
  std::vector<uint16_t> rate_of_;   // by exchange, into rates_
  std::vector<int32_t> under_way_;  // exchanges, by rank and rate
  double busy_ = 0;                 // ranks that compute
  double share_ = 1;                // of a core that each of them has
  DueTimers<Due, ComputeClock> timers_;
};

}  // namespace orrery::sim
