// SPDX-License-Identifier: Apache-2.0
// The choices of a job and of a layout, as flags spell them and as output prints them.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "model/cost/closed_form.h"
#include "model/lower/strategy.h"
#include "model/search/search.h"

namespace orrery::report {

template <class E>
using NameRow = std::pair<const char*, E>;

inline constexpr NameRow<Precision> kPrecisionNames[] = {
    {"fp32", Precision::kFp32},
    {"tf32", Precision::kTf32},
    {"fp16", Precision::kFp16},
    {"bf16", Precision::kBf16},
};
inline constexpr NameRow<Optimizer> kOptimizerNames[] = {
    {"sgd", Optimizer::kSgd},
    {"adam", Optimizer::kAdam},
    {"adamw", Optimizer::kAdamW},
    {"lamb", Optimizer::kLamb},
};
inline constexpr NameRow<Recompute> kRecomputeNames[] = {
    {"none", Recompute::kNone},
    {"selective", Recompute::kSelective},
    {"full", Recompute::kFull},
};
inline constexpr NameRow<PipelineSchedule> kScheduleNames[] = {
    {"gpipe", PipelineSchedule::kGpipe},
    {"1f1b", PipelineSchedule::k1F1B},
    {"interleaved", PipelineSchedule::kInterleaved},
    {"zero-bubble", PipelineSchedule::kZeroBubble},
};
inline constexpr NameRow<Objective> kObjectiveNames[] = {
    {"time", Objective::kTime},
    {"cost", Objective::kCost},
    {"tokens-per-dollar", Objective::kTokensPerDollar},
};
inline constexpr NameRow<Window> kWindowNames[] = {
    {"step", Window::kStep},
    {"microstep", Window::kMicrostep},
};
inline constexpr NameRow<bool> kAttentionNames[] = {
    {"flash", true},
    {"standard", false},
};

template <class E, std::size_t N>
constexpr const char* NameIn(const NameRow<E> (&table)[N], E value) {
  for (const auto& row : table) {
    if (row.second == value) return row.first;
  }
  return "?";
}
constexpr const char* Name(Precision value) { return NameIn(kPrecisionNames, value); }
constexpr const char* Name(Optimizer value) { return NameIn(kOptimizerNames, value); }
constexpr const char* Name(Recompute value) { return NameIn(kRecomputeNames, value); }
constexpr const char* Name(PipelineSchedule value) { return NameIn(kScheduleNames, value); }
constexpr const char* Name(Objective value) { return NameIn(kObjectiveNames, value); }
constexpr const char* Name(Window value) { return NameIn(kWindowNames, value); }

}  // namespace orrery::report
