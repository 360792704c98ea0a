// SPDX-License-Identifier: Apache-2.0
// Communication of each rank by the axis that it runs along: beside compute, or exposed.
//
// An axis is that of the plan's mesh which a message follows, or several ("pp+dp"); a group of some
// coordinates only goes by its own name. Where
// several axes communicate at a time they share it evenly, so that the sums over axes are
// RankTime::exposed and RankTime::overlapped.
#pragma once

#include <string>
#include <vector>

#include "model/engine/event/executor.h"

namespace orrery::sim {

std::string AxisName(const ir::Plan& plan, const Line& line);

struct AxisTime {
  double exposed = 0;
  double overlapped = 0;
};

// What one rank's messages cost it, by line and message: as PlanTasks::lines[line].messages.
using MessageTimes = std::vector<std::vector<AxisTime>>;
MessageTimes TimesByMessage(const PlanTasks& tasks, const MeetingTable& meetings, uint32_t rank,
                            std::size_t stage, const std::vector<TaskSpan>& spans);

struct AxisTable {
  std::vector<std::string> axes;             // that communicate, in order of their lines
  std::vector<std::vector<AxisTime>> times;  // by executed rank, then axis
};
AxisTable TimesByAxis(const ir::Plan& plan, const PlanTasks& tasks, const MeetingTable& meetings,
                      const Timeline& timeline);

}  // namespace orrery::sim
