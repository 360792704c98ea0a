// SPDX-License-Identifier: Apache-2.0
// Losses that a log of linear-20-1 (global batch 24) prints, against those of a run that nothing
// disturbs.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <string>

#include "tests/cli/run_plan.h"

namespace orrery {

// By step.
inline std::map<int64_t, double> CurveOf(const std::string& log) {
  std::map<int64_t, double> curve;
  const std::regex line("step +([0-9]+)/[0-9]+ +loss +([^ ]+)");
  for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at)
    curve[std::stoll((*at)[1])] = std::stod((*at)[2]);
  return curve;
}

// Every tenth step is printed. `tolerance`: of a loss; 0: the same digits.
inline void ExpectUndisturbed(const std::string& log, int ranks, double tolerance) {
  const auto curve = CurveOf(log);
  ASSERT_GT(curve.size(), 5u) << log;
  const Outcome whole = RunPlan({"run", "--model", "linear-20-1", "--dp", std::to_string(ranks),
                                 "--global-batch", "24", "--comm", "local", "--log-every", "10",
                                 "--steps", std::to_string(curve.rbegin()->first)});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto undisturbed = CurveOf(whole.out);
  for (const auto& [step, loss] : curve) {
    if (step % 10 != 0) continue;  // the last one of an attempt is printed, too
    ASSERT_TRUE(undisturbed.contains(step)) << step;
    ASSERT_LE(std::abs(loss - undisturbed.at(step)), tolerance * loss) << step;
  }
}

// The first of the programs that is not on PATH; "": all are.
inline std::string MissingProgram(std::initializer_list<const char*> programs) {
  for (const char* program : programs) {
    const std::string command =
        fmt::format("PATH=$PATH:/usr/sbin command -v {} >/dev/null", program);
    if (std::system(command.c_str()) != 0) return program;
  }
  return "";
}

}  // namespace orrery
