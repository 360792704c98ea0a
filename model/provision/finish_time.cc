// SPDX-License-Identifier: Apache-2.0
// A mixture of lognormal times, one for each number of stops.
#include "model/provision/finish_time.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {
namespace {

constexpr double kLeastWeight = 1e-5;   // of a number of stops that is counted
constexpr double kMatters = 0.25;       // of the deviation of F: less is normal
constexpr double kLeastSpread = 1e-12;  // of ln T: a step function for the quantile
constexpr int kBisections = 60;

double NormalBelow(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// Numbers of stops with their probabilities, which add up to 1, each from the two before it.
std::vector<std::pair<double, double>> CountsOf(double mean, double repeats, bool counted) {
  if (!counted || mean <= 0) return {{mean, 1}};
  std::vector<std::pair<double, double>> counts;
  const double first = mean * (1 - repeats);
  double weight = std::exp(-first), before = 0, all = 0;
  for (int k = 0; k < mean || weight >= kLeastWeight; ++k) {
    if (weight >= kLeastWeight) counts.emplace_back(k, weight), all += weight;
    const double next = ((first * (1 - repeats) + 2 * repeats * k) * weight -
                         repeats * repeats * (k - 1) * before) /
                        (k + 1);
    before = std::exchange(weight, next);
  }
  for (auto& [count, probability] : counts) probability /= all;
  return counts;
}

}  // namespace

void FinishTime::Add(double weight, double time, double variance) {
  const double relative = variance / (time * time);
  const auto spread = [&](double of) {
    return std::max(kLeastSpread, std::sqrt(of * of + relative));
  };
  parts_.push_back({weight, time, spread(faster_), spread(slower_)});
}

void FinishTime::AddRate(double weight, const StopLosses& losses) {
  const double each = losses.each.value, longer = each + losses.wait.value;
  double mean = losses.without.value + losses.waiting * longer + losses.others * each;
  for (const Outcome& outcome : losses.outcomes) mean += outcome.weight * outcome.time.value;
  const auto counts = [&](double expected, double cost) {
    return expected * (1 - losses.repeats) <= kMostCounted &&
           cost * std::sqrt(expected) > kMatters * std::min(faster_, slower_) * mean;
  };
  const bool count_waiting = counts(losses.waiting, longer);
  const bool count_others = counts(losses.others, each);
  double variance = losses.deviation * losses.deviation;
  const double uneven_counts = (1 + losses.repeats) / (1 - losses.repeats);
  if (!count_waiting) variance += uneven_counts * losses.waiting * longer * longer;
  if (!count_others) variance += uneven_counts * losses.others * each * each;
  const double varies = losses.each_deviation.value * losses.each_deviation.value;
  const double uneven = losses.wait_deviation.value * losses.wait_deviation.value;
  const auto add = [&](double probability, double before, double more) {
    for (const auto& [others, p_others] : CountsOf(losses.others, losses.repeats, count_others)) {
      if (probability * p_others < kLeastWeight) continue;
      Add(weight * probability * p_others, losses.without.value + before + others * each,
          variance + more + others * varies);
    }
  };
  for (const Outcome& outcome : losses.outcomes) add(outcome.weight, outcome.time.value, 0);
  if (!losses.outcomes.empty()) return;
  for (const auto& [waiting, p_waiting] : CountsOf(losses.waiting, losses.repeats, count_waiting))
    add(p_waiting, waiting * longer, waiting * (varies + uneven));
}

double FinishTime::Below(Seconds time) const {
  const double run = time.value - setup_;
  if (run <= 0) return 0;
  double below = 0, all = 0;
  for (const Part& part : parts_) {
    const double away = std::log(run / part.time);
    below += part.weight * NormalBelow(away / (away < 0 ? part.faster : part.slower));
    all += part.weight;
  }
  return all > 0 ? below / all : 0;
}

Seconds FinishTime::Quantile(double share) const {
  constexpr double kFar = 10;  // deviations
  double low = setup_, high = setup_;
  for (const Part& part : parts_)
    high = std::max(high, setup_ + part.time * std::exp(kFar * part.slower));
  for (int i = 0; i < kBisections && high - low > 1e-9 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (Below(Seconds(middle)) < share ? low : high) = middle;
  }
  return Seconds(0.5 * (low + high));
}

}  // namespace orrery
