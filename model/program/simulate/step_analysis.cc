// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, messages and tasks.
#include "model/program/simulate/step_analysis.h"

#include <map>

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/index.h"
#include "model/engine/event/memory_track.h"

namespace orrery::report {
namespace {

using sim::At;

double WorkingSeconds(const sim::RankTime& time) { return time.compute + time.overlapped; }

class Analyst {
 public:
  Analyst(const TraceSource& source, const sim::StepResult& result,
          const sim::Perturbation& perturbation)
      : source_(source), result_(result), perturbation_(perturbation) {
    for (std::size_t stage = 0; stage < source.plan->programs.size(); ++stage)
      ops_.emplace_back(*source.plan, *source.tasks, *source.pricer, stage);
  }

  MemoryUse Memory(std::size_t r) const {
    const sim::TaskOps& ops = ops_[StageOf(r)];
    const sim::StageMemoryMap map(ops);
    const sim::MemoryTrack track = map.Track((*source_.timeline)[r]);
    return {result_.ranks[r], ops.program().stage, track.peak, map.arena_bytes(), track.peak_time};
  }

  std::vector<AxisUse> Axes(const sim::AxisTable& table) const {
    std::vector<AxisUse> uses;
    for (std::size_t a = 0; a < table.axes.size(); ++a) {
      AxisUse use{table.axes[a], {}, {-1, 0}, 0};
      for (std::size_t r = 0; r < table.times.size(); ++r) {
        const sim::AxisTime& time = table.times[r][a];
        use.mean.exposed += time.exposed / static_cast<double>(table.times.size());
        use.mean.overlapped += time.overlapped / static_cast<double>(table.times.size());
        if (time.exposed <= use.worst.exposed) continue;
        use.worst = time;
        use.worst_rank = result_.ranks[r];
      }
      if (use.worst.exposed > 0 || use.mean.overlapped > 0) uses.push_back(use);
    }
    return uses;
  }

  sim::CriticalPath Path() const {
    return sim::FindCriticalPath(*source_.plan, *source_.tasks, *source_.meetings,
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

std::vector<std::size_t> Representatives(const sim::StepResult& result,
                                         const std::vector<int>& stages) {
  std::map<int, std::size_t> by_stage;
  for (std::size_t r = 0; r < result.times.size(); ++r) {
    const auto [at, added] = by_stage.try_emplace(stages[r], r);
    if (!added && WorkingSeconds(result.times[r]) > WorkingSeconds(result.times[at->second]))
      at->second = r;
  }
  std::vector<std::size_t> ranks;
  for (const auto& [stage, r] : by_stage) ranks.push_back(r);
  return ranks;
}

StepAnalysis AnalyseStep(const TraceSource& source, const sim::StepResult& result,
                         const sim::Perturbation& perturbation,
                         const std::vector<std::size_t>& ranks) {
  const Analyst analyst(source, result, perturbation);
  StepAnalysis analysis;
  const sim::AxisTable table =
      sim::TimesByAxis(*source.plan, *source.tasks, *source.meetings, *source.timeline);
  analysis.axes = analyst.Axes(table);
  for (const std::size_t r : ranks) {
    analysis.memory.push_back(analyst.Memory(r));
    std::vector<sim::AxisTime>& row = analysis.rank_axes.emplace_back();
    for (std::size_t a = 0; a < table.axes.size(); ++a) {
      for (const AxisUse& use : analysis.axes) {
        if (use.axis == table.axes[a]) row.push_back(table.times[r][a]);
      }
    }
  }
  analysis.path = analyst.Path();
  return analysis;
}

}  // namespace orrery::report
