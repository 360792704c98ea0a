// SPDX-License-Identifier: Apache-2.0
// The end of the road for a broken invariant: says what and where, then aborts.
#include "model/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace orrery {

void CheckFailed(const char* file, int line, const char* condition, const std::string& context) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold: %s\n", file, line, condition,
               context.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace orrery
