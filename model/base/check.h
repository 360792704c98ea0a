// SPDX-License-Identifier: Apache-2.0
// ORRERY_CHECK: what must hold if this program has no bug. Never for user input.
#pragma once

#include <fmt/format.h>

#include <string>

namespace orrery {

// Prints "file:line: internal error: condition: context" on stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& context);

}  // namespace orrery

// ORRERY_CHECK(rank < ranks, "rank {} of {}", rank, ranks): aborts with that context unless the
// condition holds. The arguments are evaluated only on failure. Stays on in release builds.
#define ORRERY_CHECK(condition, ...)                                                     \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      ::orrery::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
