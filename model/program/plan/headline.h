// SPDX-License-Identifier: Apache-2.0
// What an answer says first, read back from its JSON: the step of its first row, or the run that it tells in full.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::cli {

// One offer or topology.
struct HeadlineRow {
  std::string name;   // "nebius-b200"; "" where there is one alone
  std::string nodes;  // "32 + 1" with spares; ""
  std::string layout;
  double seconds = 0;                          // of the step
  std::optional<double> run_seconds, dollars;  // of the run; empty: none is asked for, no price
  std::string beyond;                          // "too late, over the budget"; "": within the limits
};

struct Headline : HeadlineRow {
  nlohmann::ordered_json breakdown;
  // Each offer's cheapest run in time, else its fastest; each topology's first row. The headline is one of them. Empty:
  // there is one alone.
  std::vector<HeadlineRow> rows;
  // Of `plan provision`: days against dollars, cheapest first, and its fastest run within the limits.
  std::vector<HeadlineRow> frontier;
  std::vector<std::size_t> shown;  // places in it of the rows that its table prints
  std::optional<HeadlineRow> fastest;
  std::optional<HeadlineRow> sure;  // cheapest that is likely in time; empty without a deadline
  std::optional<HeadlineRow> fastest_sure;  // fastest likely within the budget; likewise
  // Runs that an answer names besides its first, with their names, told or not.
  std::vector<std::pair<const char*, const std::optional<HeadlineRow>*>> OtherAnswers() const {
    return {{"cheapest that is likely in time", &sure},
            {"fastest", &fastest},
            {"fastest that is likely within the budget", &fastest_sure}};
  }
};

// "nebius-b200, 32 + 1 nodes"; "" without a name.
std::string PlaceOf(const HeadlineRow& row);
// "32 + 1 nodes, 20.2 d, 1.09 MUSD"; without a run the time of the step.
std::string RowWords(const HeadlineRow& row);

// Of an answer of `plan`, `predict`, `simulate` or `provision`; nullopt: nothing fits, or another answer.
std::optional<Headline> HeadlineOf(const nlohmann::ordered_json& answer);

}  // namespace orrery::cli
