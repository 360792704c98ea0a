// SPDX-License-Identifier: Apache-2.0
// First passage of the number of nodes in repair.
#include "model/provision/elastic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/provision/in_repair.h"

namespace orrery {
namespace {

// Expected failures without a spare that count: fewer are beyond any quantile, and what one costs is beyond rounding.
constexpr double kFelt = 1e-6;
constexpr double kTail = 1e-10;  // probability of more nodes in repair than the chain holds

// Smallest n that a Poisson number exceeds with at most kTail.
int64_t MostOf(double mean) {
  const int64_t start = static_cast<int64_t>(mean);
  double weight =
      std::exp(start * std::log(std::max(mean, 1e-300)) - mean - std::lgamma(start + 1.0));
  int64_t n = start;
  while (weight > kTail * 1e-2) weight *= mean / static_cast<double>(++n);
  return n;
}

// The number of nodes in repair, in seconds of running: pauses are left out.
class RepairChain {
 public:
  // Mean and variance of the time left and expected failures that find no spare, by number of nodes in repair.
  struct Left {
    std::vector<double> time, variance, without_spare;
  };

  RepairChain(const ElasticModel& model, Seconds repair, double work)
      : groups_(model.Groups()),
        spares_(model.spares),
        rate_(model.nodes * model.node_rate),
        repair_(repair.value),
        path_(groups_, spares_, rate_, repair_, std::min(work, kTransient * repair_)) {
    const int64_t all = static_cast<int64_t>(groups_) + spares_;
    last_ = std::min(all, std::max(spares_ + 1, MostOf(rate_ * std::min(work, repair_))));
    nobody_ = last_ == all;
    const auto states = static_cast<std::size_t>(last_ + (nobody_ ? 0 : 1));
    left_ = {std::vector<double>(states), std::vector<double>(states), std::vector<double>(states)};
    births_.resize(states);
    deaths_.resize(states);
    for (std::size_t n = 0; n < states; ++n) {
      const auto away = std::max<int64_t>(0, static_cast<int64_t>(n) - spares_);
      slow_.push_back(groups_ / (groups_ - static_cast<double>(away)));
      since_first_.push_back(n == 0 ? 0 : since_first_[n - 1] + slow_[n]);
    }
  }

  // By how much more than in proportion the absence grows with the failures: with spares the first of them cost none.
  double WithStops() const {
    const double mean = path_.settled();
    const double away = MeanWithoutSpare(mean, spares_);
    return away > 0 ? mean * AtLeast(mean, spares_) / away : 1;
  }

  // From the start, with all nodes there; backwards from the end, where nothing is left.
  Left Run(double work) {
    const double first = std::min(work, repair_), transient = std::min(work, kTransient * repair_);
    PassSettled(work - transient);
    PassTransient(first, transient);
    over_chain_ = 1;
    const double step = first / kSteps;
    for (int i = kSteps; i-- > 0;) {
      SetRates((i + 0.5) * step, Returns((i + 0.5) * step));
      Step(step);
    }
    return left_;
  }

 private:
  static constexpr int kSteps = 32;        // of the work of the first X
  static constexpr int kPerRepair = 12;    // later
  static constexpr double kSettled = 6;    // times X: longer jobs add the same for each second
  static constexpr double kTransient = 4;  // times X: later as many come back as fail

  // The mean path says little of what few groups do, and nothing of two: there as in the long run.
  double Returns(double done) const {
    const double known = std::max(0.0, 1 - 2 / groups_);
    return known * path_.Returns(done) + (1 - known) * 2 / repair_;
  }

  // Backwards, until the first nodes are back.
  void PassTransient(double first, double transient) {
    const int steps = static_cast<int>(std::ceil((transient - first) / repair_ * kPerRepair));
    const double step = steps > 0 ? (transient - first) / steps : 0;
    for (int i = steps; i-- > 0;) {
      const double done = first + (i + 0.5) * step;
      SetRates(done, Returns(done));
      Step(step);
    }
  }

  void PassSettled(double work) {
    if (work <= 0) return;
    const double settled = kSettled * repair_;
    const double passed = std::min(work, settled);
    const int steps = std::max(4, static_cast<int>(std::ceil(passed / repair_ * kPerRepair)));
    const double step = passed / steps;
    SetRates(2 * repair_, 2 / repair_);  // at the first X itself rounding would decide who returns
    Left before;
    for (int i = 0; i < steps; ++i) {
      before = left_;
      Step(step);
    }
    if (work <= settled) return;
    const double more = (work - settled) / step;
    const auto extend = [&](const std::vector<double>& was, std::vector<double>* is) {
      const double each = (*is)[0] - was[0];
      for (double& value : *is) value += more * each;
    };
    extend(before.time, &left_.time);
    extend(before.variance, &left_.variance);
    extend(before.without_spare, &left_.without_spare);
  }

