// SPDX-License-Identifier: Apache-2.0
// What was worked out from a simulated step, as text and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/program/simulate/step_analysis.h"

namespace orrery::report {

// Each begins with an empty line and a title; empty where there is nothing to say.
std::string BreakdownSection(const StepAnalysis& analysis);
std::string StageSection(const StepAnalysis& analysis);
std::string PathSection(const StepAnalysis& analysis);
std::string MemorySection(const StepAnalysis& analysis);

// Keys "contention_on_links" and "critical_path" of the whole.
void AddAnalysisJson(const StepAnalysis& analysis, nlohmann::ordered_json* json);
// Keys "breakdown" and "memory_..." of the i-th of the ranks that were asked for.
void AddRankAnalysis(const StepAnalysis& analysis, std::size_t i, nlohmann::ordered_json* rank);

}  // namespace orrery::report
