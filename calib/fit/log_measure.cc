// SPDX-License-Identifier: Apache-2.0
// Medians and running means of logs.
#include "calib/fit/log_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "model/base/median.h"

namespace orrery {
namespace {

using measured::StepSample;
using measured::TrainingLog;

std::vector<StepSample> Chosen(const TrainingLog& log, const LogWindow& window) {
  std::vector<StepSample> steps;
  for (const StepSample& step : log.steps) {
    if (window.steps && (step.step < window.steps->first || step.step > window.steps->second))
      continue;
    steps.push_back(step);
  }
  if (!window.steps && steps.size() > 1) steps.erase(steps.begin());
  return steps;
}

std::optional<double> SecondsOf(const StepSample& step, const LogWindow& window) {
  StepSample rates = step;
  rates.samples.reset();  // of the step, as its seconds: not of the window
  if (window.micro_step) rates.seconds.reset();
  return measured::SecondsOf(rates, window.size);
}

// The last line before the window whose mean runs since the start.
const StepSample* RunningBefore(const TrainingLog& log, const LogWindow& window) {
  const StepSample* before = nullptr;
  for (const StepSample& step : log.steps) {
    if (window.steps && step.running_mean && step.step > 0 && step.step < window.steps->first)
      before = &step;
  }
  return before;
}

// Of a mean since the start: its last value, or what the steps after the line `before` add to it.
LogMeasurement FromRunningMean(const StepSample& last, const StepSample* before,
                               const LogWindow& window, int64_t rows) {
  const double mean = *SecondsOf(last, window);
  if (before == nullptr) return {mean, rows, fmt::format("mean up to step {}", last.step)};
  const auto sum = [&](const StepSample& step) {
    return static_cast<double>(step.step) * *SecondsOf(step, window);
  };
  const double steps = static_cast<double>(last.step - before->step);
  return {(sum(last) - sum(*before)) / steps, rows + 1,
          fmt::format("mean of steps {} to {}", before->step + 1, last.step)};
}

// One line's steps, or those since the line before it of a mean that runs since the start.
struct LinePoint {
  int64_t step = 0;  // the first of them
  double seconds = 0;
};

std::vector<LinePoint> PointsOf(const TrainingLog& log, const LogWindow& window) {
  std::vector<LinePoint> points;
  const StepSample* before = nullptr;
  for (const StepSample& step : log.steps) {
    if (!SecondsOf(step, window)) continue;
    if (!step.running_mean) {
      points.push_back({step.step, *SecondsOf(step, window)});
    } else if (step.step > (before == nullptr ? 0 : before->step)) {
      points.push_back({before == nullptr ? 1 : before->step + 1,
                        FromRunningMean(step, before, window, 1).seconds});
      before = &step;
    }
  }
  return points;
}

// Without the lines of a slow start (compilation, caches that fill): the first, and those behind it that take longer
// than the median by the least change, a quarter of all lines at most, which a median does not notice.
std::span<const LinePoint> WithoutStart(std::span<const LinePoint> points, double least_change) {
  if (points.size() < 2) return points;
  std::vector<double> seconds;
  for (const LinePoint& point : points) seconds.push_back(point.seconds);
  const double slow = (1 + least_change) * Median(std::move(seconds));
  std::size_t first = 0;
  while (first < std::max<std::size_t>(1, points.size() / 4) && points[first].seconds > slow)
    ++first;
  return points.subspan(first);
}

struct Half {
  double mean = 0, squares = 0, lines = 0;
  Half(std::span<const LinePoint> points) : lines(static_cast<double>(points.size())) {
    for (const LinePoint& point : points) mean += point.seconds / lines;
    for (const LinePoint& point : points)
      squares += (point.seconds - mean) * (point.seconds - mean);
  }
};

// The sum of the medians of both timers.
std::optional<LogMeasurement> FromTimers(const TrainingLog& log) {
  std::vector<double> forward, backward;
  for (const measured::TermSample& term : log.terms) {
    if (term.name == "forward_microstep") forward.push_back(term.seconds);
    if (term.name == "backward_microstep") backward.push_back(term.seconds);
  }
  if (forward.empty() || backward.empty()) return std::nullopt;
  return LogMeasurement{Median(forward) + Median(backward), static_cast<int64_t>(forward.size()),
                        fmt::format("medians of {} forward and backward timers", forward.size())};
}

}  // namespace

LogMeasurement MeasureLog(const TrainingLog& log, const LogWindow& window) {
  std::vector<double> seconds;
  std::optional<StepSample> running;
  for (const StepSample& step : Chosen(log, window)) {
    const std::optional<double> one = SecondsOf(step, window);
    if (!one) continue;
    seconds.push_back(*one);
    if (step.running_mean) running = step;
  }
  if (window.micro_step) {
    if (const auto timers = FromTimers(log)) return *timers;
  }
  if (running) {
    return FromRunningMean(*running, RunningBefore(log, window), window,
                           static_cast<int64_t>(seconds.size()));
  }
  // Records of this program hold one step by design, and a trace is of steps that were chosen.
  const bool text = log.format != measured::LogFormat::kRecord &&
                    log.format != measured::LogFormat::kTrace &&
                    log.format != measured::LogFormat::kRunText;
  if (const std::vector<StepSample>& steps = log.steps;
      text && !window.steps && !window.micro_step && steps.size() == 1 && steps[0].steps == 1 &&
      (steps[0].step == 0 || steps[0].step == 1))
    measured::RefuseLog(log.source, "its only step is the first, which warms up",
                        "20 to 100 steps; `steps: 1..1` of a sheet takes it all the same");
  if (seconds.empty())
    measured::RefuseLog(log.source,
                        fmt::format("no time or rate of a {} in the steps that are asked for",
                                    window.micro_step ? "micro-step" : "step"),
                        "see `steps` and `window` of its run");
  return {Median(seconds), static_cast<int64_t>(seconds.size()),
          fmt::format("median of {} lines", seconds.size())};
}

std::optional<LogChange> ChangeOf(const TrainingLog& log, const LogWindow& window) {
  constexpr std::size_t kLeastLines = 2;  // of a half
  constexpr double kLeastChange = 0.25, kErrors = 3;
  const std::vector<LinePoint> points = PointsOf(log, window);
  const std::span<const LinePoint> all = WithoutStart(points, kLeastChange);
  std::optional<LogChange> change;
  double least = 0;
  for (std::size_t split = kLeastLines; split + kLeastLines <= all.size(); ++split) {
    const Half before(all.first(split)), after(all.subspan(split));
    const double squares = before.squares + after.squares;
    if (split > kLeastLines && squares >= least) continue;
    least = squares;
    change.reset();
    const double difference = std::abs(after.mean - before.mean);
    const double variance = squares / (before.lines + after.lines - 2);
    if (difference >= kLeastChange * std::min(before.mean, after.mean) &&
        difference * difference >
            kErrors * kErrors * variance * (1 / before.lines + 1 / after.lines)) {
      change = LogChange{all[split].step, before.mean, after.mean};
    }
  }
  return change;
}

std::map<measured::Work, double> WorkOf(const TrainingLog& log) {
  std::set<int64_t> ranks;
  for (const measured::SpanSample& span : log.spans) ranks.insert(span.rank);
  // A trace of this project holds one step, one of a profiler those that it annotates.
  const double steps = log.own ? 1 : std::max<double>(1, static_cast<double>(log.steps.size()));
  std::map<measured::Work, double> sums;
  for (const measured::SpanSample& span : log.spans)
    sums[span.work] += span.seconds / steps / static_cast<double>(ranks.size());
  return sums;
}

}  // namespace orrery