  // Per second of work, with so much of it done: the next failure, and the next return of one of n nodes. Nobody is
  // back where n failures and the equal parts of work between them, half of one before the first, took less than X.
  void SetRates(double done, double each_returns) {
    for (std::size_t n = 0; n < slow_.size(); ++n) {
      const double since = done / (static_cast<double>(n) + 0.5) * (since_first_[n] + 0.5);
      const bool returns = since >= repair_ || done > all_know_;
      births_[n] = returns ? 2 * rate_ : rate_;
      deaths_[n] = returns ? static_cast<double>(n) * each_returns * slow_[n] : 0;
    }
    if (!nobody_) return;
    // Until the first of all that are away is back; where they left one after another so far, the others follow.
    const double since = done / static_cast<double>(last_) * since_first_.back();
    const double next = repair_ / (2 * static_cast<double>(last_));
    uneven_ = 0;
    if (done > all_know_) uneven_ = repair_ * repair_ / (last_ * (last_ + 1.0)) - next * next;
    all_return_ = repair_ - since > next;
    wait_ = all_return_ ? repair_ - since / 2 : next;
  }

  // An L-stable method of second order (SDIRK; R. Alexander, SIAM J. Numer. Anal. 14 (1977) 1006): (I - a h Q) k = Q y + source.
  void Step(double h) {
    static const double kA = 1 - std::sqrt(0.5);
    const Left start = left_;
    std::vector<double> first[3], second[3];
    Slopes(start, kA * h, first);
    Left middle = start;
    Add((1 - kA) * h, first, &middle);
    Slopes(middle, kA * h, second);
    left_ = start;
    Add((1 - kA) * h, first, &left_);
    Add(kA * h, second, &left_);
  }

  static void Add(double h, const std::vector<double> (&slopes)[3], Left* left) {
    for (std::size_t n = 0; n < slopes[0].size(); ++n) {
      left->time[n] += h * slopes[0][n];
      left->variance[n] += h * slopes[1][n];
      left->without_spare[n] += h * slopes[2][n];
    }
  }

  // Of `at` after an implicit stage of `h`.
  void Slopes(const Left& at, double h, std::vector<double> (&slopes)[3]) const {
    const std::size_t states = slow_.size();
    std::vector<double> stage(states);
    const auto nobody = [&](std::size_t n) {
      return nobody_ && n + 1 == states ? births_[n] : 0.0;
    };
    Solve(
        at.time, h, [&](std::size_t n) { return slow_[n] + nobody(n) * wait_; }, &slopes[0]);
    for (std::size_t n = 0; n < states; ++n) stage[n] = at.time[n] + h * slopes[0][n];
    const auto jumps = [&](std::size_t n) {
      const double up = n + 1 < states ? stage[n + 1] - stage[n] : 0;
      const double down = n > 0 ? stage[n] - stage[n - 1] : 0;
      const double out = wait_ + (all_return_ ? stage[0] - stage[n] : 0);
      return over_chain_ * (births_[n] * up * up + deaths_[n] * down * down) +
             nobody(n) * (out * out + uneven_);
    };
    Solve(at.variance, h, jumps, &slopes[1]);
    const auto without_spare = [&](std::size_t n) {
      return static_cast<int64_t>(n) >= spares_ ? rate_ : 0.0;
    };
    Solve(at.without_spare, h, without_spare, &slopes[2]);
  }

  // Slopes k of (I - h Q) k = Q y + source: tridiagonal but for the step from the last state where somebody is there. Where
  // nobody is, a wait leads back to that state, or to all nodes, whose value at the begin of the stage stands for it.
  template <class F>
  void Solve(const std::vector<double>& at, double h, F&& source,
             std::vector<double>* slopes) const {
    const std::size_t states = slow_.size();
    slopes->resize(states);
    std::vector<double> upper(states);
    for (std::size_t n = 0; n < states; ++n) {
      const bool out = nobody_ && all_return_ && n + 1 == states;
      const double up = n + 1 < states || out ? births_[n] : 0, down = n > 0 ? deaths_[n] : 0;
      double right = source(n);
      if (n + 1 < states) right += up * (at[n + 1] - at[n]);
      if (out) right += up * (at[0] - at[n]);
      if (n > 0) right += down * (at[n - 1] - at[n]);
      const double before = n > 0 ? upper[n - 1] : 0;
      const double pivot = 1 + h * (up + down) - h * down * before;
      upper[n] = n + 1 < states ? h * up / pivot : 0;
      (*slopes)[n] = (right + (n > 0 ? h * down * (*slopes)[n - 1] : 0)) / pivot;
    }
    for (std::size_t n = states - 1; n-- > 0;) (*slopes)[n] += upper[n] * (*slopes)[n + 1];
  }

