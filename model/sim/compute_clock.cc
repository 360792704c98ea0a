// SPDX-License-Identifier: Apache-2.0
// Compute that runs slower beside communication, and late where the host is.
#include "model/sim/compute_clock.h"

#include <algorithm>
#include <cmath>

namespace orrery::sim {
namespace {

// Uniform in [-1, 1), the same for the same numbers (SplitMix64, Steele, Lea, Flood 2014).
double Noise(uint64_t seed, uint64_t rank, uint64_t task) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + rank * 0xD1B54A32D192ED03u + task * 0x8CB92BA72F3D8DD7u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
}

}  // namespace

double ComputeClock::Factor(uint32_t r, int32_t id) const {
  const auto rank = At(state_.table.ranks[r]);
  double factor = rank < perturbation_.slowdown.size() ? perturbation_.slowdown[rank] : 1.0;
  // A uniform variable on [-sqrt 3, sqrt 3) has the standard deviation 1.
  if (perturbation_.jitter > 0) {
    factor *= std::max(0.0, 1.0 + perturbation_.jitter * std::sqrt(3.0) *
                                      Noise(perturbation_.seed, rank, At(id)));
  }
  return factor;
}

void ComputeClock::Start(uint32_t r, int32_t id, const Task& task, StreamState* stream) {
  const double now = state_.Now();
  // Where the host is late, the device idles inside the task: that counts as its time.
  stream->left = std::max(task.seconds * Factor(r, id), task.earliest - now);
  stream->since = now;
  stream->computing = true;
  Count(r, 1, 0);
  ScheduleEnd(r, task.stream, stream);
}

void ComputeClock::ScheduleEnd(uint32_t r, std::size_t s, StreamState* stream) {
  timers_.Add({static_cast<uint32_t>(r * state_.stream_count + s), ++stream->version},
              stream->left / RateOf(state_.ranks[r]));
}

void ComputeClock::OnDue(const Due& due) {
  StreamState& stream = state_.streams[due.subject];
  if (stream.version != due.version) return;
  const auto r = static_cast<uint32_t>(due.subject / state_.stream_count);
  stream.computing = false;
  Count(r, -1, 0);
  const StageTasks& stage = *state_.ranks[r].stage;
  state_.ended.push_back({r, stage.on_stream[due.subject % state_.stream_count][stream.head]});
}

void ComputeClock::Count(uint32_t r, int computing, int communicating) {
  RankState& rank = state_.ranks[r];
  const double now = state_.Now();
  const double spent = now - rank.changed;
  rank.changed = now;
  double& account = rank.computing > 0
                        ? (rank.communicating > 0 ? rank.time.overlapped : rank.time.compute)
                        : (rank.communicating > 0 ? rank.time.exposed : rank.time.idle);
  account += spent;
  const bool slowed = rank.communicating > 0;
  if (slow_rate_ < 1.0 && communicating != 0 && rank.computing > 0 &&
      slowed != (rank.communicating + communicating > 0)) {
    Retime(r, communicating);
    return;
  }
  rank.computing += computing;
  rank.communicating += communicating;
}

// Compute that runs goes on at another rate.
void ComputeClock::Retime(uint32_t r, int communicating) {
  RankState& rank = state_.ranks[r];
  const double before = RateOf(rank);
  const double now = state_.Now();
  rank.communicating += communicating;
  for (std::size_t s = 0; s < state_.stream_count; ++s) {
    StreamState& stream = state_.StreamOf(r, s);
    if (!stream.computing) continue;
    stream.left = std::max(0.0, stream.left - (now - stream.since) * before);
    stream.since = now;
    ScheduleEnd(r, s, &stream);
  }
}

}  // namespace orrery::sim
