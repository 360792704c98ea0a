// SPDX-License-Identifier: Apache-2.0
// Finds departures from an expectation and what may explain them.
#include "calib/program/watch/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "calib/import/record_json.h"
#include "model/base/median.h"
#include "model/hardware/cluster_file.h"

namespace orrery::watch {
namespace {

using Json = nlohmann::json;

// A rank this much behind the median of the others is the reason.
constexpr double kSlowRank = 1.1;
constexpr std::size_t kMostReasons = 3;
constexpr std::size_t kMeanSteps = 20;  // fewer are no mean: one snapshot would move it
// Mean error of the predicted peak of an allocator, of the source where it is largest: calib/ACCURACY.md, "Memory".
constexpr double kMemoryError = 1.056;

[[noreturn]] void FailPlan(const SourcePtr& source, std::string message) {
  throw InputError(
      {{{source, 1, 1},
        std::move(message),
        "plan predict ... --json plan.json writes one, and so do plan and plan simulate"}});
}

double NumberAt(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() && std::isfinite(at->get<double>())
             ? at->get<double>()
             : 0;
}

// Seconds of a step by whatever the line says of its speed.
std::optional<double> SecondsOf(const measured::StepSample& step, const Expectation& expected) {
  // A mean since the start hides what changes.
  return step.running_mean ? step.seconds : measured::SecondsOf(step, expected.size);
}

struct Timed {
  double seconds = 0;
  int64_t step = -1;
  int line = 0;
  std::size_t steps = 1;  // that it is the mean of
};

std::size_t StepsOf(const std::vector<Timed>& lines) {
  std::size_t steps = 0;
  for (const Timed& one : lines) steps += one.steps;
  return steps;
}

Side SideOf(double seconds, const Expectation& expected) {
  return seconds > expected.high  ? Side::kSlower
         : seconds < expected.low ? Side::kFaster
                                  : Side::kInside;
}

// Timers of the log that measure what a term predicts.
const char* TermOfTimer(const std::string& timer) {
  static const std::map<std::string, const char*> kTerms = {
      {"all-grads-sync", "data_exposed"},
      {"bwd_allreduce_microstep", "data_exposed"},
      {"optimizer", "optimizer"},
      {"step_microstep", "optimizer"},
      {"forward-backward", "compute"}};
  const auto found = kTerms.find(timer);
  return found == kTerms.end() ? "" : found->second;
}

// By rank: what a timer took.
using OfRanks = std::map<int64_t, std::vector<double>>;

// The one that takes longest, if it is far above the others.
std::optional<Reason> SlowestOf(const std::map<int64_t, double>& ranks, const std::string& timer) {
  if (ranks.size() < 2) return std::nullopt;
  const auto slowest =
      std::ranges::max_element(ranks, {}, [](const auto& row) { return row.second; });
  std::vector<double> others;
  for (const auto& [rank, seconds] : ranks) {
    if (rank != slowest->first) others.push_back(seconds);
  }
  const double median = Median(std::move(others));
  if (median <= 0 || slowest->second < kSlowRank * median) return std::nullopt;
  return Reason{"", timer, slowest->second / median, true, slowest->first};
}

// A rank whose lines say longer steps than the others' do, of the steps outside.
std::optional<Reason> SlowLines(const measured::TrainingLog& log, const Expectation& expected,
                                const std::set<int>& outside) {
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> all;  // by task and rank
  bool local = false;
  for (const measured::StepSample& step : log.steps) {
    if (!outside.contains(step.line)) continue;
    std::map<std::pair<int64_t, int64_t>, double> of_step;  // of nodes with one number the slowest
    for (const measured::RankTime& one : step.ranks) {
      double& taken = of_step[{one.task, one.rank}];
      taken = std::max(taken, one.taken);
      local |= one.local && expected.nodes > 1;
    }
    if (of_step.size() < 2)
      continue;  // one alone is compared with nothing; `grep -n` numbers lines
    for (const auto& [printer, taken] : of_step) all[printer].push_back(taken);
  }
  std::vector<std::pair<double, std::pair<int64_t, int64_t>>> medians;
  for (auto& [printer, taken] : all) medians.emplace_back(Median(std::move(taken)), printer);
  if (medians.size() < 2) return std::nullopt;
  std::ranges::sort(medians);
  // Half of the ranks may be slow, as on one of two nodes: the others are the faster half.
  std::vector<double> faster;
  for (std::size_t i = 0; i < (medians.size() + 1) / 2; ++i) faster.push_back(medians[i].first);
  const double base = Median(std::move(faster));
  Reason made{"", "", base > 0 ? medians.back().first / base : 0, true, -1};
  made.local = local;
  for (const auto& [seconds, printer] : medians) {
    if (seconds < kSlowRank * base) continue;
    made.rank = printer.second;
    made.ranks.push_back(printer.second);
    if (local && printer.first >= 0) made.tasks.push_back(printer.first);
  }
  if (made.ranks.empty() || made.ranks.size() > medians.size() / 2 || base <= 0)
    return std::nullopt;
  return made;
}

// Timers of a rank's own work: in others, those ranks wait that are not slow.
bool IsOwnWork(const std::string& timer) {
  return timer == "forward-backward" || timer == "forward-compute" || timer == "backward-compute" ||
         timer == measured::kStragglerTimer;
}

// A rank whose part of the step is far above the others' since then.
std::optional<Reason> SlowRank(const measured::TrainingLog& log, int since_line) {
  std::map<int64_t, double> all;
  std::map<std::string, OfRanks> own;
  for (const measured::TermSample& term : log.terms) {
    if (term.rank < 0) continue;
    all[term.rank] += term.seconds;
    if (IsOwnWork(term.name) && term.line >= since_line)
      own[term.name][term.rank].push_back(term.seconds);
  }
  std::optional<Reason> worst;
  for (auto& [timer, ranks] : own) {
    std::map<int64_t, double> medians;
    for (auto& [rank, seconds] : ranks) medians[rank] = Median(std::move(seconds));
    const auto found = SlowestOf(medians, timer);
    if (found && (!worst || found->factor > worst->factor)) worst = found;
  }
  return own.empty() ? SlowestOf(all, "") : worst;
}

// What the log's timers say of each term since then; a step waits for its slowest rank.
std::map<std::string, double> TimedTerms(const measured::TrainingLog& log, int since_line) {
  std::map<std::string, std::map<std::string, OfRanks>> timers;  // by term and timer
  for (const measured::TermSample& term : log.terms) {
    const std::string name = TermOfTimer(term.name);
    if (!name.empty() && term.line >= since_line)
      timers[name][term.name][term.rank].push_back(term.seconds);
  }
  std::map<std::string, double> took;
  for (auto& [name, of_term] : timers) {
    for (auto& [timer, ranks] : of_term) {
      for (auto& [rank, seconds] : ranks)
        took[name] = std::max(took[name], Median(std::move(seconds)));
    }
  }
  return took;
}

// Terms of the breakdown that would explain the difference alone, the smallest change first; what
// the log's own timers show goes before.
std::vector<Reason> ReasonsOf(const measured::TrainingLog& log, const Expectation& expected,
                              double seconds, const std::set<int>& outside) {
  const int since_line = *outside.begin();
  std::vector<Reason> reasons;
  std::optional<Reason> rank = SlowRank(log, since_line);
  if (!rank && seconds > expected.step) rank = SlowLines(log, expected, outside);
  if (rank) reasons.push_back(*rank);
  const std::map<std::string, double> timers = TimedTerms(log, since_line);
  const double excess = seconds - expected.step;
  std::vector<Reason> terms;
  for (const auto& [name, predicted] : expected.terms) {
    if (predicted + excess <= 0) continue;  // cannot shrink by so much
    Reason reason{name, "", (predicted + excess) / predicted, false, -1};
    if (const auto timed = timers.find(name); timed != timers.end()) {
      const double took = timed->second;
      // A timer near its prediction excuses its term.
      if ((took - predicted) * excess <= 0 || std::abs(took - predicted) < 0.5 * std::abs(excess))
        continue;
      reason.factor = took / predicted;
      reason.measured = true;
    }
    terms.push_back(reason);
  }
  std::ranges::stable_sort(terms, [](const Reason& a, const Reason& b) {
    if (a.measured != b.measured) return a.measured;
    return std::abs(std::log(a.factor)) < std::abs(std::log(b.factor));
  });
  reasons.insert(reasons.end(), terms.begin(), terms.end());
  if (reasons.size() > kMostReasons) reasons.resize(kMostReasons);
  return reasons;
}

Departure MakeDeparture(const measured::TrainingLog& log, const Expectation& expected, Side side,
                        const std::vector<Timed>& outside, std::optional<double> mean = {}) {
  std::vector<double> seconds;
  std::set<int> lines;
  for (const Timed& one : outside) {
    seconds.push_back(one.seconds);
    lines.insert(one.line);
  }
  Departure made;
  made.side = side;
  made.since = outside.front().step;
  made.line = outside.front().line;
  made.steps = StepsOf(outside);
  made.measured = mean.value_or(Median(std::move(seconds)));
  made.predicted = expected.step;
  made.bound = side == Side::kSlower ? expected.high : expected.low;
  made.reasons = ReasonsOf(log, expected, made.measured, lines);
  made.extra_hours = (made.measured - expected.step) * 1000 / 3600;
  if (expected.price)
    made.extra_dollars = *expected.price * 1000 * (made.measured / expected.step - 1);
  return made;
}

void CheckTimes(const measured::TrainingLog& log, const Expectation& expected, std::size_t patience,
                const std::vector<Timed>& steps, LogCheck* check) {
  std::vector<Timed> run;
  Side side = Side::kInside;
  const auto finish = [&](bool over) {
    const std::size_t of_run = StepsOf(run);
    // One line of few steps may hold a snapshot, however short the patience.
    const bool several = run.size() >= std::min<std::size_t>(patience, 2) || of_run >= kMeanSteps;
    if (side != Side::kInside && of_run >= patience && several) {
      check->departures.push_back(MakeDeparture(log, expected, side, run));
      check->departures.back().over = over;
    }
    run.clear();
  };
  for (const Timed& one : steps) {
    const Side now = SideOf(one.seconds, expected);
    if (now != side) finish(true);
    side = now;
    if (now != Side::kInside) run.push_back(one);
  }
  finish(false);
}

// Every tenth step three times as long is never a run of steps, and yet a fifth of the time.
void CheckMean(const measured::TrainingLog& log, const Expectation& expected, std::size_t patience,
               const std::vector<Timed>& steps, LogCheck* check) {
  if (!check->departures.empty() || StepsOf(steps) < kMeanSteps) return;
  double sum = 0;
  for (const Timed& one : steps) sum += one.seconds * static_cast<double>(one.steps);
  const double mean = sum / static_cast<double>(StepsOf(steps));
  const Side side = SideOf(mean, expected);
  std::vector<Timed> outside;
  for (const Timed& one : steps) {
    if (side != Side::kInside && SideOf(one.seconds, expected) == side) outside.push_back(one);
  }
  if (outside.empty() || StepsOf(outside) < patience) return;
  Departure made = MakeDeparture(log, expected, side, outside, mean);
  made.mean = true;
  check->departures.push_back(std::move(made));
}

// Like with like: what the allocator hands out, and what it keeps with its free blocks, each against its own prediction.
void CheckMemory(const measured::TrainingLog& log, const Expectation& expected, bool reserved,
                 LogCheck* check) {
  const double predicted = reserved ? expected.reserved : expected.allocated;
  const double bound = kMemoryError * predicted;
  if (predicted <= 0) return;
  Departure made;
  made.memory = true;
  made.reserved = reserved;
  made.side = Side::kSlower;
  made.predicted = predicted;
  made.bound = bound;
  std::set<std::pair<int64_t, int64_t>> all, outside;  // task and rank
  for (const measured::StepSample& step : log.steps) {
    const measured::PeakMemory& memory = reserved ? step.reserved : step.allocated;
    for (const measured::RankPeak& peak : memory.ranks) {
      all.emplace(peak.task, peak.rank);
      made.local |= peak.local && expected.nodes > 1;
    }
    if (!memory.bytes || *memory.bytes <= bound) continue;
    if (made.steps++ == 0) {
      made.since = step.step;
      made.line = memory.line;
    }
    made.measured = std::max(made.measured, *memory.bytes);
    for (const measured::RankPeak& peak : memory.ranks) {
      if (peak.bytes > bound) outside.emplace(peak.task, peak.rank);
    }
  }
  for (const auto& [task, rank] : outside) {
    made.ranks.push_back(rank);
    if (task >= 0) made.tasks.push_back(task);
  }
  if (made.tasks.size() < made.ranks.size()) made.tasks.clear();
  made.of_ranks = all.size();
  if (made.steps > 0) check->departures.push_back(std::move(made));
}

}  // namespace

Expectation ReadExpectation(const SourcePtr& source) {
  const Json root = Json::parse(source->text, nullptr, false);
  const bool object = !root.is_discarded() && root.is_object();
  if (!object || !root.contains("prediction")) RefuseMachineFile(source, "a prediction");
  if (!object) FailPlan(source, "this is no JSON of a prediction");
  const Json* body = nullptr;
  if (const auto at = root.find("prediction"); at != root.end() && at->is_object()) body = &*at;
  if (const auto at = root.find("ranked"); body == nullptr && at != root.end() && at->is_array() &&
                                           !at->empty() && at->front().is_object())
    body = &at->front();
  if (body == nullptr) FailPlan(source, "no layout is predicted in this file");
  Expectation made;
  made.step = NumberAt(*body, "step_time_s");
  if (!(made.step > 0)) FailPlan(source, "the prediction has no step_time_s");
  made.low = made.high = made.step;
  const auto interval = body->find("step_time_interval_s");
  if (interval == body->end() || !interval->is_array() || interval->size() != 2 ||
      !(*interval)[0].is_number() || !(*interval)[1].is_number())
    FailPlan(source, "the prediction has no interval, so nothing can leave it");
  made.low = (*interval)[0].get<double>();
  made.high = (*interval)[1].get<double>();
  if (!(made.low > 0 && made.low <= made.high && std::isfinite(made.high)))
    FailPlan(source,
             fmt::format("step_time_interval_s [{}, {}] is no interval: it goes from low to high",
                         made.low, made.high));
  if (const auto text = body->find("layout"); text != body->end() && text->is_string())
    made.layout = text->get<std::string>().substr(0, 200);
  if (const auto text = body->find("digest"); text != body->end() && text->is_string())
    made.digest = text->get<std::string>().substr(0, 64);
  made.size.gpus = NumberAt(*body, "gpus");
  made.nodes = NumberAt(*body, "nodes");
  made.size.samples = NumberAt(*body, "global_batch");
  made.size.tokens = NumberAt(*body, "tokens_per_s") * made.step;
  made.job = compare::PlannedJob(source, made.digest, made.size);
  const measured::PredictedPeaks peaks = measured::PeaksOf(root, *body);
  made.peak_share = peaks.share.value_or(0);
  made.reserved = peaks.reserved.value_or(0);
  made.allocated = peaks.allocated.value_or(made.reserved);
  if (const double price = NumberAt(*body, "price_per_step_usd"); price > 0) made.price = price;
  if (const auto terms = body->find("breakdown"); terms != body->end() && terms->is_object()) {
    for (const auto& [key, value] : terms->items()) {
      if (key.ends_with("_s") && !key.starts_with("hidden") && value.is_number() &&
          value.get<double>() > 0)
        made.terms.emplace_back(key.substr(0, key.size() - 2), value.get<double>());
    }
  }
  return made;
}

LogCheck CheckLog(const measured::TrainingLog& log, const Expectation& expected, int patience) {
  LogCheck check;
  std::vector<Timed> steps;
  check.foreign = !log.own && log.source;
  std::vector<measured::StepSample> own;
  check.told = expected.job.Check(log, &own);
  for (const measured::StepSample& step : own) {
    const auto seconds = SecondsOf(step, expected);
    if (seconds && *seconds > 0)
      steps.push_back({*seconds, step.step, step.line, static_cast<std::size_t>(step.steps)});
  }
  if (steps.empty())
    throw InputError({{{log.source, 0, 0},
                       "no step of this log can be timed",
                       "lines need a time per step, or a throughput of these steps"}});
  if (steps.size() > 1) steps.erase(steps.begin());
  check.steps = StepsOf(steps);
  check.patience = patience;
  std::vector<double> seconds;
  for (const Timed& one : steps) {
    seconds.push_back(one.seconds);
    if (SideOf(one.seconds, expected) != Side::kInside) check.outside += one.steps;
  }
  check.median = Median(std::move(seconds));
  check.peak_share = expected.peak_share * expected.step / *check.median;
  CheckTimes(log, expected, static_cast<std::size_t>(patience), steps, &check);
  CheckMean(log, expected, static_cast<std::size_t>(patience), steps, &check);
  for (const bool reserved : {false, true}) CheckMemory(log, expected, reserved, &check);
  return check;
}

}  // namespace orrery::watch
