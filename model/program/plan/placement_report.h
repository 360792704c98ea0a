// SPDX-License-Identifier: Apache-2.0
// What --placement search found, or the order that was given, as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "model/program/common/job.h"
#include "model/twin/placement.h"

namespace orrery::report {

// Of the best few rows of a search; `job` prints the commands.
struct PlacedRow {
  int row = 1;
  PlacementChoice choice;
  bool given = false;  // the order is the user's, nothing was searched
};

// One line per finding; `numbered`: with the row in front.
std::string PlacementText(std::span<const PlacedRow> rows, bool numbered);
// "--placement tp-cp-pp-dp: 1.20 s instead of 1.44 s, simulated"; "": the default is the best.
std::string PlacementBrief(const PlacedRow& row);
nlohmann::ordered_json PlacementJson(const PlacementChoice& choice, bool given = false);

}  // namespace orrery::report
