// SPDX-License-Identifier: Apache-2.0
// Counts pairs of engines against the bars: total within 3 %, every term within 2 % of the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/engines/engine_parity.h"
#include "tests/from_environment.h"

namespace orrery {

// What ./check looks at; engines_test_full at the rest, too.
template <class T>
std::vector<T> Sample(std::vector<T> sample, const std::vector<T>& rest) {
  if (FromEnvironment("ORRERY_ALL_TERMS", 0) > 0)
    sample.insert(sample.end(), rest.begin(), rest.end());
  return sample;
}

struct ParityTally {
  static constexpr double kTotal = 0.03, kTerm = 0.02;
  int plans = 0, within = 0;
  double worst_sum = 0;                    // of terms against the step, relative
  double worst_total = 0, worst_term = 0;  // of the engines, as a share of the step
  std::vector<std::pair<double, std::string>> outside;

  void Add(const EnginePair& pair) {
    ++plans;
    worst_sum = std::max({worst_sum, std::abs(pair.closed.Total() / pair.closed_seconds - 1),
                          std::abs(pair.event.Total() / pair.event_seconds - 1)});
    const BreakdownTerm* term = nullptr;
    const double apart = pair.WorstTerm(&term);
    worst_total = std::max(worst_total, std::abs(pair.Apart()));
    worst_term = std::max(worst_term, apart);
    if (std::abs(pair.Apart()) <= kTotal && apart <= kTerm) {
      ++within;
    } else {
      outside.push_back(
          {std::max(std::abs(pair.Apart()), apart), pair.where + " (" + term->name + ")"});
    }
  }
  double share() const { return static_cast<double>(within) / std::max(1, plans); }
  // The furthest apart, a line each.
  std::string Worst(std::size_t most) {
    std::sort(outside.rbegin(), outside.rend());
    std::string text;
    for (std::size_t i = 0; i < std::min(most, outside.size()); ++i)
      text += std::to_string(100 * outside[i].first) + " %: " + outside[i].second + "\n";
    return text;
  }
};

}  // namespace orrery
