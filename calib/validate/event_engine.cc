// SPDX-License-Identifier: Apache-2.0
// Lowers the row's plan and plays it on its cluster.
#include "calib/validate/event_engine.h"

#include <fmt/format.h>

#include "model/base/diagnostics.h"
#include "model/engine/closed/closed_form.h"
#include "model/engine/event/executor.h"
#include "model/hardware/cluster.h"
#include "model/plan/ir/hazards.h"
#include "model/price/layer_factors.h"

namespace orrery {
namespace {

constexpr double kMostOps = 2e7;  // of one stage: the unfolded program stays below a gigabyte

sim::StepOptions Options(const ir::Plan& plan, const CaseRow& row, const CostSetting& setting) {
  sim::StepOptions options;
  options.precision = row.work.precision;
  options.layer_factor =
      LayerFactor(*setting.gpu, *setting.stack, row.model, row.work, KeyOf(row.strategy));
  for (const char* name : {"dp", "dpo"}) {
    const int axis = plan.mesh.AxisIndex(name);
    if (axis >= 0) {
      options.meetings.merged = static_cast<sim::AxisMask>(options.meetings.merged | 1 << axis);
    }
  }
  return options;
}

}  // namespace

std::variant<StepTime, Refusal> SimulateCase(const CaseRow& row, const TopologySpec& topology,
                                             const CostSetting& setting, const StepTime& closed) {
  if (row.window != Window::kStep) return Refusal{"the event engine times whole steps only", ""};
  const LowerResult lowered = Lower(row.model, row.work, row.strategy);
  if (const auto* refusal = std::get_if<Refusal>(&lowered)) return *refusal;
  const ir::Plan& plan = std::get<ir::Plan>(lowered);
  for (const ir::Program& program : plan.programs) {
    if (ir::ScheduledOps(program) > kMostOps)
      return Refusal{"too many ops to simulate", "use --engine closed"};
  }
  try {
    const Cluster cluster = BuildCluster(topology, row.nodes, row.gpus_per_node);
    const sim::StepResult step = sim::SimulateStep(plan, cluster, net::WiresOf(cluster), setting,
                                                   Options(plan, row, setting));
    StepTime time = closed;
    time.total = WholeStep(step.seconds, closed);
    time.low = closed.low / closed.total * time.total;
    time.high = closed.high / closed.total * time.total;
    return time;
  } catch (const InputError& error) {
    return Refusal{error.diagnostics().empty() ? error.what() : error.diagnostics().front().message,
                   ""};
  }
}

}  // namespace orrery
