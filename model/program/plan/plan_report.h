// SPDX-License-Identifier: Apache-2.0
// A plan in words: mesh, groups, streams, programs, schedule.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/plan/ir/plan.h"

namespace orrery::report {

std::string PlanSummary(const ir::Plan& plan);
nlohmann::ordered_json PlanJson(const ir::Plan& plan);

// "P F0[0] 23 x (F0[1+i] B0[i]) B0[23] E": a schedule on one line; micro-batches in brackets.
std::string ScheduleWords(const ir::Program& program);

}  // namespace orrery::report
