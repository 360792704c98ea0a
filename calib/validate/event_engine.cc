// SPDX-License-Identifier: Apache-2.0
// Lowers the row's plan and plays it on its cluster.
#include "calib/validate/event_engine.h"

#include <fmt/format.h>

#include "model/base/diagnostics.h"
#include "model/engine/event/simulation.h"
#include "model/hardware/cluster.h"
#include "model/plan/ir/hazards.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

constexpr double kMostOps = 2e7;  // of one stage: the unfolded program stays below a gigabyte

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
    const Pricer pricer(setting, row.work.precision);
    sim::Simulation simulation(plan, cluster, pricer, FixedCosts(setting, LayersOf(plan)), {});
    StepTime time;
    time.total = simulation.Run();
    static_cast<Breakdown&>(time) = simulation.breakdown();
    time.low = closed.low / closed.total * time.total;
    time.high = closed.high / closed.total * time.total;
    return time;
  } catch (const InputError& error) {
    return Refusal{error.diagnostics().empty() ? error.what() : error.diagnostics().front().message,
                   ""};
  }
}

}  // namespace orrery
