// SPDX-License-Identifier: Apache-2.0
// The number of nodes in repair where each repair takes the same time X, beyond what a chain without memory knows of it.
//
// Failures are a Poisson process, so that the number n in repair is Poisson with mean m; k spares cover the first of them and
// e(n) = max(0, n - k) groups are away. Two moments t apart share the repairs under way at both: those have mean m rho, with
//   rho = 1 - t / X where repairs take X;   rho = exp(-2 t / X) in a chain of births and deaths that moves twice as fast.
// C(rho) = covariance of e at both moments = variance of E[e | the shared ones] = sum over j of a_j rho^j, a_j >= 0 (Charlier).
// The integral of e over a long time has a variance of 2 X C per X, C the integral of C(rho) over the time between the moments:
// sum a_j / (j + 1) for fixed repairs, sum a_j / (2 j) in the chain. Equal without spares, where e is linear; with spares the
// chain forgets too early, and has up to half of the variance.
#pragma once

#include <cstdint>
#include <vector>

#include "model/base/quantity.h"

namespace orrery {

// P(n >= least) and E max(0, n - k), n Poisson with that mean.
double AtLeast(double mean, int64_t least);
double MeanWithoutSpare(double mean, int64_t spares);

// Variance of the time lost with fixed repairs over that of the chain, of long jobs; >= 1.
double VarianceOverChain(double mean_in_repair, int64_t spares);

// The mean number in repair from the start on, when all nodes are there and none comes back for X; then as many come back in
// each moment as failed X before (an equation with delay, by steps of X/64). Per second of running.
class RepairPath {
 public:
  // `rate`: failures per second of work; `work`: how far it is followed.
  RepairPath(double groups, int64_t spares, double rate, double repair, double work);
  // After so many seconds of work, but not before the first node is back: moves of a node per second, out of repair and as
  // many in and out again as fail (the chain moves twice as fast). 2 / X in the long run.
  double Returns(double work) const;
  double FirstReturn() const { return done_.front(); }  // seconds of work until then
  double ThereAtFirstReturn() const { return there_; }  // share of the groups
  double settled() const { return settled_; }           // in repair, in the long run

 private:
  double settled_ = 0, there_ = 1;
  std::vector<double> done_,
      returns_;  // by time after the first X: seconds of work, and what Returns() of them says
};

}  // namespace orrery
