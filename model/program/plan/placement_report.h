// SPDX-License-Identifier: Apache-2.0
// What --placement search found, or the order that was given, as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/program/common/job.h"
#include "model/twin/placement.h"

namespace orrery::report {

// Of the best few rows of a search; `job` prints the commands.
struct PlacedRow {
  int row = 1;
  PlacementChoice choice;
  bool given = false;        // the order is the user's, nothing was searched
  double value = 0;          // of the search's objective, so placed: smaller is better
  bool nearly_full = false;  // and so below all others
};
// Rows that are placed, from the first on; what a placement costs is a second or so of a search.
inline constexpr std::size_t kMostPlacedRows = 10;

// Rows stand where they are in the default order of ranks.
struct PlacedRanking {
  std::vector<int> order;  // of those that are placed, so placed, best first
  std::string words;  // how rows are ranked, that order where it differs, rows that are not placed
};
PlacedRanking RankPlaced(std::span<const PlacedRow> rows, std::size_t shown);

// One line per finding; `shown`: rows of the answer, 0: a single layout without a number. `fabric`: names hosts.
std::string PlacementText(std::span<const PlacedRow> rows, std::size_t shown,
                          const FabricSpec& fabric);
// "with --placement tp-cp-pp-dp: 1.20 s instead of 1.44 s, simulated", of another row than the first with its layout;
// "": the first in the default order is the best.
std::string BestPlaced(std::span<const PlacedRow> rows);
nlohmann::ordered_json PlacementJson(const PlacementChoice& choice, bool given = false);

}  // namespace orrery::report
