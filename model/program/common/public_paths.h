// SPDX-License-Identifier: Apache-2.0
// What an answer that is passed on says of the files that it rests on: which, not where they lie on this machine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace orrery::cli {

// With each file that the command has read by a name that means the same elsewhere: of the catalogue as it lies below it, of
// the project's and the user's folders as ShownPath() has it, of others the file's name alone.
std::string WithPublicPaths(std::string text);
nlohmann::ordered_json WithPublicPaths(nlohmann::ordered_json json);

}  // namespace orrery::cli
