// SPDX-License-Identifier: Apache-2.0
// What `plan validate` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "calib/validate/validate.h"

namespace orrery {

// The tables per source and topology: errors, order within sweeps, memory; notes and refusals.
std::string RenderValidation(const std::vector<CasePrediction>& cases);

// The same in a line, for --quiet.
std::string ValidationBrief(const std::vector<CasePrediction>& cases);

// {"schema": "orrery.validate/1", "cases": [...], "sources": [...]}, SI units in key names.
nlohmann::ordered_json ValidationJson(const std::vector<CasePrediction>& cases);

}  // namespace orrery
