// SPDX-License-Identifier: Apache-2.0
// Runs at a few steps of each number of nodes.
#include "model/provision/run_values.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

namespace orrery {
namespace {

// Work around that of the fastest layout: bounds and the slowest layouts are far from it, and there the order is all that
// counts.
constexpr double kLeast = 1.0 / 8, kNearBy = 2, kMost = 64;
constexpr double kNearPoint =
    1e-4;  // of the value: what a line between two points near the fastest misses
constexpr int kMostHalvings = 3;

// Of equal bills the shorter run comes first: so much of what its time would cost counts on top.
constexpr double kShorter = 1e-6;

using Points = std::map<double, double>;

// Until a line between neighbours is near.
template <class Value>
void Halve(double low, double high, int halvings, Value value, Points* points) {
  const double middle = std::sqrt(low * high);
  const double share = (middle - low) / (high - low);
  const double line = (*points)[low] + share * ((*points)[high] - (*points)[low]);
  const double there = (*points)[middle] = value(middle);
  if (std::abs(line - there) <= kNearPoint * there || halvings == 0) return;
  Halve(low, middle, halvings - 1, value, points);
  Halve(middle, high, halvings - 1, value, points);
}

}  // namespace

RunValues::RunValues(const Conditions& conditions, Objective objective, std::optional<Quote> quote,
                     std::function<bool(const RunEstimate&)> keeps)
    : conditions_(conditions),
      objective_(objective),
      quote_(std::move(quote)),
      keeps_(std::move(keeps)) {
  conditions_.input.reader.reset();
  conditions_.storage.read.reset();
}

RunEstimate RunValues::SetFastest(const Job& job, const Prediction& step) {
  RunEstimate run = BestRun(conditions_, job, step, quote(), keeps_);
  nodes_[job.cluster.nodes] = {run.spares, step.time.total * Steps(job), job.work.global_batch};
  return run;
}

double RunValues::Steps(const Job& job) const {
  const double tokens =
      static_cast<double>(job.work.global_batch) * static_cast<double>(job.work.seq_len);
  return static_cast<double>(StepsOf(conditions_, tokens));
}

// That are paid for.
int64_t RunValues::NodesOf(const Job& job) const {
  const auto known = nodes_.find(job.cluster.nodes);
  return job.cluster.nodes + (known != nodes_.end()
                                  ? known->second.spares
                                  : SpareCounts(conditions_, job, quote()).front());
}

double RunValues::Of(const Job& job, int64_t replicas, double step_seconds) const {
  const Seconds time(CurveOf(job, replicas).At(step_seconds * Steps(job)));
  if (objective_ == Objective::kTime || !quote_) return time.value;
  const int64_t nodes = NodesOf(job);
  return (CostOf(*quote_, nodes, time) + TieOf(nodes) * time.value).value;
}

double RunValues::StepOf(const Job& job, int64_t replicas, double value) const {
  Seconds time(value);
  if (objective_ != Objective::kTime && quote_) {
    const int64_t nodes = NodesOf(job);
    const Dollars whole(value / (1 + kShorter)), tie = TieOf(nodes);
    time = LongestFor(*quote_, nodes, whole);
    // The next bill is reached in part, where the run is short enough for its price.
    const Dollars next = CostOf(*quote_, nodes, time * (1 + 1e-9) + Seconds(1e-3));
    if (tie.value > 0 && value > next.value)
      time = std::max(
          time, std::min(LongestFor(*quote_, nodes, next), Seconds((Dollars(value) - next) / tie)));
  }
  return CurveOf(job, replicas).Inverse(time.value) / Steps(job);
}

Dollars RunValues::TieOf(int64_t nodes) const {
  return quote_->price.price * Seconds(kShorter) * static_cast<double>(nodes);
}

const IncreasingCurve& RunValues::CurveOf(const Job& job, int64_t replicas) const {
  const bool shrinks = conditions_.recovery.elastic && replicas > 1;
  const std::pair key(job.cluster.nodes,
                      shrinks ? NodesOfReplica(job, job.cluster.ranks() / replicas) : 0);
  {
    const std::shared_lock lock(mutex_);
    if (const auto known = curves_.find(key); known != curves_.end()) return known->second;
  }
  IncreasingCurve curve = Draw(job, replicas);
  const std::unique_lock lock(mutex_);
  return curves_.emplace(key, std::move(curve)).first->second;
}

IncreasingCurve RunValues::Draw(Job job, int64_t replicas) const {
  const auto known = nodes_.find(job.cluster.nodes);
  const bool any = known != nodes_.end();
  job.work.global_batch = any ? known->second.batch : replicas;  // whichever asks first
  Prediction step;
  step.tokens = static_cast<double>(job.work.global_batch) * static_cast<double>(job.work.seq_len);
  step.strategy.tp = static_cast<int>(job.cluster.ranks() / replicas);
  step.strategy.dp = static_cast<int>(replicas);
  const double around = any ? known->second.work : Steps(job);  // else a second for a step
  const int64_t spares = NodesOf(job) - job.cluster.nodes;
  const auto value = [&](double work) {
    step.time.total = work / Steps(job);
    return MeanRun(conditions_, job, step, quote(), spares).time.value;
  };
  Points points;
  for (const double ratio : {kLeast, 1 / kNearBy, 1.0, kNearBy, kMost})
    points[around * ratio] = value(around * ratio);
  Halve(around / kNearBy, around, kMostHalvings, value, &points);
  Halve(around, around * kNearBy, kMostHalvings, value, &points);
  return IncreasingCurve({points.begin(), points.end()});
}

}  // namespace orrery
