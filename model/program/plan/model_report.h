// SPDX-License-Identifier: Apache-2.0
// What a model file says: layers, parameters, assumptions, and what became of its keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/arch/catalogue.h"

namespace orrery::report {

std::string ModelText(const LoadedModel& model);
// The same, schema orrery.model/1: "architecture" (numbers and choices by the keys of model files), "parameters",
// "assumptions", "priced_only", "without_effect" (reasons by key).
nlohmann::ordered_json ModelJson(const LoadedModel& model);

}  // namespace orrery::report
