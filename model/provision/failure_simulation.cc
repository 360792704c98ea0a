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

using Times = std::priority_queue<double, std::vector<double>, std::greater<>>;

// What a stop is, drawn when it happens.
struct Stop {
  bool notice, waits, repaired;
};

Stop DrawStop(const StopModel& model, Random* random) {
  const double u = random->Uniform();
  return {u <= model.with_notice, u > 1 - model.waits, u > 1 - model.repaired};
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
    // The write before it is over, which the clock's rounding may put a little later.
    if (commit_ <= now_ * (1 + 1e-12)) durable_ = pending_;
    pending_ = done_;
    commit_ = now_ + model_.background.value;
    if (model_.background.value == 0) durable_ = done_;
  }

  // How long the job is down. Repairs are simulated where the model says what they take: without a spare the job waits
  // for the first of those under way.
  double DownFor(const Stop& stop) {
    if (model_.repair.value <= 0) return DownOf(model_, stop);
    while (!repaired_.empty() && repaired_.top() <= now_) repaired_.pop();
    double down = model_.detection.value;
    if (!stop.repaired) return down;
    repaired_.push(now_ + model_.repair.value);
    if (static_cast<int64_t>(repaired_.size()) > model_.spares) {
      down += repaired_.top() - now_;
      repaired_.pop();
    }
    return down;
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
      now_ += DownFor(stop);
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
  Times repaired_;          // ends of repairs
  SimulatedJob job_;
};

}  // namespace

SimulatedJob SimulateJob(const StopModel& model, Seconds interval, Seconds work, Random* random) {
  return Player(model, interval, random).Play(work.value);
}

namespace {

constexpr double kNeverEnds = std::numeric_limits<double>::infinity();

// Without checkpoints: nothing takes what is done.
StopModel NoRestores() {
  StopModel none;
  none.between = Seconds(kNeverEnds);
  return none;
}

// Group by group and node by node, until so much work or so many stops are done.
class ShrinkingPlayer {
 public:
  ShrinkingPlayer(const ElasticModel& model, const StopModel& checkpoints, double interval,
                  Random* random)
      : model_(model),
        checkpoints_(checkpoints),
        interval_(interval),
        random_(*random),
        groups_(static_cast<int64_t>(model.nodes / model.group_nodes)),
        mean_(1 / (model.group_nodes * (model.node_rate + model.interruptions))),
        spares_(model.spares) {}

  SimulatedJob Play(double work, int64_t stops) {
    if (interval_ >= work) interval_ = kNeverEnds;  // one, at the end
    Begin(Phase::kComputing, interval_);
    while (job_.stops < stops) {
      TakeBack();
      const int64_t running = Running();
      const double next = running > 0
                              ? now_ + random_.Exponential(mean_ / static_cast<double>(running))
                              : kNeverEnds;
      double until = next;
      for (const Times* times : {&repaired_, &replaced_})
        if (!times->empty()) until = std::min(until, times->top());
      if (running > 0) until = std::min(until, now_ + left_);
      const double share = static_cast<double>(running) / static_cast<double>(groups_);
      if (Computes() && kept_ + share * (until - now_) >= work) {
        now_ += (work - kept_) / share;
        kept_ = work;
        now_ += checkpoints_.blocking.value;  // the last checkpoint
        break;
      }
      Advance(until, share);
      if (until == next)
        Stop(share);
      else if (running > 0 && left_ <= 0)
        EndPhase();
    }
    job_.time = Seconds(now_) + checkpoints_.background;
    return job_;
  }
  double Goodput() const { return kept_ / now_; }

 private:
  // What those who run do: blocked by a checkpoint; the first to be back loads one.
  enum class Phase { kComputing, kBlocked, kRestoring };

  bool Computes() const { return phase_ == Phase::kComputing; }
  int64_t Running() const { return groups_ - away_ - static_cast<int64_t>(replaced_.size()); }

