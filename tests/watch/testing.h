// SPDX-License-Identifier: Apache-2.0
// What the tests of plan watch share: a prediction, and logs against it.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calib/program/watch/watch.h"

namespace orrery::watch {

inline SourcePtr Made(std::string text) {
  return std::make_shared<const Source>(Source{"made", std::move(text)});
}

inline constexpr const char* kPlan = R"({"schema": "orrery.predict/1", "prediction": {
  "layout": "tp 1, pp 1, dp 8", "digest": "d1", "gpus": 8, "global_batch": 512, "step_time_s": 1.0,
  "step_time_interval_s": [0.9, 1.1], "tokens_per_s": 80000, "price_per_step_usd": 0.01,
  "breakdown": {"compute_s": 0.8, "data_exposed_s": 0.15, "fixed_s": 0.05, "hidden_s": 0.3},
  "memory": {"total_bytes": 4e10, "allocated_bytes": 3.59e10, "workspaces_bytes": 1e8, "context_bytes": 1e9}}})";

inline Expectation Plan() { return ReadExpectation(Made(kPlan)); }

// A line on every so many steps.
inline std::string Megatron(const std::vector<double>& seconds, std::size_t every = 1) {
  std::string text;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    text += fmt::format(
        " iteration {:8}/     100 | consumed samples: 512 | elapsed time per iteration "
        "(ms): {:.1f} | global batch size: 512 | lm loss: 1.0E+00 |\n",
        every * (i + 1), 1e3 * seconds[i]);
  return text;
}

inline LogCheck Watch(const std::string& log, int patience = 3) {
  return CheckLog(measured::ReadTrainingLog(Made(log)), Plan(), patience);
}

}  // namespace orrery::watch
