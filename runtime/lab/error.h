// SPDX-License-Identifier: Apache-2.0
// What keeps a lab from working here; shown with its hint, exit code 1.
#pragma once

#include <stdexcept>
#include <string>

namespace orrery::lab {

struct LabError : std::runtime_error {
  explicit LabError(const std::string& message, std::string what_helps = "")
      : std::runtime_error(message), hint(std::move(what_helps)) {}
  std::string hint;
};

}  // namespace orrery::lab
