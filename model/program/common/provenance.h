// SPDX-License-Identifier: Apache-2.0
// Which profiles a prediction rests on, and how well each is known.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/program/common/job.h"

namespace orrery::report {

std::string ProvenanceText(const Job& job);
nlohmann::ordered_json ProvenanceJson(const Job& job);

}  // namespace orrery::report
