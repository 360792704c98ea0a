// SPDX-License-Identifier: Apache-2.0
// When a run ends, as a distribution: failures are few and may each cost a day, so that it is none of one mode.
//
//   T = setup + F (N + k1 (c + X) + k2 c),   k1, k2 geometric-Poisson,   ln F normal, with a deviation below 1 and one above
//
// N   the run without a stop, checkpoints included       c   mean cost of a stop: down, restarted, work done again
// X   what stops add that wait for a node                F   step time and slowest node, over their best estimates
// In the place of k1 (c + X) a job that shrinks may bring what its failures cost as it is distributed: `outcomes`.
// A stop may bring another, in its restart or in work that is done again: where a share r does, k has a variance of (1 + r)/(1 - r)
// of its mean (Polya-Aeppli; N. L. Johnson, S. Kotz, A. W. Kemp, Univariate Discrete Distributions, 1992). What a stop costs
// varies: e^2 each. Of more than kMostCounted first stops, or where k hardly matters next to F, k is normal. The rate of
// failures is uncertain, too: three rates, at its 10th, 50th and 90th percentile, weigh 0.3, 0.4 and 0.3 (Swanson's rule;
// A. Hurst, G. C. Brown, R. I. Swanson, AAPG Bulletin 84 (2000) 1883).
#pragma once

#include <vector>

#include "model/base/quantity.h"

namespace orrery {

inline constexpr double kMostCounted = 30;  // expected first stops that are counted
inline constexpr double kWeightOfRate[] = {0.3, 0.4, 0.3};

// A time that a run takes with this probability.
struct Outcome {
  double weight = 0;
  Seconds time;
};

// One run at one rate of failures; F = 1.
struct StopLosses {
  Seconds without;                // N
  Seconds each;                   // c
  Seconds wait;                   // X
  Seconds each_deviation;         // e
  double repeats = 0;             // r
  Seconds wait_deviation;         // of X, where it is not the same each time
  double waiting = 0;             // expected k1
  double others = 0;              // expected k2
  double deviation = 0;           // s, of anything else
  std::vector<Outcome> outcomes;  // besides N and k2 c; weights add up to 1; empty: k1 counts
};

class FinishTime {
 public:
  // Standard deviations of ln F.
  void SetFactor(double faster, double slower) { faster_ = faster, slower_ = slower; }
  void SetSetup(Seconds setup) { setup_ = setup.value; }
  // After SetFactor(); the weights of all rates add up to 1.
  void AddRate(double weight, const StopLosses& losses);

  double Below(Seconds time) const;      // probability
  Seconds Quantile(double share) const;  // share in (0, 1)

 private:
  struct Part {
    double weight, time, faster, slower;
  };
  void Add(double weight, double time, double variance);
  double setup_ = 0, faster_ = 0, slower_ = 0;
  std::vector<Part> parts_;
};

}  // namespace orrery
