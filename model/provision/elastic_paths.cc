// SPDX-License-Identifier: Apache-2.0
// Quasi-Monte Carlo over the failures of a job that shrinks.
#include "model/provision/elastic_paths.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {
namespace {

constexpr double kPoints = 4096, kLeastPoints = 32;  // of few failures; of many, which differ less
constexpr double kMostEvents = 40960;                // of all points together
constexpr double kLeastLikely = 1e-9;                // of a number of failures
// Numbers that hardly occur have some points, too: with spares they are all that matters.
constexpr double kForRare = 128, kFew = 2;

// frac(sqrt(p)) of at least so many of the first primes.
const std::vector<double>& Directions(std::size_t count) {
  static thread_local std::vector<double> directions;
  static thread_local std::vector<int> primes;
  for (int n = primes.empty() ? 2 : primes.back() + 1; directions.size() < count; ++n) {
    const auto divides = [n](int prime) { return n % prime == 0; };
    const auto last = std::ranges::upper_bound(primes, static_cast<int>(std::sqrt(n)));
    if (std::any_of(primes.begin(), last, divides)) continue;
    primes.push_back(n);
    const double root = std::sqrt(n);
    directions.push_back(root - std::floor(root));
  }
  return directions;
}

// One path after the other, in buffers that stay.
class Path {
 public:
  explicit Path(const PathModel& model) : model_(model) {
    for (double away = 0; away < model.groups; ++away)
      slow_.push_back(model.groups / (model.groups - away));
  }

  // Of a job that fails at these seconds of work, ascending.
  double Time(const std::vector<double>& failures) {
    back_.clear();
    next_ = 0, now_ = 0, done_ = 0, without_spare_ = 0, all_away_ = 0;
    for (const double failure : failures) {
      WorkUntil(failure);
      if (InRepair() >= model_.spares) ++without_spare_;
      back_.push_back(now_ + model_.repair);
      if (static_cast<double>(InRepair() - model_.spares) == model_.groups) ++all_away_;
      now_ += model_.pause;
    }
    WorkUntil(model_.work);
    return now_ + all_away_ * model_.restore;
  }
  double without_spare() const { return without_spare_; }
  double all_away() const { return all_away_; }

 private:
  int64_t InRepair() const { return static_cast<int64_t>(back_.size() - next_); }

  void WorkUntil(double done) {
    for (;;) {
      const auto away = static_cast<std::size_t>(std::max<int64_t>(0, InRepair() - model_.spares));
      const bool anyone = away < slow_.size();
      const double end = anyone ? now_ + (done - done_) * slow_[away] : INFINITY;
      if (next_ == back_.size() || back_[next_] > end) {
        now_ = end, done_ = done;
        return;
      }
      // Nobody works during a pause.
      const double at = std::max(now_, back_[next_++]);
      if (anyone) done_ += (at - now_) / slow_[away];
      now_ = at;
    }
  }

  const PathModel& model_;
  std::vector<double> slow_;  // 1 / A by groups that are away
  std::vector<double> back_;  // when nodes are back: all of this path
  std::size_t next_ = 0;      // of them
  double now_ = 0, done_ = 0, without_spare_ = 0, all_away_ = 0;
};

// As many as tell quantiles apart, each the mean of its neighbours.
std::vector<Outcome> Merge(std::vector<Outcome> outcomes) {
  constexpr double kParts = 64;
  std::ranges::sort(outcomes, {}, [](const Outcome& one) { return one.time.value; });
  std::vector<Outcome> merged;
  Outcome part;
  const auto close = [&] {
    if (part.weight > 0) merged.push_back({part.weight, part.time / part.weight});
    part = {};
  };
  for (const Outcome& one : outcomes) {
    if (one.weight > 1 / kParts) close();  // stays alone
    part.weight += one.weight, part.time += one.time * one.weight;
    if (part.weight > 1 / kParts) close();
  }
  close();
  return merged;
}

// The i-th point of [0, work]^count, ascending; `even`: its first coordinate, which is spread over those of equal count.
void Place(double i, double even, double work, const std::vector<double>& directions,
           std::vector<double>* failures) {
  for (std::size_t j = 0; j < failures->size(); ++j) {
    const double at = i * directions[j];
    (*failures)[j] = work * (at - static_cast<double>(static_cast<int64_t>(at)));
  }
  if (!failures->empty()) failures->front() = work * even;
  std::ranges::sort(*failures);
}

}  // namespace

Paths PathsOf(const PathModel& model) {
  const std::vector<double>& directions =
      Directions(static_cast<std::size_t>(model.failures + 8 * std::sqrt(model.failures) + 40));
  const double points =
      std::clamp(kMostEvents / std::max(model.failures, 1.0), kLeastPoints, kPoints);
  const double for_rare = std::floor(kForRare / (1 + model.failures / kFew));
  Path path(model);
  Paths paths;
  std::vector<double> failures;
  double all = 0, i = 0.5;
  for (std::size_t count = 0; count <= directions.size(); ++count) {
    const auto k = static_cast<double>(count);
    const double weight =
        model.failures > 0
            ? std::exp(k * std::log(model.failures) - model.failures - std::lgamma(k + 1))
            : count == 0;
    if (weight < kLeastLikely && k > model.failures) break;
    if (weight < kLeastLikely) continue;
    failures.resize(count);
    const bool spared = static_cast<int64_t>(count) <= model.spares;  // wherever they lie
    const double of_count = spared ? 1 : std::ceil(points * weight) + for_rare;
    for (double n = 0; n < of_count; ++n, ++i) {
      Place(i, (n + 0.5) / of_count, model.work, directions, &failures);
      const double share = weight / of_count, time = path.Time(failures);
      paths.outcomes.push_back({share, Seconds(time)});
      all += share;
      paths.mean += share * time;
      paths.without_spare += share * path.without_spare();
      paths.all_away += share * path.all_away();
    }
  }
  paths.mean /= all, paths.without_spare /= all, paths.all_away /= all;
  for (Outcome& outcome : paths.outcomes) {
    outcome.weight /= all;
    const double off = outcome.time.value - paths.mean;
    paths.variance += outcome.weight * off * off;
  }
  paths.outcomes = Merge(std::move(paths.outcomes));
  return paths;
}

}  // namespace orrery
