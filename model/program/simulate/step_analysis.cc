// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, messages and tasks.
#include "model/program/simulate/step_analysis.h"

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/index.h"
#include "model/engine/event/memory_track.h"

namespace orrery::report {
namespace {

using sim::At;

class Analyst {
 public:
  Analyst(const TraceSource& source, const sim::StepResult& result,
          const sim::Perturbation& perturbation)
      : source_(source), result_(result), perturbation_(perturbation) {
    for (std::size_t stage = 0; stage < source.plan->programs.size(); ++stage)
      ops_.emplace_back(*source.plan, *source.tasks, *source.pricer, stage);
  }

  MemoryUse Memory(std::size_t r, const MemoryReport& memory) const {
    const sim::TaskOps& ops = ops_[StageOf(r)];
    const StageMemory& need = memory.stages[StageOf(r)];
    const StepPlace at = need.need.at;
    return {result_.ranks[r], ops.program().stage, need,
            sim::StageMemoryMap(ops).DateOf((*source_.timeline)[r], at.call, at.op)};
  }

  sim::CriticalPath Path() const {
    return sim::FindCriticalPath(*source_.plan, *source_.tasks, *source_.communicators,
                                 *source_.timeline, ops_, perturbation_);
  }

 private:
  std::size_t StageOf(std::size_t r) const {
    return At(source_.plan->mesh.Coords(result_.ranks[r])[At(source_.plan->mesh.program_axis)]);
  }

  const TraceSource& source_;
  const sim::StepResult& result_;
  const sim::Perturbation& perturbation_;
  std::vector<sim::TaskOps> ops_;  // by stage
};

}  // namespace

StepAnalysis AnalyseStep(const TraceSource& source, const sim::Simulation& simulation,
                         const sim::Perturbation& perturbation, const MemoryReport& memory,
                         const std::vector<std::size_t>& ranks) {
  const Analyst analyst(source, simulation.result(), perturbation);
  StepAnalysis analysis;
  for (const std::size_t r : ranks) {
    analysis.memory.push_back(analyst.Memory(r, memory));
    analysis.of_ranks.push_back(simulation.BreakdownOfRank(r));
  }
  analysis.path = analyst.Path();
  analysis.time = simulation.time();
  analysis.rank = simulation.result().ranks[simulation.busiest()];
  analysis.contention = simulation.SharedLinks();
  analysis.uneven =
      sim::UnevennessOf(simulation.plan(), simulation.tasks(), simulation.communicators());
  return analysis;
}

}  // namespace orrery::report
