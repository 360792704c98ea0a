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

// One topology of several, or the only one.
struct Compared {
  Job job;
  SearchResult result;
  std::vector<PlacedRow> placed;  // --placement
};

// The step of row `row` in the order of ranks that was found or given for it; intervals keep their shares.
Candidate InItsOrder(const Candidate& candidate, int row, std::span<const PlacedRow> placed);

// The price of --node-price or of the topology, as an offer on demand; empty: there is none.
std::optional<Quote> QuoteOf(const Job& job);

// Estimates of all ranked layouts, in the order of ranks of `placed`, each with the spares of the first of so many nodes.
// Conditions hold the tokens.
std::vector<RunEstimate> EstimateRuns(const Compared& one, const cli::LongRun& run);

// A section of the text, and the key "training" of the JSON.
std::string TrainingText(const Compared& one, const cli::LongRun& run);
nlohmann::ordered_json TrainingJson(const Compared& one, const cli::LongRun& run);
std::string RunBrief(const Compared& one, const cli::LongRun& run);  // of row 1, in one line

// Best first by the objective: those within the deadline and the budget, the others, what fits nowhere.
std::vector<std::size_t> OrderOf(const std::vector<Compared>& all, const cli::LongRun& run);
// Those with a price whose best layout no other's equals or beats in days and dollars, the fastest first. Needs tokens.
std::vector<std::size_t> FrontierOf(const std::vector<Compared>& all, const cli::LongRun& run);
// Topologies that are faster than the best and stand below it, for nothing says what they cost; "": none.
std::string PassedOverWords(const std::vector<Compared>& all, const cli::LongRun& run);
std::string ComparisonText(const std::vector<Compared>& all, const cli::LongRun& run);

}  // namespace orrery::report
