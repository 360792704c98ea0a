// SPDX-License-Identifier: Apache-2.0
// `plan --tokens N`: the ranked layouts as whole runs; `plan --topology A,B`: the best of each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/program/common/job.h"
#include "model/program/plan/long_run_flags.h"
#include "model/program/plan/placement_report.h"

namespace orrery::report {

// Estimates of all ranked layouts. Conditions hold the tokens.
std::vector<RunEstimate> EstimateRuns(const Job& job, const SearchResult& result,
                                      const cli::LongRun& run);

// A section of the text, and the key "training" of the JSON.
std::string TrainingText(const Job& job, const SearchResult& result, const cli::LongRun& run);
nlohmann::ordered_json TrainingJson(const Job& job, const SearchResult& result,
                                    const cli::LongRun& run);

// One topology of several.
struct Compared {
  Job job;
  SearchResult result;
  std::vector<PlacedRow> placed;  // --placement search
};
// Best first by the objective: those within the deadline and the budget, the others, what fits nowhere.
std::vector<std::size_t> OrderOf(const std::vector<Compared>& all, const cli::LongRun& run);
std::string ComparisonText(const std::vector<Compared>& all, const cli::LongRun& run);

}  // namespace orrery::report
