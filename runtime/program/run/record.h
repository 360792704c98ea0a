// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind: every step of every rank, and the figures that follow.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/program/run/run_job.h"
#include "runtime/program/run/step_log.h"
#include "runtime/train/train_rank.h"

namespace orrery::cli {

// One rank's part, sent to rank 0 as text; times are medians over steps.
struct RankPart {
  int64_t rank = 0;
  std::string host;
  int64_t arena_bytes = 0;
  int64_t steps = 0;
  double compute_s = 0, communicate_s = 0, wait_s = 0, load_s = 0;
  double op_share = 0;  // of a step, in ops
};
std::string PartText(const RankPart& part);
RankPart ReadPart(const std::string& text);
// Fills in the medians.
void Summarise(const StepLog<launch::StepRecord>& steps, RankPart* part);

// A step of all ranks: it lasts until the last one is done.
struct RunStep {
  int64_t step = 0;
  double loss = 0, gradient_norm = 0;  // rank 0's
  double seconds = 0, load_s = 0;      // of the slowest rank each
  double rank_0_seconds = 0;
  bool disturbed = false;  // the system took a rank off its core
};
// What one rank knows of a step, added to what those before it knew.
void Merge(const launch::StepRecord& record, bool first_rank, RunStep* step);

struct RunRecord {
  std::vector<RankPart> parts;  // by rank; empty: none has begun
  StepLog<RunStep> steps;
};

// Seconds of a step; the first one (caches, page faults) and those in which the system took a rank
// off its core are left out while others are there.
struct StepSeconds {
  double min = 0, median = 0, max = 0;
  int64_t counted = 0;
  int64_t disturbed = 0;  // of those behind the first
  bool first_left_out = false;
  bool all_disturbed = false;  // and counted all the same
};
StepSeconds SecondsOf(const StepLog<RunStep>& steps);

// Of a place in the plan's order of nodes.
const std::string& HostOfPlace(const RunJob& job, const std::vector<RankPart>& parts,
                               std::size_t place);

// The median step's share that its slowest rank spends in loads, waiting for input.
double InputShare(const StepLog<RunStep>& steps);

// Share of the peak that the plan's FLOPs come to (recomputation does not count), all ranks:
// flops / (seconds * ranks * peak).
double Mfu(const RunJob& job, double seconds, double peak_flops_per_s);

// Schema orrery.run/1.
nlohmann::ordered_json RunJson(const RunJob& job, const RunRecord& record, double peak_flops_per_s);

}  // namespace orrery::cli
