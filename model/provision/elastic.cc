// SPDX-License-Identifier: Apache-2.0
// Few failures by paths, the long run in closed form.
#include "model/provision/elastic.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "model/provision/elastic_paths.h"

namespace orrery {
namespace {

constexpr double kFollowed = 512;  // failures that are followed one by one,
constexpr double kSettled = 6;  // or as many as so many repairs long: then the start is forgotten,
constexpr double kMostFollowed = 65536;  // but no more than these
// Expected failures without a spare that count: fewer are beyond any quantile, and what one costs is beyond rounding.
constexpr double kFelt = 1e-6;

// Of all groups, in the long run; `repair` in seconds of running.
struct InTheLongRun {
  double there = 0;  // A, without interruptions
  double throughput = 0;
  double without_spare = 0;  // share of failures that find none
  double last_away = 0;      // how often the last group goes, per second
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
  double sum = 0, all = 0, short_of = 0;
  for (std::size_t n = 0; n < terms.size(); ++n) {
    const double weight = std::exp(terms[n] - most);
    sum += weight * there(static_cast<int64_t>(n));
    all += weight;
    if (static_cast<int64_t>(n) >= model.spares)
      short_of += weight * there(static_cast<int64_t>(n));
  }
  InTheLongRun run;
  run.there = sum / all, run.without_spare = short_of / sum;
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

namespace {

// Without interruptions.
struct WithFailures {
  double mean = 0, variance = 0, without_spare = 0, all_away = 0;
  std::vector<Outcome> outcomes;  // of few failures
};

// Stops per second of work.
double StopRate(const ElasticModel& model) {
  return model.nodes * (model.node_rate + model.interruptions);
}

// Of work done, by what of a second stop after stop repeats.
double WithRedone(const ElasticModel& model, double there) {
  return 1 / std::max(1e-3, 1 - StopRate(model) * there * model.step.value / 2);
}

// `failing`: failures per second of work; repairs go on while all pause.
WithFailures FailuresOf(const ElasticModel& model, double failing, double repair, double work) {
  const double each = model.Each().value;
  InTheLongRun later = LongRunOf(model, repair);
  for (int i = 0; i < 8; ++i) later = LongRunOf(model, repair / (1 + failing * later.there * each));
  const double long_enough =
      std::clamp(kSettled * repair * later.there * failing, kFollowed, kMostFollowed);
  const double followed = std::min(work, long_enough / std::max(failing, 1e-300));
  Paths paths = PathsOf({.groups = model.Groups(),
                         .spares = model.spares,
                         .failures = failing * followed,
                         .work = followed,
                         .repair = repair,
                         .pause = each,
                         .restore = model.restore.value});
  const double uneven = model.restore_deviation.value * model.restore_deviation.value;
  WithFailures run{paths.mean,
                   paths.variance + paths.all_away * uneven,
                   paths.without_spare,
                   paths.all_away,
                   {}};
  const double more = work - followed;
  if (more <= 0) {
    run.outcomes = std::move(paths.outcomes);
    return run;
  }
  // Each second of work adds the same. At the end of both runs failures cost less: of one that is u before it min(u, X).
  const double end = 2.0 / 3 * repair * later.there;
  const double lost = more * later.last_away / later.there;
  run.mean += more * (1 / later.there + failing * each) + lost * model.restore.value;
  run.all_away += lost;
  run.variance *= (work - end) / (followed - end);
  run.without_spare += failing * more * later.without_spare;
  return run;
}

}  // namespace

ElasticTime ElasticTimeOf(const ElasticModel& model, Seconds work) {
  const double each = model.Each().value, uneven = model.step.value * model.step.value / 12;
  const double interruption = each + model.Replaced().value / model.Groups();
  ElasticTime time;
  // Work done again may stop, too.
  const double all = work.value * WithRedone(model, LongRunOf(model, model.repair.value).there);
  time.failures = model.nodes * model.node_rate * all;
  time.interruptions = model.nodes * model.interruptions * all;
  WithFailures run;
  double repair = model.repair.value;
  for (int round = 0; round < 2; ++round) {  // the second knows how much of it interruptions pause
    run = FailuresOf(model, time.failures / work.value, repair, work.value);
    time.mean = Seconds(run.mean + interruption * time.interruptions);
    if (time.interruptions <= 0) break;
    repair = model.repair.value * (1 - model.pause * time.interruptions / time.mean);
  }
  time.deviation = Seconds(std::sqrt(run.variance + time.failures * uneven +
                                     time.interruptions * (interruption * interruption + uneven)));
  time.outcomes = std::move(run.outcomes);
  time.restores = run.all_away;
  if (run.without_spare < kFelt) return time;
  time.short_of_spares = run.without_spare;
  const double away = std::max(0.0, run.mean - work.value - time.failures * each);
  time.absence = Seconds(away / run.without_spare);
  const double square =
      (run.variance - time.failures * each * each - 2 * each * away) / run.without_spare;
  time.absence_deviation =
      Seconds(std::sqrt(std::max(0.0, square - time.absence.value * time.absence.value)));
  return time;
}

void SetRestore(const StopModel& restores, Seconds period, Seconds run, ElasticModel* model) {
  constexpr int kMoments = 256;
  constexpr double kSettledPeriods = 16;  // later each period is like the one before
  const double groups = model->Groups(), every = period.value, w = restores.background.value;
  const double gone = std::max(0.0, 1 - 1 / (groups * ElasticGoodput(*model)));
  const double rise =
      model->repair.value * (groups - 1) / (groups + static_cast<double>(model->spares) - 1);
  const auto worth = [&](double seconds) {
    const double low = std::min(seconds, rise);
    return seconds - (rise > 0 ? gone * (low - low * low / (2 * rise)) : 0);
  };
  const bool settled = run.value > kSettledPeriods * every;
  const double begin = settled ? kSettledPeriods * every : 0, span = settled ? every : run.value;
  double sum = 0, squares = 0;
  for (int i = 0; i < kMoments; ++i) {
    const double now = begin + span * (i + 0.5) / kMoments;
    const double lost = worth(now - std::max(0.0, std::floor((now - w) / every)) * every);
    sum += lost / kMoments, squares += lost * lost / kMoments;
  }
  const double cost = worth(restores.restart.value) + sum;
  const double often = cost / restores.between.value;
  model->restore = Seconds(often > 1e-9 ? cost * std::expm1(often) / often : cost);
  model->restore_deviation = Seconds(std::sqrt(std::max(0.0, squares - sum * sum)));
}

StopLosses LossesOf(const ElasticModel& model, const ElasticTime& time) {
  const double stops = time.failures + time.interruptions;
  const Seconds replaced = model.Replaced() / model.Groups();
  StopLosses losses;
  losses.each_deviation = model.step / std::sqrt(12.0);  // of the step under way
  losses.each = model.Each();
  if (!time.outcomes.empty()) {
    losses.outcomes = time.outcomes;
    losses.others = time.interruptions;
    losses.each += replaced;
    losses.deviation = std::hypot(model.step.value * std::sqrt(time.failures / 12),
                                  model.restore_deviation.value * std::sqrt(time.restores));
    return losses;
  }
  if (stops > 0) losses.each += replaced * (time.interruptions / stops);  // all stops alike
  losses.waiting = time.short_of_spares;
  losses.others = std::max(0.0, stops - losses.waiting);
  losses.wait = time.absence;
  losses.wait_deviation = time.absence_deviation;
  losses.without = time.mean - losses.each * stops - losses.wait * losses.waiting;
  return losses;
}

}  // namespace orrery
