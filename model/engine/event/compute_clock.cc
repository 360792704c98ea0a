// SPDX-License-Identifier: Apache-2.0
// Compute that runs slower beside communication, and late where the host is.
#include "model/engine/event/compute_clock.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/base/check.h"

namespace orrery::sim {
namespace {

constexpr double kIdle = -1;  // StreamState::left: the kernels have run, the host is late

// Uniform in [-1, 1), the same for the same numbers (SplitMix64, Steele, Lea, Flood 2014).
double Noise(uint64_t seed, uint64_t rank, uint64_t task) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + rank * 0xD1B54A32D192ED03u + task * 0x8CB92BA72F3D8DD7u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
}

}  // namespace

ComputeClock::ComputeClock(StepState* state, const Perturbation& perturbation)
    : state_(*state), perturbation_(perturbation), timers_(&state->network, this) {
  ClassifyExchanges();
  under_way_.assign(state_.ranks.size() * rates_.size(), 0);
}

void ComputeClock::ClassifyExchanges() {
  const std::vector<Exchange>& exchanges = state_.table.exchanges;
  const auto rate = [&](const Exchange& exchange) {
    const double slowdown = exchange.slowdown;
    ORRERY_CHECK(slowdown >= 0 && slowdown <= 1, "an exchange slows compute by {}", slowdown);
    return 1.0 - slowdown;
  };
  for (const Exchange& exchange : exchanges) {
    const double value = rate(exchange);
    if (!rates_.empty() && rates_.back() == value) continue;
    if (std::ranges::find(rates_, value) == rates_.end()) rates_.push_back(value);
  }
  std::ranges::sort(rates_);
  ORRERY_CHECK(rates_.size() <= std::numeric_limits<uint16_t>::max(), "{} rates", rates_.size());
  rate_of_.reserve(exchanges.size());
  for (const Exchange& exchange : exchanges) {
    const auto at = std::ranges::lower_bound(rates_, rate(exchange));
    rate_of_.push_back(static_cast<uint16_t>(at - rates_.begin()));
  }
}

double ComputeFactor(const Perturbation& perturbation, int64_t rank_of_plan, int32_t id,
                     const Task& task) {
  const auto rank = At(rank_of_plan);
  const bool slow = !task.offload && rank < perturbation.slowdown.size();
  double factor = slow ? perturbation.slowdown[rank] : 1.0;
  // A uniform variable on [-sqrt 3, sqrt 3) has the standard deviation 1.
  if (perturbation.jitter > 0) {
    factor *= std::max(
        0.0, 1.0 + perturbation.jitter * std::sqrt(3.0) * Noise(perturbation.seed, rank, At(id)));
  }
  return factor;
}

void ComputeClock::Start(uint32_t r, int32_t id, const Task& task, StreamState* stream) {
  const double now = state_.Now();
  const double factor = ComputeFactor(perturbation_, state_.table.ranks[r], id, task);
  stream->left = task.seconds * factor;
  stream->since = now;
  stream->computing = true;
  stream->offload = task.offload;
  if (!task.offload) {
    Book(&state_.ranks[r]);
    if (++state_.ranks[r].computing == 1) CountBusy(+1);
  }
  ScheduleEnd(r, task.stream, stream);
}

// Compute that stands still ends at no date yet.
void ComputeClock::ScheduleEnd(uint32_t r, std::size_t s, StreamState* stream) {
  const double rate = stream->offload ? 1.0 : state_.ranks[r].rate * share_;
  ++stream->version;
  if (rate <= 0 && stream->left > 0) return;
  timers_.Add({static_cast<uint32_t>(r * state_.stream_count + s), stream->version},
              stream->left > 0 ? stream->left / rate : 0.0);
}

void ComputeClock::OnDue(const Due& due) {
  StreamState& stream = state_.streams[due.subject];
  if (stream.version != due.version) return;
  const auto r = static_cast<uint32_t>(due.subject / state_.stream_count);
  const std::size_t s = due.subject % state_.stream_count;
  const StageTasks& stage = *state_.ranks[r].stage;
  const int32_t id = stage.on_stream[s][stream.head];
  // Where the host is late, the device idles inside the task; no message makes that longer.
  const double late = state_.Earliest(r, stage.tasks[At(id)]) - state_.Now();
  if (late > 0 && stream.left != kIdle) {
    stream.left = kIdle;
    ++stream.version;
    return timers_.Add({due.subject, stream.version}, late);
  }
  stream.computing = false;
  if (!stream.offload) {
    Book(&state_.ranks[r]);
    if (--state_.ranks[r].computing == 0) CountBusy(-1);
  }
  state_.ended.push_back({r, id});
}

void ComputeClock::Ended(uint32_t r) {
  RankState& rank = state_.ranks[r];
  if (rank.left == 1) Book(&rank);
  --rank.left;
}

void ComputeClock::Book(RankState* rank) {
  if (rank->left == 0) return;
  const double now = state_.Now();
  RankTime& time = rank->time;
  double& account = rank->computing > 0 ? (rank->communicating > 0 ? time.overlapped : time.compute)
                                        : (rank->communicating > 0 ? time.exposed : time.idle);
  account += now - rank->changed;
  rank->changed = now;
}

// The slowest of what is under way counts.
double ComputeClock::RateOf(uint32_t r) const {
  if (rates_.size() == 1) return state_.ranks[r].communicating > 0 ? rates_.front() : 1;
  const int32_t* count = under_way_.data() + r * rates_.size();
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    if (count[i] > 0) return rates_[i];
  }
  return 1;
}

void ComputeClock::CountExchange(uint32_t r, std::size_t exchange, int change) {
  RankState& rank = state_.ranks[r];
  Book(&rank);
  rank.communicating += change;
  if (rates_.size() > 1) under_way_[r * rates_.size() + rate_of_[exchange]] += change;
  const double before = rank.rate;
  rank.rate = RateOf(r);
  if (rank.rate != before && rank.computing > 0) Retime(r, before * share_);
}

double ComputeClock::Share() const {
  const double cores = state_.table.cores;
  return cores > 0 && busy_ > cores ? cores / busy_ : 1;
}

// All ranks that compute go on at another rate when they share the cores with more or fewer others.
void ComputeClock::CountBusy(int change) {
  if (state_.table.cores <= 0) return;
  busy_ += change;
  const double before = share_, after = Share();
  if (before == after) return;
  share_ = after;
  for (std::size_t r = 0; r < state_.ranks.size(); ++r) {
    if (state_.ranks[r].computing > 0)
      Retime(static_cast<uint32_t>(r), before * state_.ranks[r].rate);
  }
}

// Compute that runs goes on at another rate.
void ComputeClock::Retime(uint32_t r, double before) {
  const double now = state_.Now();
  for (std::size_t s = 0; s < state_.stream_count; ++s) {
    StreamState& stream = state_.StreamOf(r, s);
    if (!stream.computing || stream.offload || stream.left == kIdle) continue;
    stream.left = std::max(0.0, stream.left - (now - stream.since) * before);
    stream.since = now;
    ScheduleEnd(r, s, &stream);
  }
}

}  // namespace orrery::sim
