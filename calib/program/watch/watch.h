// SPDX-License-Identifier: Apache-2.0
// A job's log against its prediction: when step time or memory are outside, since which step, and why.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calib/compare/same_job.h"
#include "calib/import/training_log.h"

namespace orrery::watch {

// What a plan says of a step.
struct Expectation {
  double step = 0, low = 0, high = 0;  // seconds; 80 % interval
  std::string layout, digest;
  std::vector<std::pair<std::string, double>> terms;  // seconds of the breakdown, above 0
  // Bytes of a GPU that the allocator hands out at the peak, and those that it keeps for it; 0: not said.
  double allocated = 0, reserved = 0;
  measured::StepSize size;
  compare::PlannedJob job;
  double nodes = 0;       // 0: not said
  double peak_share = 0;  // of the GPUs' peak rate, as measured::StepSample has it; 0: not said
  std::optional<double> price;  // dollars per step
};

// From the JSON of `plan` (its first layout), `plan predict` and `plan simulate`. Throws InputError.
Expectation ReadExpectation(const SourcePtr& source);

enum class Side { kInside, kSlower, kFaster };

// What a departure may come from: a term that would explain it alone, or a rank.
struct Reason {
  std::string term;   // "compute"; "": a rank
  std::string timer;  // of a rank: what it takes longer in; "": all that the log times by rank
  double factor = 0;  // its time over the predicted; of a rank: its time over the others' median
  bool measured = false;  // by timers of the log, not by elimination
  int64_t rank = -1;      // the slowest
  bool local = false;     // ranks count in each of several nodes
  // By lines of ranks: all that are as slow, and the tasks of srun that they belong to; none: not said.
  std::vector<int64_t> ranks, tasks;
};

struct Departure {
  bool memory = false;    // else of the step time
  bool mean = false;      // of all steps: those outside stand apart, and cost as much together
  bool reserved = false;  // of memory: what the allocator keeps, not what it hands out
  Side side = Side::kInside;
  int64_t since = -1;     // step; -1: the log does not count
  int line = 0;           // of that step
  std::size_t steps = 0;  // outside until now; of memory: lines
  double measured = 0;    // median of them, or the mean of all: seconds; or bytes (largest)
  double predicted = 0, bound = 0;
  std::vector<int64_t> ranks;           // of memory: those outside, where the log says whose it is
  bool local = false;                   // `ranks` count in each of several nodes
  std::vector<int64_t> tasks;           // of srun, each with `ranks` at its place; none: not said
  std::size_t of_ranks = 0;             // that the log has
  bool over = false;                    // it went back inside
  std::vector<Reason> reasons;          // most likely first
  double extra_hours = 0;               // per 1000 steps, at this rate
  std::optional<double> extra_dollars;  // per 1000 steps
};

struct LogCheck {
  bool foreign = false;          // the log is another program's
  compare::ToldJob told;         // by such a log
  std::size_t steps = 0;         // with a time, without the first one, which warms up
  std::optional<double> median;  // seconds of them
  double peak_share = 0;    // that the median would come to; above 1 no GPU is as fast. 0: not said
  std::size_t outside = 0;  // of the steps: those outside the interval
  int patience = 1;         // that it was checked with
  std::vector<Departure> departures;  // in order
  bool outside_before =
      false;  // a departure was said that is none now: of a log that was replaced, or of its mean
  bool Inside() const { return departures.empty(); }
  bool LossIsLost() const { return told.loss && told.loss->lasts; }
};

// `patience` steps in a row make a departure, in two lines or in one that is the mean of 20 steps at least; as many apart do if they take the mean of all steps outside. Throws InputError: no step of the log can be timed, or the log is of
// another job: see PlannedJob, and a global batch that no step shares with the plan.
LogCheck CheckLog(const measured::TrainingLog& log, const Expectation& expected, int patience);

std::string DepartureText(const Departure& one, const Expectation& expected);
std::string SummaryText(const LogCheck& check, const Expectation& expected);
nlohmann::ordered_json DepartureJson(const Departure& one);
std::string LossText(const measured::LossFault& loss);
nlohmann::ordered_json LossJson(const measured::LossFault& loss);
nlohmann::ordered_json SummaryJson(const LogCheck& check, const Expectation& expected);

}  // namespace orrery::watch