  double groups_;
  int64_t spares_;
  double rate_, repair_;
  RepairPath path_;
  // Later nodes come back whatever is in repair: n says no more how long ago the first failed. X of running is this much work,
  // and a deviation: that of the mean of Poisson failures over X.
  double all_know_ = path_.FirstReturn() + std::sqrt(rate_ * repair_ / 3) / groups_ * repair_ *
                                               path_.ThereAtFirstReturn();
  double over_chain_ = VarianceOverChain(path_.settled(), spares_);
  int64_t last_ = 0;     // most nodes in repair
  bool nobody_ = false;  // then all groups are away: no state of its own, for no work is done in it
  double wait_ = 0;      // there
  double uneven_ = 0;    // its variance
  bool all_return_ = false;                 // after it
  std::vector<double> slow_, since_first_;  // by number in repair: 1 / A(n); its sum from 1 on
  std::vector<double> births_, deaths_;
  Left left_;
};

// Of all groups, in the long run; `repair` in seconds of running.
struct InTheLongRun {
  double throughput = 0;
  double last_away = 0;  // how often the last group goes, per second
};

InTheLongRun LongRunOf(const ElasticModel& model, double repair) {
  const double rate = model.nodes * model.node_rate;
  const auto groups = static_cast<int64_t>(model.Groups());
  const auto there = [&](int64_t n) {
    return 1 - static_cast<double>(std::max<int64_t>(0, n - model.spares)) / groups;
  };
  const int64_t last = groups + model.spares;
  double term = 0, most = 0;
  std::vector<double> terms;
  for (int64_t n = 0; n <= last; ++n) {
    if (n > 0) term += std::log(rate * repair * there(n - 1) / static_cast<double>(n));
    terms.push_back(term);
    most = std::max(most, term);
    if (term < most - 40) break;
  }
  double sum = 0, all = 0;
  for (std::size_t n = 0; n < terms.size(); ++n) {
    const double weight = std::exp(terms[n] - most);
    sum += weight * there(static_cast<int64_t>(n));
    all += weight;
  }
  InTheLongRun run;
  const double interrupted = model.group_nodes * model.interruptions * model.Replaced().value;
  run.throughput = sum / all / (1 + interrupted * sum / all);
  if (static_cast<int64_t>(terms.size()) > last)
    run.last_away =
        rate * there(last - 1) * std::exp(terms[static_cast<std::size_t>(last) - 1] - most) / all;
  return run;
}

}  // namespace

double ElasticModel::Groups() const { return std::max(1.0, std::floor(nodes / group_nodes)); }

double AllAwayRate(const ElasticModel& model) {
  return LongRunOf(model, model.repair.value).last_away;
}

double ElasticGoodput(const ElasticModel& model) {
  const double stops = model.nodes * (model.node_rate + model.interruptions);
  double available = 1, running = 1;
  for (int i = 0; i < 50; ++i) {
    available = LongRunOf(model, model.repair.value * running).throughput;
    running = 1 / (1 + stops * available * model.pause.value);
  }
  return running * available * std::max(0.0, 1 - stops * available * model.step.value / 2);
}

ElasticTime ElasticTimeOf(const ElasticModel& model, Seconds work) {
  const double failing = model.nodes * model.node_rate,
               interrupted = model.nodes * model.interruptions;
  const double each = model.Each().value, replaced = model.Replaced().value / model.Groups();
  ElasticTime time;
  double slowness = 1, running = 1;
  for (int round = 0; round < 2; ++round) {  // the second knows how much of the time is paused
    // Half a step is done again with the groups that are there.
    const double again = (failing + interrupted) * model.step.value / 2 / slowness;
    const double all = work.value / std::max(1 - again, 1e-3);
    time.failures = failing * all;
    time.interruptions = interrupted * all;
    double passed = all, variance = 0, with_stops = 1;
    if (failing > 0) {
      RepairChain chain(model, model.repair * running, all);
      const RepairChain::Left left = chain.Run(all);
      passed = left.time[0], variance = left.variance[0], with_stops = chain.WithStops();
      time.short_of_spares = left.without_spare[0];
    }
    const double away = passed - all;
    slowness = passed / all;
    passed += time.interruptions * replaced;
    const double paused = (time.failures + time.interruptions) * model.pause.value;
    running = passed / (passed + paused);
    time.mean = Seconds(passed + paused);
    // A stop's own cost adds to what its absence costs: both are of one Poisson number.
    const double uneven = model.step.value * model.step.value / 12;
    variance += 2 * each * away * (with_stops - 1);
    time.deviation =
        Seconds(std::sqrt(variance + time.failures * (each * each + uneven) + 2 * each * away +
                          time.interruptions * ((each + replaced) * (each + replaced) + uneven)));
    if (time.short_of_spares < kFelt) {
      time.short_of_spares = 0;
      time.absence = time.absence_deviation = Seconds(0);
      continue;
    }
    time.absence = Seconds(away / time.short_of_spares);
    const double square = variance / time.short_of_spares;
    time.absence_deviation =
        Seconds(std::sqrt(std::max(0.0, square - time.absence.value * time.absence.value)));
  }
  return time;
}

StopLosses LossesOf(const ElasticModel& model, const ElasticTime& time) {
  const double stops = time.failures + time.interruptions;
  StopLosses losses;
  losses.waiting = time.short_of_spares;
  losses.others = std::max(0.0, stops - losses.waiting);
  losses.each = model.Each();
  if (stops > 0)  // all stops alike: an interruption is short
    losses.each += model.Replaced() * (time.interruptions / stops / model.Groups());
  losses.period = model.step;
  losses.wait = time.absence;
  losses.wait_deviation = time.absence_deviation;
  losses.without = time.mean - losses.each * stops - losses.wait * losses.waiting;
  return losses;
}

}  // namespace orrery
