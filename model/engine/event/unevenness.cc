// SPDX-License-Identifier: Apache-2.0
// Compares the prices of each message over the communicators of its channel, and the kernels of stages.
#include "model/engine/event/unevenness.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr double kOtherPrice = 1.05;  // of the cheapest

struct Prices {
  double least = std::numeric_limits<double>::infinity(), most = 0;
};

CommAxis AxisOfLine(const ir::Plan& plan, const Line& line) {
  return line.axis >= 0 ? AxisOfTransfer(plan, line.axis)
                        : AxisOfGroup(plan, plan.groups[At(line.group)]);
}

}  // namespace

bool Unevenness::Of(CommAxis axis) const { return std::ranges::count(axes, axis) > 0; }

Unevenness UnevennessOf(const ir::Plan& plan, const PlanTasks& tasks,
                        const CommunicatorTable& table) {
  Unevenness found;
  // Transfers along an axis: whatever ranks these are between.
  std::map<std::tuple<CommAxis, int32_t, double>, Prices> prices;
  for (std::size_t m = 0; m < table.communicators.size(); ++m) {
    const Communicator& communicator = table.communicators[m];
    const LineMessages& line = tasks.lines[At(communicator.line)];
    const CommAxis axis = AxisOfLine(plan, line.line);
    const int32_t of = line.line.axis >= 0 ? -1 : communicator.line;
    const Exchange* before = nullptr;
    Prices* all = nullptr;
    for (std::size_t i = 0; i < line.messages.size(); ++i) {
      const Exchange& exchange = table.exchanges[At(communicator.first_exchange) + i];
      if (exchange.price <= 0) continue;
      if (before == nullptr || before->bytes != exchange.bytes)
        all = &prices[{axis, of, exchange.bytes}];
      before = &exchange;
      all->least = std::min(all->least, exchange.price);
      all->most = std::max(all->most, exchange.price);
    }
  }
  for (const auto& [of, all] : prices) {
    const CommAxis axis = std::get<0>(of);
    if (all.most > kOtherPrice * all.least && !found.Of(axis)) found.axes.push_back(axis);
  }
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const StageTasks& stage : tasks.stages) {
    double seconds = 0;
    for (const Task& task : stage.tasks)
      if (task.line < 0 && !task.offload) seconds += task.seconds;
    least = std::min(least, seconds);
    most = std::max(most, seconds);
    found.host = std::max(found.host, stage.host);
  }
  if (least > 0) found.stages = most / least;
  return found;
}

}  // namespace orrery::sim
