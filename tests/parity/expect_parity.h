// SPDX-License-Identifier: Apache-2.0
// The expectation of a test that runs plans of one job.
#pragma once

#include <gtest/gtest.h>

#include <iostream>
#include <vector>

#include "tests/parity/parity.h"

namespace orrery::parity {

inline void ExpectParity(const Job& job, const std::vector<Case>& cases) {
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key);
  EXPECT_TRUE(summary.failures.empty());
}

}  // namespace orrery::parity
