// SPDX-License-Identifier: Apache-2.0
// What a topology at a number of nodes takes at least, in days and dollars: by the work of a sequence, or by what was looked for
// in vain.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "model/provision/choices.h"
#include "model/provision/chosen_rows.h"
#include "model/provision/points.h"

namespace orrery {

// A topology at a number of nodes, for all its quotes: what a frontier evaluates at once.
struct Unit {
  std::size_t site = 0;
  int64_t nodes = 0;
  std::vector<std::size_t> quotes;
  double least_cost = std::numeric_limits<double>::infinity();  // of its quotes, for the order
};

// Question, quotes and sites must outlive it. Not for concurrent use.
class UnitBounds {
 public:
  UnitBounds(const Question& question, const std::vector<Quote>& quotes,
             const std::vector<Site>& sites)
      : question_(question), quotes_(quotes), sites_(sites), work_(sites.size(), 0.0) {}

  // GPU seconds of a sequence on a site at least (FastestLayouts::LeastGpuSeconds()); 0: not known.
  void SetWork(std::size_t site, double gpu_seconds) { work_[site] = gpu_seconds; }
  double Work(std::size_t site) const { return work_[site]; }
  // No layout of the unit takes fewer seconds for a sequence.
  void SetNoneBelow(const Unit& unit, double seconds) {
    none_below_[{unit.site, unit.nodes}] = seconds;
  }
  std::size_t closed() const { return none_below_.size(); }  // units with such a bound

  // The least runs of a quote on a unit, by number of spares.
  const std::vector<LeastRun>& RunsOf(const Unit& unit, std::size_t quote);
  // Of all its quotes some known run is at least as good in both, even where a sequence takes only `gain` of what the bounds say.
  bool Beaten(const Unit& unit, const Frontier& frontier, double gain);
  // Seconds of a sequence from which on that is so; infinity: it never is.
  double SecondsToReach(const Unit& unit, const Frontier& frontier, double gain) const;
  // Seconds of a sequence from which on no run of the unit is cheaper than what is known of its quotes (`cheapest`, by quote);
  // infinity: nothing is.
  double SecondsToBeat(const Unit& unit, const std::vector<Price>& cheapest) const;

 private:
  double Seconds(const Unit& unit) const;  // of a sequence
  // From which on no quote of the unit has runs that `matter`; none that is slower may.
  double SecondsUntil(
      const Unit& unit,
      const std::function<bool(std::size_t quote, const std::vector<LeastRun>&)>& matter) const;
  std::vector<LeastRun> RunsAt(const Unit& unit, std::size_t quote, double seconds) const;

  const Question& question_;
  const std::vector<Quote>& quotes_;
  const std::vector<Site>& sites_;
  std::vector<double> work_;                                      // by site
  std::map<std::pair<std::size_t, int64_t>, double> none_below_;  // by site and nodes
  struct Known {
    double seconds = -1;  // of a sequence
    std::vector<LeastRun> runs;
  };
  using Runs = std::map<std::pair<std::size_t, int64_t>, Known>;  // by quote and nodes
  const std::vector<LeastRun>& Keep(const Unit& unit, std::size_t quote, double seconds,
                                    Runs* kept);
  Runs runs_, gained_;  // asked each time that the frontier has moved
};

}  // namespace orrery
