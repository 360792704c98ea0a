// SPDX-License-Identifier: Apache-2.0
// Jobs that go on with fewer replicas: a failed node takes its group away until a spare or a repaired node is there.
//
// Of the N nodes in G groups, n are in repair for X each, k spares take the places of the first of them:
//   A(n) = 1 - max(0, n - k) / G of the throughput is left. A group that is away cannot fail, so that failures are a Poisson
//   process of the work, L = N r per second of work with all groups, whatever is away.
//   in the long run P(n) ~ (L X)^n / n! x A(0) ... A(n - 1) (insensitive to how long repairs take),
//   goodput = A (1 - L A s/2) / (1 + L A p), A the mean of A(n); without spares A = 1 / (1 + g r X)
// A stop pauses the others for p and repeats half a step s. An interruption takes a group away for D, of which p is the pause
// of all, and no node into repair.
//
// A job that ends starts with all nodes, and none comes back for X. Up to a number of failures, and for six X at least, its
// time is that of elastic_paths.h, whose memory of when nodes left is complete; each second of work beyond adds 1/A + L p in the
// mean, the product form above, and as much variance as before (without spares (X/G)^2 L: T = W + X/G x failures).
// Range: any g r X. Against simulations (failure_simulation.h), 200 random settings each, none left out: the mean is off by 0.03 %
// on average and 0.4 % at most for g r X up to 0.4, by 0.1 and 0.9 % up to 1, by 0.2 and 1.2 % up to 4, most of which is the
// simulations' own chance; the spread by 4 %, and by 10 % where failures without a spare are a few in a hundred jobs.
#pragma once

#include <cstdint>
#include <vector>

#include "model/base/quantity.h"
#include "model/provision/finish_time.h"
#include "model/provision/goodput.h"

namespace orrery {

struct ElasticModel {
  double nodes = 0;          // N; at least one group is whole
  double group_nodes = 0;    // g
  double node_rate = 0;      // r, failures per node and second
  Seconds repair;            // X
  Seconds pause;             // p
  Seconds step;              // s
  int64_t spares = 0;        // k
  double interruptions = 0;  // per node and second
  Seconds replacement;       // D
  Seconds restore;  // what it costs that the last group goes, besides its absence: SetRestore()
  Seconds restore_deviation;                                              // from one to the next
  double Away() const { return group_nodes * node_rate * repair.value; }  // g r X
  double Groups() const;                                                  // G, whole ones
  // What is left of D after the pause.
  Seconds Replaced() const { return replacement > pause ? replacement - pause : Seconds(0); }
  Seconds Each() const { return pause + step / 2; }  // what a stop costs whatever is away
};

// How often all groups are away at once, per second in the long run: then the states are in no memory.
double AllAwayRate(const ElasticModel& model);

// Share of the throughput of all groups over an endless job.
double ElasticGoodput(const ElasticModel& model);

// Where the last group goes its states are lost: the first group to be back loads a checkpoint. In seconds of mean throughput A:
// before the last group goes and after the first is back the others are in repair, for a uniform time each, so that over
// x = X (G - 1) / (G + k - 1) the throughput rises from 1/G to A, and t seconds then are worth t - (1 - 1/(G A)) (t - t^2/2x).
// Lost are restart and load, and what passed since the last durable checkpoint (goodput.h: w, P), at any moment of the run;
// while that is done again the last group may go again. `restores`: the stops that take it; `period`: P.
// Range: P up to the time between restores. Against played runs on 2 to 4 groups, 200 random settings of storage from 30 MB/s,
// the days are off by at most 1.2 %, most of it chance, and the spread by at most 11 % where restores are not a few in all runs.
void SetRestore(const StopModel& restores, Seconds period, Seconds run, ElasticModel* model);

struct ElasticTime {
  Seconds mean, deviation;
  double failures = 0, interruptions = 0;  // expected stops
  double short_of_spares = 0;              // expected failures that find no spare
  double restores = 0;                     // expected failures that take the last group
  // Of those: what one costs besides Each(), in the mean, and its standard deviation.
  Seconds absence, absence_deviation;
  std::vector<Outcome>
      outcomes;  // of few failures (elastic_paths.h): the time without interruptions
};
// Of `work` seconds with all groups.
ElasticTime ElasticTimeOf(const ElasticModel& model, Seconds work);
// Failures that find no spare cost a group's absence, all stops what they cost whatever is away.
StopLosses LossesOf(const ElasticModel& model, const ElasticTime& time);

}  // namespace orrery
