// SPDX-License-Identifier: Apache-2.0
// Which offer, how many nodes and how many spares: days against dollars over all of them.
//
// Exact: the frontier, and so the cheapest row within a deadline and the fastest within a budget, are those of evaluating
// every offer at every node count with every number of spares (tests/provision proves it by doing so). Cheap for three
// reasons. Offers of one topology share their step times, and so do all numbers of spares. A lower bound of the GPU
// seconds of a sequence (FastestLayouts::LeastGpuSeconds) gives every (offer, nodes, spares) a least time and a least cost;
// where a row that is known already is better than both for all offers and spares, no layout is looked for. And where one is,
// any that is fast enough for the frontier comes first: most machines have none. A bound that an evaluated row contradicts is dropped
// for its topology, and all its node counts are evaluated.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/provision/batch_range.h"
#include "model/provision/long_run.h"
#include "model/twin/fastest.h"

namespace orrery {

// A topology with the job on it. Request and profiles stay where they are while others refer to them.
struct Site {
  SearchRequest request;
  Profiles profiles;
  std::vector<BatchSpan> batches;  // ascending; empty: SequencesOf() the range
};

struct Question {
  Conditions conditions;
  std::optional<Seconds> deadline;
  std::optional<Dollars> budget;
  std::vector<int64_t> nodes;  // counts to try, ascending
  // Of a range, which names no count of its own: what an offer sells in steps is tried as well, where those are few.
  std::optional<std::pair<int64_t, int64_t>> any_nodes;
  BatchRange range;                // where a site names no batches
  bool every = false;              // evaluate all, no bounds
  int threads = 0;                 // 0: as many as the machine has
  double simulation_effort = 4e7;  // for the step times of the frontier; 0: closed form alone
  int64_t comparison_effort =
      12000;  // splits to look at for offers off the frontier (FastestLayouts::looked): 5 to 10 s
  // Says what is done and which share of it; may be empty.
  std::function<void(const char* what, double share)> progress;
};

// One offer at one node count with one number of spares, with its best layout and batch.
struct Row {
  std::size_t quote = 0, site = 0;
  int64_t nodes = 0;
  Candidate candidate;  // memory exact, without plan
  RunEstimate run;
  bool on_frontier = false;
  bool tie = false;  // in time, and its cost interval overlaps that of the cheapest in time
};

// What the bounds say of an offer.
struct QuoteBounds {
  Seconds least_time;
  Dollars least_cost;  // may be of other node counts
  bool known = false;  // some node count is possible
};

inline constexpr double kSure = 0.95;  // a run that keeps a limit so likely may be relied on

struct Provisioned {
  // Evaluated, by cost; off the frontier with one number of spares: cheapest in time, else fastest.
  std::vector<Row> rows;
  std::vector<std::size_t> frontier;  // into rows; cheapest first, each faster than the one before
  std::optional<std::size_t> cheapest, fastest;  // within the limits, else of all
  std::optional<std::size_t> sure;  // cheapest whose deadline is kept with kSure; empty without one
  std::optional<std::size_t> fastest_sure;  // fastest whose budget is kept with kSure; likewise
  bool feasible = true;                     // a row keeps deadline and budget
  bool setup_too_long = false;              // for the deadline, whatever the machines
  std::vector<QuoteBounds> bounds;          // by quote
  // By quote: off the frontier, and the comparison ended before it was known whether some node count is cheaper than its rows.
  std::vector<bool> open;
  std::vector<std::string>
      no_layout;  // by quote: why nothing fits; "": something does, or bounds decided
  int64_t units = 0, evaluated = 0;  // (topology, nodes)
  int simulated = 0;                 // rows whose step time is simulated
};

// `sites` by quote: which site each quote is of. Throws what a search throws.
Provisioned Provision(const Question& question, const std::vector<Quote>& quotes,
                      const std::vector<std::size_t>& site_of, const std::vector<Site>& sites);

}  // namespace orrery
