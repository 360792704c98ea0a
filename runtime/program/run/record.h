// SPDX-License-Identifier: Apache-2.0
// What a run leaves behind: every step of every rank, and the figures that follow.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/program/run/run_job.h"
#include "runtime/train/train_rank.h"

namespace orrery::cli {

// One rank's part, sent to rank 0 as text.
struct RankPart {
  int64_t rank = 0;
  std::string host;
  int64_t arena_bytes = 0;
  std::vector<launch::StepRecord> steps;
};
std::string PartText(const RankPart& part);
RankPart ReadPart(const std::string& text);

// Seconds of a step; the first one (caches, page faults) and those in which the system took a rank
// off its core are left out while others are there.
struct StepSeconds {
  double min = 0, median = 0, max = 0;
  int64_t counted = 0;
  int64_t disturbed = 0;  // of those behind the first
  bool first_left_out = false;
  bool all_disturbed = false;  // and counted all the same
};
StepSeconds SecondsOf(const std::vector<RankPart>& parts);

// Of a place in the plan's order of nodes.
const std::string& HostOfPlace(const RunJob& job, const std::vector<RankPart>& parts,
                               std::size_t place);

// The median step's share that its slowest rank spends in loads, waiting for input.
double InputShare(const std::vector<RankPart>& parts);

// Share of the peak that the plan's FLOPs come to (recomputation does not count), all ranks:
// flops / (seconds * ranks * peak).
double Mfu(const RunJob& job, double seconds, double peak_flops_per_s);

// Schema orrery.run/1.
nlohmann::ordered_json RunJson(const RunJob& job, const std::vector<RankPart>& parts,
                               double peak_flops_per_s);

}  // namespace orrery::cli
