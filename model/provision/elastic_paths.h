// SPDX-License-Identifier: Apache-2.0
// The days of a job that shrinks, from where its failures may lie: no memory is left out.
//
// Failures are a Poisson process of the work w (elastic.h). Once they lie at w_1 < ... < w_K of W the job's time is no chance
// any more: each repair ends X after its failure, first in, first out, and between two of these moments dT = dw / A(n).
//   P(T < t) = sum over K of Poisson(K; L W) x the share of the points of [0, W]^K where T(w_1 ... w_K) < t
// That integral is taken by quasi-Monte Carlo: K by equal strata of its probability, the w by the points frac(i sqrt(p_j)) of
// R. D. Richtmyer (LA-1342, 1951; H. Niederreiter, Random Number Generation and Quasi-Monte Carlo Methods, 1992, 3.1), p_j the
// j-th prime: any run of consecutive i is spread evenly, so each stratum of K is, too. Nothing is random: equal questions have
// equal answers.
#pragma once

#include <cstdint>
#include <vector>

#include "model/provision/finish_time.h"

namespace orrery {

struct PathModel {
  double groups = 0;    // G
  int64_t spares = 0;   // k
  double failures = 0;  // L W
  double work = 0;      // W
  double repair = 0;    // X
  double pause = 0;     // of all, at each failure
  double restore = 0;   // lost where the last group goes, besides its absence
};

struct Paths {
  std::vector<Outcome> outcomes;  // ascending, neighbours as one
  double mean = 0, variance = 0;  // of the time
  double without_spare = 0;       // expected failures that find none
  double all_away = 0;            // expected failures that take the last group
};
Paths PathsOf(const PathModel& model);

}  // namespace orrery
