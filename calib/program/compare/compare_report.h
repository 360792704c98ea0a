// SPDX-License-Identifier: Apache-2.0
// What `plan compare` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "calib/compare/compare.h"

namespace orrery::compare {

std::string ComparisonText(const Comparison& comparison);
std::string ComparisonBrief(const Comparison& comparison);  // one line
nlohmann::ordered_json ComparisonJson(const Comparison& comparison);

}  // namespace orrery::compare