  void Begin(Phase phase, double seconds) { phase_ = phase, left_ = seconds; }

  void Advance(double until, double share) {
    const double passed = until - now_;
    if (Computes()) kept_ += share * passed;
    if (phase_ == Phase::kBlocked) job_.checkpoints += Seconds(passed);
    if (share > 0) left_ = until < now_ + left_ ? left_ - passed : 0;
    now_ = until;
    Commit();
  }

  void Commit() {
    if (commit_ <= now_) durable_ = pending_, commit_ = kNeverEnds;
  }

  void EndPhase() {
    if (Computes()) return Begin(Phase::kBlocked, checkpoints_.blocking.value);
    if (phase_ == Phase::kBlocked) {
      pending_ = kept_, commit_ = now_ + checkpoints_.background.value;
      Commit();
    }
    Begin(Phase::kComputing, interval_);
  }

  // A repaired node goes to a group that waits, else it is a spare.
  void TakeBack() {
    for (; !repaired_.empty() && repaired_.top() <= now_; repaired_.pop())
      --(away_ > 0 ? away_ : waiting_);
    while (!replaced_.empty() && replaced_.top() <= now_) replaced_.pop();
  }

  void Stop(double share) {
    ++job_.stops;
    if (Computes()) kept_ -= share * random_.Uniform() * model_.step.value;  // the step under way
    const double all = model_.node_rate + model_.interruptions;
    if (model_.interruptions > 0 && random_.Uniform() * all <= model_.interruptions) {
      replaced_.push(now_ + model_.replacement.value);
    } else {
      repaired_.push(now_ + model_.repair.value);
      ++(waiting_ < spares_ ? waiting_ : away_);
      job_.all_away += away_ == groups_;
      if (away_ == groups_ && checkpoints_.between.value < kNeverEnds) Lose();
    }
    now_ += model_.pause.value;  // nobody computes, nothing fails
    Commit();
  }

  // No replica is left that holds the states.
  void Lose() {
    job_.redone += Seconds(std::max(0.0, kept_ - durable_));
    kept_ = std::min(kept_, durable_);
    commit_ = kNeverEnds;
    Begin(Phase::kRestoring, checkpoints_.restart.value);
  }

  const ElasticModel& model_;
  const StopModel& checkpoints_;
  double interval_;  // of computing between checkpoints, however many groups compute
  Random& random_;
  const int64_t groups_;
  const double mean_;  // between stops of one group that runs
  const int64_t spares_;
  int64_t away_ = 0;           // groups that a failure took
  int64_t waiting_ = 0;        // spares in use: repairs that nobody waits for
  Times repaired_, replaced_;  // when nodes are back
  double now_ = 0, kept_ = 0;  // time; of it as much as all groups would have needed
  Phase phase_ = Phase::kComputing;
  double left_ = kNeverEnds;          // of the phase, while anyone runs
  double durable_ = 0, pending_ = 0;  // of kept_; as in Player
  double commit_ = kNeverEnds;
  SimulatedJob job_;
};

}  // namespace

double SimulatedElasticGoodput(const ElasticModel& model, int64_t stops, uint64_t seed) {
  Random random(seed);
  const StopModel none = NoRestores();
  ShrinkingPlayer player(model, none, kNeverEnds, &random);
  player.Play(kNeverEnds, stops);
  return player.Goodput();
}

SimulatedJob SimulateElasticJob(const ElasticModel& model, Seconds work, Random* random) {
  return SimulateElasticJob(model, NoRestores(), Seconds(kNeverEnds), work, random);
}

SimulatedJob SimulateElasticJob(const ElasticModel& model, const StopModel& checkpoints,
                                Seconds interval, Seconds work, Random* random) {
  return ShrinkingPlayer(model, checkpoints, interval.value, random)
      .Play(work.value, std::numeric_limits<int64_t>::max());
}

}  // namespace orrery
