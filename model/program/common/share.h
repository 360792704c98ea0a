// SPDX-License-Identifier: Apache-2.0
// Shares on the command line.
#pragma once

#include <optional>
#include <string_view>

namespace orrery::cli {

// "25%" or "0.25", any number; nullopt: it is none.
std::optional<double> ParseShare(std::string_view text);

}  // namespace orrery::cli
