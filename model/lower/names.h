// SPDX-License-Identifier: Apache-2.0
// The choices of a workload and a layout, as flags, files and output spell them.
#pragma once

#include <cstddef>
#include <utility>

#include "model/lower/strategy.h"

namespace orrery {

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

template <class E, std::size_t N>
constexpr const char* NameIn(const NameRow<E> (&table)[N], E value) {
  for (const auto& row : table) {
    if (row.second == value) return row.first;
  }
  return "?";
}

}  // namespace orrery
