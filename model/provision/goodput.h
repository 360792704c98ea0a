// SPDX-License-Identifier: Apache-2.0
// Which share of the time a job of many machines makes progress, when machines stop and checkpoints bring it back.
//
//   goodput = C / ( (M + D + s X) exp(R/M) ),
//   C = tau exp(-w/M) / (exp((tau + b)/M) - 1)                              after a stop without notice
//   C = M (1 - exp(-tau/M)) / (1 - exp(-(tau + b)/M))                        with notice of b + w or more
//
// M    mean time between stops of the job, exponential
// tau  computing between two checkpoints       b   part of a checkpoint that blocks computing
// w    background write: a checkpoint counts once it is durable; one is in flight at a time: tau + b >= w
// D    detection and replacement: the job is down and cannot stop      R   restart and load: may be stopped again
// s    share of stops that wait X more, for a node
//
// Derivation: from one restart to the next pass (M + D + s X) exp(R/M) in the mean; in a life of length T the checkpoints k with
// k (tau + b) + w <= T count, in the mean exp(-w/M) / (exp((tau + b)/M) - 1). With w = D = 0 this is Daly's exact
// expression (J. T. Daly, A higher order estimate of the optimum checkpoint interval, FGCS 22 (2006) 303). A stop with
// notice keeps all computing done, the mean of which is the second C.
// Range: infinite jobs; for a finite one see TimeOf(). Tested against simulations (failure_simulation.h).
#pragma once

#include <cstdint>
#include <limits>

#include "model/base/quantity.h"

