// SPDX-License-Identifier: Apache-2.0
// Plays stops and recoveries.
#include "model/provision/failure_simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <vector>

namespace orrery {
namespace {

uint64_t SplitMix(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

uint64_t Rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

// Computing of a life of `seconds` that is not lost.
double KeptOf(const StopModel& model, double interval, double seconds, bool notice) {
  const double period = interval + model.blocking.value;
  const double rounds = std::floor(seconds / period);
  if (notice) return rounds * interval + std::min(interval, seconds - rounds * period);
  const double committed = std::floor((seconds - model.background.value) / period);
  return std::max(0.0, committed) * interval;
}

// What a stop is, drawn when it happens.
struct Stop {
  bool notice, waits;
};

Stop DrawStop(const StopModel& model, Random* random) {
  const double u = random->Uniform();
  return {u <= model.with_notice, u > 1 - model.waits};
}

double DownOf(const StopModel& model, const Stop& stop) {
  return model.detection.value + (stop.waits ? model.wait.value : 0);
}

}  // namespace

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) word = SplitMix(&seed);
}

uint64_t Random::Next() {
  const uint64_t result = Rotate(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = Rotate(state_[3], 45);
  return result;
}

double Random::Uniform() { return (static_cast<double>(Next() >> 11) + 1) * 0x1p-53; }

double Random::Exponential(double mean) { return -mean * std::log(Uniform()); }

double SimulatedGoodput(const StopModel& model, Seconds interval, int64_t stops, uint64_t seed) {
  Random random(seed);
  const double mean = model.between.value;
  double kept = 0, passed = 0;
  Stop stop = DrawStop(model, &random);
  for (int64_t i = 0; i < stops; ++i) {
    double life = 0;
    for (;;) {  // a stop during the restart costs the detection again
      passed += DownOf(model, stop);
      life = random.Exponential(mean);
      passed += life;
      stop = DrawStop(model, &random);
      if (life > model.restart.value) break;
    }
    kept += KeptOf(model, interval.value, life - model.restart.value, stop.notice);
  }
  return kept / passed;
}

namespace {

// States follow each other; each asks whether the next stop comes before its end.
class Player {
 public:
  Player(const StopModel& model, Seconds interval, Random* random)
      : model_(model),
        interval_(interval.value),
        random_(*random),
        stop_(random->Exponential(model.between.value)) {}

  SimulatedJob Play(double work) {
    while (done_ < work) {
      const double begin = now_;
      const double chunk = std::min(interval_, work - done_);
      const bool whole = Advance(chunk);
      done_ += whole ? chunk : now_ - begin;  // the clock's rounding must leave no crumb of work
      if (!whole)
        Recover();
      else if (done_ < work)
        Checkpoint();
    }
    job_.time = Seconds(now_) + model_.background;
    return job_;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // False: a stop came first.
  bool Advance(double seconds) {
    const double end = std::min(now_ + seconds, stop_);
    if (commit_ <= end) durable_ = pending_, commit_ = kNever;
    const bool whole = now_ + seconds <= stop_;
    now_ = end;
    return whole;
  }

  void Checkpoint() {
    const double begin = now_;
    if (!Advance(model_.blocking.value)) return Recover();
    job_.checkpoints += Seconds(now_ - begin);
    pending_ = done_;
    commit_ = now_ + model_.background.value;
    if (model_.background.value == 0) durable_ = done_;
  }

  void Recover() {
    ++job_.stops;
    const double begin = now_;
    Stop stop = DrawStop(model_, &random_);
    if (stop.notice) durable_ = done_;
    job_.redone += Seconds(done_ - durable_);
    done_ = durable_;
    commit_ = kNever;
    for (;;) {
      now_ += DownOf(model_, stop);
      stop_ = now_ + random_.Exponential(model_.between.value);
      if (Advance(model_.restart.value)) break;
      ++job_.stops;
      stop = DrawStop(model_, &random_);
    }
    job_.recovering += Seconds(now_ - begin);
  }

  const StopModel& model_;
  const double interval_;
  Random& random_;
  double now_ = 0, stop_;
  double done_ = 0;         // seconds of work computed
  double durable_ = 0;      // of them, what a stop cannot take
  double pending_ = 0;      // in a snapshot that is being written
  double commit_ = kNever;  // when that is durable
  SimulatedJob job_;
};

}  // namespace

SimulatedJob SimulateJob(const StopModel& model, Seconds interval, Seconds work, Random* random) {
  return Player(model, interval, random).Play(work.value);
}

namespace {

struct Shrunk {
  double now = 0, kept = 0;  // time; of it as much as all groups would have needed
  int64_t stops = 0;
};

// Until so much work or so many stops are done.
Shrunk PlayShrinking(const ElasticModel& model, double work, int64_t stops, Random* random) {
  Shrunk job;
  const auto groups = static_cast<int64_t>(model.nodes / model.group_nodes);
  const double mean = 1 / (model.group_nodes * model.node_rate);          // of one group that runs
  std::priority_queue<double, std::vector<double>, std::greater<>> back;  // when groups return
  while (job.stops < stops) {
    while (!back.empty() && back.top() <= job.now) back.pop();
    const auto running = groups - static_cast<int64_t>(back.size());
    const double next = running > 0
                            ? job.now + random->Exponential(mean / static_cast<double>(running))
                            : std::numeric_limits<double>::infinity();
    const double until = back.empty() ? next : std::min(next, back.top());
    const double share = static_cast<double>(running) / static_cast<double>(groups);
    if (job.kept + share * (until - job.now) >= work) {
      job.now += (work - job.kept) / share;
      job.kept = work;
      return job;
    }
    job.kept += share * (until - job.now);
    job.now = until;
    if (until < next) continue;  // a group is back
    ++job.stops;
    job.kept -= share * random->Uniform() * model.step.value;  // the step under way
    back.push(job.now + model.repair.value);
    job.now += model.pause.value;  // nobody computes, nothing fails
  }
  return job;
}

}  // namespace

double SimulatedElasticGoodput(const ElasticModel& model, int64_t stops, uint64_t seed) {
  Random random(seed);
  const Shrunk job = PlayShrinking(model, std::numeric_limits<double>::infinity(), stops, &random);
  return job.kept / job.now;
}

SimulatedJob SimulateElasticJob(const ElasticModel& model, Seconds work, Random* random) {
  const Shrunk job = PlayShrinking(model, work.value, std::numeric_limits<int64_t>::max(), random);
  SimulatedJob played;
  played.time = Seconds(job.now);
  played.stops = job.stops;
  return played;
}

}  // namespace orrery
