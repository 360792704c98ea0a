// SPDX-License-Identifier: Apache-2.0
// What a search of whole runs ranks by: their days or dollars with failures, spares and setup.
//
// Those of MeanRun(), at as many spares as suit the fastest layout of so many nodes: who rents nodes rents one number of
// them, whatever layout runs there, and a slower layout is no shorter run for another spare.
// Idea: they depend on the nodes, on the seconds that all steps take and, where a job shrinks, on the nodes that leave with one
// of them; of a batch only whole intervals between checkpoints do. In those seconds they are nearly straight (work over
// goodput), so that few points are enough.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "model/base/curve.h"
#include "model/provision/long_run.h"

namespace orrery {

// Bills are whole hours or so: of equal ones the shorter run counts as the cheaper by a millionth.
class RunValues : public RunValue {
 public:
  // `quote`: empty: no price. `keeps`: the limits of the run.
  RunValues(const Conditions& conditions, Objective objective, std::optional<Quote> quote,
            std::function<bool(const RunEstimate&)> keeps);

  // The fastest layout on so many nodes; before the search. Where none is known, no spares. Returns its run.
  RunEstimate SetFastest(const Job& job, const Prediction& step);

  double Of(const Job& job, int64_t replicas, double step_seconds) const override;
  double StepOf(const Job& job, int64_t replicas, double value) const override;

 private:
  struct OfNodes {
    int64_t spares = 0;
    double work = 0;  // seconds of all steps
    int64_t batch = 1;
  };
  double Steps(const Job& job) const;
  int64_t NodesOf(const Job& job) const;
  Dollars TieOf(int64_t nodes) const;  // a second of a run among equal bills
  const IncreasingCurve& CurveOf(const Job& job, int64_t replicas) const;
  IncreasingCurve Draw(Job job, int64_t replicas) const;
  const Quote* quote() const { return quote_ ? &*quote_ : nullptr; }

  Conditions conditions_;  // without input: the step has it
  const Objective objective_;
  const std::optional<Quote> quote_;
  const std::function<bool(const RunEstimate&)> keeps_;
  std::map<int64_t, OfNodes> nodes_;
  mutable std::shared_mutex mutex_;
  // Of the days over the seconds of all steps, by nodes and nodes of a replica (0: the job does not shrink). References to them stay.
  mutable std::map<std::pair<int64_t, int64_t>, IncreasingCurve> curves_;
};

}  // namespace orrery