namespace orrery {

struct StopModel {
  Seconds between;         // M, > 0
  Seconds blocking;        // b
  Seconds background;      // w
  Seconds detection;       // D
  Seconds restart;         // R
  double with_notice = 0;  // share of stops that are announced long enough ahead for a checkpoint
  double waits = 0;        // s: share of stops, none of them with notice
  Seconds wait;            // X, in the mean
  Seconds wait_deviation;  // of X, as if each came alone (WaitVariation())
  double wait_growth = 1;  // g: relative growth of all waits over that of failures (WaitGrowth())
  // What waits come from, for simulations: share of stops that send a node to repair, how long that takes, and spares.
  double repaired = 0;
  Seconds repair;
  int64_t spares = 0;
  Seconds MeanWait() const { return wait * waits; }  // over all stops
};

// The share of the time that is progress, with checkpoints after `interval` > 0 of computing.
double Goodput(const StopModel& model, Seconds interval);
// Neglects what is of second order in the ratio of losses to M: below zero where jobs hardly progress.
double FirstOrderGoodput(const StopModel& model, Seconds interval);

// The interval of the most goodput, at least w - b or, of a run that ends before, all of its `work`. Exact: without notice
// (1 - y) exp(y + b/M) = 1, y = tau/M, by Newton's method; with notice by bisection of the slope.
Seconds OptimalInterval(const StopModel& model,
                        Seconds work = Seconds(std::numeric_limits<double>::infinity()));
// The same without the limit of one checkpoint in flight and without notice; b > 0.
Seconds ExactInterval(Seconds between, Seconds blocking);
Seconds YoungInterval(Seconds between, Seconds blocking);  // sqrt(2 b M) (CACM 17 (1974) 530)
Seconds DalyInterval(Seconds between, Seconds blocking);   // of higher order; M where b >= 2 M

// A job of `work` seconds without a stop.
struct JobTime {
  Seconds mean, deviation;
  double stops = 0;  // expected
};
// mean T = work / goodput + w; stops S = T / (M + D + s X), for a job that is down cannot stop.
//
// Deviation: lives from one restart to the next are alike, so that (Z seconds, Y of computing kept in each) the variance per
// second of work is V / E[Y], V = E[(Z - t Y)^2], t = E[Z] / E[Y] = 1 / goodput (renewals with rewards: W. L. Smith, Proc. Royal
// Society A 232 (1955) 6). With P = tau + b, x = exp(-P/M), and y(a) an exponential time that ended within a:
// X varies, too, and adds s Var(X) for each stop. Where more failures come, more than in proportion wait: failures are Poisson, so
// that the covariance of their number and all waits is g times the mean wait (d E[waits] / d rate), not once, which adds
// 2 (g - 1) s X times what a stop costs besides.
//   Z = A + R + (D, X more with probability s) + K times (D, X or not, y(R));  A exponential, K geometric, mean exp(R/M) - 1
//   without notice  A - t Y = y(P + w), or in exp(-(P + w)/M) of lives w + y(P) + N (P - t tau), N >= 1 geometric, mean 1/(1 - x)
//   with notice     A - t Y = k (P - t tau) + r - t min(r, tau), r = y(P), k >= 0 geometric, mean x/(1 - x)
// Without notice Y is whole intervals, and V tau / E[Y] is the variance of the time between two checkpoints: it holds for any
// number of them and of stops. What remains behind the last write that is durable in time is a life without one: P = its work,
// b = w = 0.
// Range: against simulated runs (200 random settings, goodput 5 to 99 %, 0.1 to 1,000 stops) within 5 % and chance. The mean is that
// of an endless job: of runs of one or two intervals that a write takes up it is up to a fifth off.
JobTime TimeOf(const StopModel& model, Seconds interval, Seconds work);

// Fewest spare nodes such that more nodes are in repair with at most this probability (Poisson).
int64_t SparesFor(double mean_in_repair, double shortage_probability);
// Probability that a failure finds all spares in repair. The job waits then and cannot fail, so that no more than spares + 1 are
// in repair: Erlang's loss formula, B(k) = a B(k - 1) / (k + a B(k - 1)), B(0) = 1, whatever the distribution of repairs (A. K.
// Erlang 1917; B. A. Sevastyanov, Theory of Probability and its Applications 2 (1957) 104). a: mean in repair, were there no waits.
double FindsNone(double mean_in_repair, int64_t spares);
// Waits come in bunches: the variance that a wait would have, in squares of its mean r/(k + 1) of a repair r, if waits that come
// one by one made a run vary as these do. A run waits while all c = k + 1 are in repair, a share p of the time, so that its time
// varies with how likely they are so again t later, P(t). For t <= r that is exact: d of the c repairs, uniform, are over
// and the n failures of that time came early enough to take the place of each (ballots), (n - d + 1)/(n + 1):
//   2 c int_0^1 (P(t) - p) dt / (1 - p)^2 - 1,   P(t) = sum_d Bin(d; c, t) sum_{n >= d} Poisson(n; a t) (n - d + 1)/(n + 1)
// What lasts longer than a repair are heavy loads: half the variance of exponential repairs, in the limit exact,
//   p c / (a (1 - p)^2) sum_{j < k} F_j^2 / p_j,   F_j = p_0 + .. + p_j,  p_j of Erlang's system with c servers
// The larger of both is within 8 % of simulations (1 to 32 spares, 0.2 to 95 % of failures waiting). Without spares all waits are equal: 0.
double WaitVariation(double mean_in_repair, int64_t spares);
// d ln W / d ln a of waits W that grow as p/(1 - p): c/(1 - p) - a, since dp/da = p (c/a - 1 + p). 1 without spares.
double WaitGrowth(double mean_in_repair, int64_t spares);
// Share of failures that wait in a run that begins with none in repair, and how long, in repairs; `up`: time in which it can
// fail, in repairs; `variation`: WaitVariation(). With a failures in a repair's time, c = k + 1 and p as above it waits in the mean
//   (p up + O + p (1 - p) (1 + variation) / (2 c)) / (1 - p),   O = int_0^1 (P(Poisson(a t) >= c) - p) dt
// O: nothing is back before one repair has passed; the last term: a run ends computing, not in a wait (Poisson's equation of
// the system: h of a wait is the integral of P(t) - p). At least the first wait, P(Poisson(a u) = k) a du times 1 - u k/c, at
// most FindsNone(a u) of the failures at u < 1. Within 0.01 of simulations where spares are at least half of what is in
// repair; of runs shorter than a repair with fewer, too long by a tenth.
struct Shortage {
  double share = 0, wait = 0;
};
Shortage ShortageIn(double up, double mean_in_repair, int64_t spares, double variation);

}  // namespace orrery
