// SPDX-License-Identifier: Apache-2.0
// Plays what is hidden of an exchange.
#include "model/engine/event/tails.h"

namespace orrery::sim {

void Tails::Start(const Communicator& communicator, std::size_t exchange_index) {
  const int32_t t = NewTail();
  Tail& tail = tails_[At(t)];
  tail.exchange = exchange_index;
  tail.phase = 0;
  tail.ranks.clear();
  for (int32_t i = 0; i < communicator.needed; ++i)
    tail.ranks.push_back(state_.arrivals[At(communicator.first_arrival + i)].rank);
  const Exchange& exchange = state_.table.exchanges[exchange_index];
  const Route& route = state_.table.routes[At(exchange.route)];
  if (route.alone >= 0) {
    timers_.Add({t}, exchange.hidden * (exchange.latency + route.alone * exchange.bytes));
  } else {
    state_.network.After(Seconds(exchange.hidden * exchange.latency), [this, t] { StartPhase(t); });
  }
}

int32_t Tails::NewTail() {
  if (free_.empty()) {
    tails_.emplace_back();
    return static_cast<int32_t>(tails_.size()) - 1;
  }
  const int32_t tail = free_.back();
  free_.pop_back();
  return tail;
}

void Tails::StartPhase(int32_t t) {
  Tail& tail = tails_[At(t)];
  const Exchange& exchange = state_.table.exchanges[tail.exchange];
  const auto& jobs = state_.table.routes[At(exchange.route)].phases[At(tail.phase)];
  tail.jobs = static_cast<int32_t>(jobs.size());
  for (const Route::Job& job : jobs) {
    state_.network.Start(job.path, Bytes(job.bytes * exchange.hidden * exchange.bytes),
                         [this, t] { EndJob(t); });
  }
}

void Tails::EndJob(int32_t t) {
  Tail& tail = tails_[At(t)];
  if (--tail.jobs > 0) return;
  const Route& route = state_.table.routes[At(state_.table.exchanges[tail.exchange].route)];
  if (At(++tail.phase) < route.phases.size()) return StartPhase(t);
  Finish(t);
}

void Tails::Finish(int32_t t) {
  const Tail& tail = tails_[At(t)];
  for (const uint32_t rank : tail.ranks) clock_.CountExchange(rank, tail.exchange, -1);
  free_.push_back(t);
}

}  // namespace orrery::sim
