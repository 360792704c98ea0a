// SPDX-License-Identifier: Apache-2.0
// What the simulation of the best layouts says beside the closed form.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/program/common/job.h"

namespace orrery::report {

// A section of the text; empty when nothing was refined.
std::string RefinementText(const SearchResult& result);

// Key "refinement", and the keys that a ranked candidate has more for it.
nlohmann::ordered_json RefinementJson(const Refinement& refinement);
nlohmann::ordered_json SimulatedJson(const Candidate& candidate);

}  // namespace orrery::report
