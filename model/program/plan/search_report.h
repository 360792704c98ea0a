// SPDX-License-Identifier: Apache-2.0
// The ranked plan: table, why the first wins, what limits it, what was rejected and by what.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/program/common/job.h"

namespace orrery::report {

inline constexpr int kMostRefined = 100;  // --refine

// How ranks are placed, in words: of the best layout, and of the ranking.
struct PlacedWords {
  std::string best, ranking;
};
std::string SearchText(const Job& job, const SearchResult& result, const PlacedWords& placed = {});
nlohmann::ordered_json SearchJson(const Job& job, const SearchResult& result);  // search_json.cc

// Remarks of both. Where the margin of memory decides the ranking; "": it does not.
std::string NearlyFull(const Job& job, const SearchResult& result);
std::string Ties(const SearchResult& result);  // "": nothing ties with plan 1
std::string NearMiss(const Job& job, const SearchResult& result, const Candidate& miss);

// Which rows wait for their input, and the step with it; "": none does.
std::string WaitingForInput(const Job& job, const SearchResult& result);
// The command line that predicts this candidate again: "plan predict --model ...".
std::string PredictCommand(const Job& job, const Candidate& candidate);

// By what the search ranks: "time", "cost of the run", "tokens per dollar".
const char* Aim(const SearchRequest& request);

// Columns in which all rows are alike and plain (no pipeline, no ZeRO, ...) are left out.
std::string RankedTable(const Job& job, const std::vector<Candidate>& candidates);

// A section of the text; empty when nothing was refined.
std::string RefinementText(const SearchRequest& request, const SearchResult& result);

// Key "refinement", and the keys that a ranked candidate has more for it.
nlohmann::ordered_json RefinementJson(const SearchRequest& request, const SearchResult& result);
nlohmann::ordered_json SimulatedJson(const Candidate& candidate);

}  // namespace orrery::report
