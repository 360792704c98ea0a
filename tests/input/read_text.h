// SPDX-License-Identifier: Apache-2.0
// Feeds readers from text in a test.
#pragma once

#include <memory>
#include <string>

#include "model/base/diagnostics.h"

namespace orrery::testing_input {

inline SourcePtr Text(std::string text, std::string name = "test.yaml") {
  return std::make_shared<Source>(Source{std::move(name), std::move(text)});
}

// What the user would see; "" when nothing is wrong.
inline std::string Rendered(Diagnostics& diagnostics) {
  try {
    diagnostics.ThrowIfAny();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace orrery::testing_input
