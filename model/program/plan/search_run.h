// SPDX-License-Identifier: Apache-2.0
// The search behind `plan` and `plan export`.
#pragma once

#include "model/program/common/job_flags.h"
#include "model/program/plan/long_run_flags.h"
#include "model/program/plan/placement_report.h"

namespace orrery::cli {

inline constexpr int64_t kRefine = 5;  // layouts to simulate at least, where no flag says so

struct SearchSettings {
  Objective objective = Objective::kTime;
  int top = 5;
  int refine = kRefine;
  Flag objective_flag;  // for messages
  // Decoders search their batch in the range for its tokens; null, or without tokens: nothing is said of a run.
  const LongRun* run = nullptr;
  std::vector<PipelineSchedule> schedules;  // that may be chosen; empty: all of the framework
};
struct SearchOutcome {
  report::Job job;
  SearchResult result;
  std::vector<report::PlacedRow> placed;  // --placement search: of the first rows
};
// A row with the placement that was found for it, or that the flags fix.
Candidate PlacedCandidate(const report::Job& job, const SearchResult& result,
                          std::span<const report::PlacedRow> placed, int row);
// Throws InputError: no layout is legal at all, whatever the memory.
SearchOutcome RunSearchOf(const JobFlags& job, const LayoutFlags& layout,
                          const SearchSettings& settings);

}  // namespace orrery::cli
