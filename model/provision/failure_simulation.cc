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
  int64_t stops = 0, all_away = 0;
};

using Times = std::priority_queue<double, std::vector<double>, std::greater<>>;

// Group by group and node by node, until so much work or so many stops are done.
class ShrinkingPlayer {
 public:
  ShrinkingPlayer(const ElasticModel& model, Random* random)
      : model_(model),
        random_(*random),
        groups_(static_cast<int64_t>(model.nodes / model.group_nodes)),
        mean_(1 / (model.group_nodes * (model.node_rate + model.interruptions))),
        spares_(model.spares) {}

  Shrunk Play(double work, int64_t stops) {
    while (job_.stops < stops) {
      TakeBack();
      const int64_t running = groups_ - away_ - static_cast<int64_t>(replaced_.size());
      const double next = running > 0
                              ? job_.now + random_.Exponential(mean_ / static_cast<double>(running))
                              : std::numeric_limits<double>::infinity();
      double until = next;
      for (const Times* times : {&repaired_, &replaced_})
        if (!times->empty()) until = std::min(until, times->top());
      const double share = static_cast<double>(running) / static_cast<double>(groups_);
      if (job_.kept + share * (until - job_.now) >= work) {
        job_.now += (work - job_.kept) / share;
        job_.kept = work;
        return job_;
      }
      job_.kept += share * (until - job_.now);
      job_.now = until;
      if (until < next) continue;  // a node is back
      Stop(share);
    }
    return job_;
  }

 private:
  // A repaired node goes to a group that waits, else it is a spare.
  void TakeBack() {
    for (; !repaired_.empty() && repaired_.top() <= job_.now; repaired_.pop())
      --(away_ > 0 ? away_ : waiting_);
    while (!replaced_.empty() && replaced_.top() <= job_.now) replaced_.pop();
  }

  void Stop(double share) {
    ++job_.stops;
    job_.kept -= share * random_.Uniform() * model_.step.value;  // the step under way
    const double all = model_.node_rate + model_.interruptions;
    if (model_.interruptions > 0 && random_.Uniform() * all <= model_.interruptions) {
      replaced_.push(job_.now + model_.replacement.value);
    } else {
      repaired_.push(job_.now + model_.repair.value);
      ++(waiting_ < spares_ ? waiting_ : away_);
      job_.all_away += away_ == groups_;
    }
    job_.now += model_.pause.value;  // nobody computes, nothing fails
  }

  const ElasticModel& model_;
  Random& random_;
  const int64_t groups_;
  const double mean_;  // between stops of one group that runs
  const int64_t spares_;
  int64_t away_ = 0;           // groups that a failure took
  int64_t waiting_ = 0;        // spares in use: repairs that nobody waits for
  Times repaired_, replaced_;  // when nodes are back
  Shrunk job_;
};

}  // namespace

double SimulatedElasticGoodput(const ElasticModel& model, int64_t stops, uint64_t seed) {
  Random random(seed);
  const Shrunk job =
      ShrinkingPlayer(model, &random).Play(std::numeric_limits<double>::infinity(), stops);
  return job.kept / job.now;
}

SimulatedJob SimulateElasticJob(const ElasticModel& model, Seconds work, Random* random) {
  const Shrunk job =
      ShrinkingPlayer(model, random).Play(work.value, std::numeric_limits<int64_t>::max());
  SimulatedJob played;
  played.time = Seconds(job.now);
  played.stops = job.stops;
  played.all_away = job.all_away;
  return played;
}

}  // namespace orrery
