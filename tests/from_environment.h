// SPDX-License-Identifier: Apache-2.0
// Numbers of cases and seeds of random tests, from the environment: ./check --long sets them.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace orrery {

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace orrery
