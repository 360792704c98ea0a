// SPDX-License-Identifier: Apache-2.0
// `plan provision --published`: goodput that runs printed, and what the model says.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace orrery::report {

std::string PublishedRunsText();
std::string PublishedRunsBrief();  // in one line
nlohmann::ordered_json PublishedRunsJson();

}  // namespace orrery::report
