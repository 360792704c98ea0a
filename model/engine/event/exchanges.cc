// SPDX-License-Identifier: Apache-2.0
// Counts arrivals; the last one starts the exchange.
#include "model/engine/event/exchanges.h"

#include <fmt/format.h>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery::sim {

std::size_t Exchanges::Current(int32_t m) const {
  return At(state_.table.communicators[At(m)].first_exchange + state_.rendezvous[At(m)].message);
}

void Exchanges::Start(uint32_t r, int32_t id, const Task& task) {
  const double late = state_.Earliest(r, task) - state_.Now();
  if (late <= 0) return Arrive(r, id);
  state_.network.After(Seconds(late), [this, r, id] {
    Arrive(r, id);
    state_.drain();
  });
}

void Exchanges::Arrive(uint32_t r, int32_t id) {
  const Task& task = state_.TaskOf(r, id);
  const int32_t m = state_.CommunicatorOf(r, task);
  ORRERY_CHECK(m >= 0, "rank {} is no member of line {}", state_.table.ranks[r], task.line);
  if (state_.across != nullptr &&
      (*state_.across)[At(m)] != 0) {  // when all parts have come as far
    state_.network.Pause();
    return state_.network.After(Seconds(0), [this, r, id] {
      Arrive(r, id);
      state_.drain();
    });
  }
  state_.Note(r, id, &TaskSpan::start);
  const Communicator& communicator = state_.table.communicators[At(m)];
  Rendezvous& rendezvous = state_.rendezvous[At(m)];
  if (rendezvous.arrived == 0) rendezvous.message = task.message;
  state_.arrivals[At(communicator.first_arrival + rendezvous.arrived)] = {r, id};
  if (task.message != rendezvous.message) Disagree(communicator, r, id);
  if (++rendezvous.arrived == communicator.needed) Queue(m);
}

void Exchanges::Disagree(const Communicator& communicator, uint32_t r, int32_t id) const {
  const Arrival& first = state_.arrivals[At(communicator.first_arrival)];
  throw InputError(
      fmt::format("rank {} ({}) meets rank {} ({}) with another kind or size of message",
                  state_.table.ranks[first.rank], state_.Where(first.rank, first.task),
                  state_.table.ranks[r], state_.Where(r, id)));
}

void Exchanges::CountAll(int32_t m, int change) {
  const Communicator& communicator = state_.table.communicators[At(m)];
  const std::size_t exchange = Current(m);
  for (int32_t i = 0; i < communicator.needed; ++i) {
    const Arrival& arrival = state_.arrivals[At(communicator.first_arrival + i)];
    clock_.CountExchange(arrival.rank, exchange, change);
  }
}

void Exchanges::Queue(int32_t m) {
  const Communicator& communicator = state_.table.communicators[At(m)];
  if (communicator.queue < 0 || state_.table.exchanges[Current(m)].route < 0) return Begin(m);
  std::vector<int32_t>& queue = state_.queued[At(communicator.queue)];
  queue.push_back(m);
  if (queue.size() == 1) Begin(m);
}

void Exchanges::Begin(int32_t m) {
  const Communicator& communicator = state_.table.communicators[At(m)];
  const Exchange& exchange = state_.table.exchanges[Current(m)];
  for (int32_t i = 0; state_.timeline != nullptr && i < communicator.needed; ++i) {
    const Arrival& arrival = state_.arrivals[At(communicator.first_arrival + i)];
    state_.Note(arrival.rank, arrival.task, &TaskSpan::met);
  }
  if (exchange.route < 0) return End(m);
  CountAll(m, 1);
  const Route& route = state_.table.routes[At(exchange.route)];
  state_.rendezvous[At(m)].phase = 0;
  if (route.alone >= 0) {
    const double awaited = 1.0 - exchange.hidden;
    timers_.Add({m}, awaited * (exchange.latency + route.alone * exchange.bytes));
  } else {
    const double latency = (1.0 - exchange.hidden) * exchange.latency;
    state_.network.After(Seconds(latency), [this, m] { StartPhase(m); });
  }
}

void Exchanges::StartPhase(int32_t m) {
  Rendezvous& rendezvous = state_.rendezvous[At(m)];
  const Exchange& exchange = state_.table.exchanges[Current(m)];
  const auto& jobs = state_.table.routes[At(exchange.route)].phases[At(rendezvous.phase)];
  rendezvous.jobs = static_cast<int32_t>(jobs.size());
  const double bytes = (1.0 - exchange.hidden) * exchange.bytes;
  for (const Route::Job& job : jobs)
    state_.network.Start(job.path, Bytes(job.bytes * bytes), [this, m] { EndJob(m); });
}

void Exchanges::EndJob(int32_t m) {
  Rendezvous& rendezvous = state_.rendezvous[At(m)];
  if (--rendezvous.jobs > 0) return;
  const Route& route = state_.table.routes[At(state_.table.exchanges[Current(m)].route)];
  if (At(++rendezvous.phase) < route.phases.size()) return StartPhase(m);
  Finish(m);
  state_.drain();
}

// Leaves the members' tasks to the next drain.
void Exchanges::Finish(int32_t m) {
  const std::size_t exchange = Current(m);
  if (state_.table.exchanges[exchange].hidden > 0) {
    tails_.Start(state_.table.communicators[At(m)], exchange);
  } else {
    CountAll(m, -1);
  }
  End(m);
  const int32_t in_queue = state_.table.communicators[At(m)].queue;
  if (in_queue < 0) return;
  std::vector<int32_t>& queue = state_.queued[At(in_queue)];
  queue.erase(queue.begin());
  if (!queue.empty()) Begin(queue.front());
}

void Exchanges::End(int32_t m) {
  const Communicator& communicator = state_.table.communicators[At(m)];
  state_.rendezvous[At(m)].arrived = 0;
  for (int32_t i = 0; i < communicator.needed; ++i)
    state_.ended.push_back(state_.arrivals[At(communicator.first_arrival + i)]);
}

}  // namespace orrery::sim
