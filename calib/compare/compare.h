// SPDX-License-Identifier: Apache-2.0
// A predicted step beside a measured one, term by term.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calib/compare/same_job.h"
#include "calib/import/training_log.h"

namespace orrery::compare {

// Seconds per rank and step. Absent on one side: that file does not have the term.
struct Term {
  std::string work;   // of measured::WorkNames(), "idle", or the name of a term of BreakdownTerms()
  std::string phase;  // "": all of them
  std::string stream;
  double predicted = 0, measured = 0;
  double share = 0;  // of the sum of all |differences| of its table
  double difference() const { return measured - predicted; }
};

// Smaller differences, as a share of the measured step, are no reason.
inline constexpr double kLeastBlamed = 1e-3;

// A rank that computes longer in the measured step than the others, beside the prediction.
struct Straggler {
  int64_t rank = 0;
  double slowdown = 0;  // its compute over that of the median rank
};
inline constexpr double kStraggles = 1.05;

// Of a log of another program: the step without the timers that the prediction names alike.
inline constexpr const char* kRest = "rest of the step";

// A figure of the step beside its measurement. Absent on one side: that file does not say it.
struct Pair {
  std::optional<double> predicted, measured;
};

struct Comparison {
  std::string predicted_file, measured_file;
  std::string digest;    // of both; "": the measured log has none
  bool foreign = false;  // the measured log is another program's
  ToldJob told;          // by such a log
  bool OnTrust() const { return foreign && told.OnTrust(); }
  double predicted_step = 0, measured_step = 0;  // seconds
  bool by_throughput = false;  // measured_step: the prediction's batch over the log's throughput
  std::size_t measured_steps = 0;                     // behind the median
  std::optional<std::pair<double, double>> interval;  // of predicted_step, 80 %
  Pair samples, tokens_per_s;                         // of one step; per second
  Pair allocated, reserved;  // bytes at the peak of the allocator on one GPU; with its free blocks
  // Of the GPUs' peak rate: what the measured step would come to by the prediction's FLOP, and what the log says itself.
  std::optional<double> peak_share, own_mfu;
  std::string precision, optimizer;                      // of the job; "": not said
  std::optional<Straggler> straggler;                    // of the measured step
  bool predicted_trace = false, measured_trace = false;  // these files hold kernels and messages
  int64_t garbled_lines = 0;                             // of both files
  std::vector<Term> by_work, by_phase, by_stream;        // largest difference first
  std::vector<Term> by_work_and_phase;
  // Terms of the breakdown that both sides have. They add up to the step; those of traces with what a rank waits. Of a
  // record and a trace: kernels, and all else.
  std::vector<Term> by_part;
  bool HasTerms() const { return !by_work.empty() || !by_part.empty(); }
  double error() const { return predicted_step / measured_step - 1; }
  bool InInterval() const;  // measured_step is; false without one
  bool AbovePeak() const;   // no GPU is as fast as the log says
  // Its time is that of a wait for the straggler.
  bool WaitsForStraggler(const Term& term) const;
  // That govern the term in this job; none where it waits for a straggler.
  std::vector<std::string> Constants(const Term& term) const;
  // The kind of work (or term of the breakdown) that differs most, idle time only when nothing else does, and of it
  // the phase that differs most where phases are known; null: there is no table, or nothing differs by more than
  // kLeastBlamed of the measured step.
  const Term* CulpritWork() const;
  const Term* Culprit() const;
};

// Throws InputError: `predicted` is no prediction of this project's, different plans (both digests are named), a log of another
// job (PlannedJob), no step time on one side.
Comparison Compare(const measured::TrainingLog& predicted, measured::TrainingLog measured);

}  // namespace orrery::compare
