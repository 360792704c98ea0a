// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, messages and tasks.
#include "model/report/step_analysis.h"

#include <limits>
#include <map>

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/index.h"
#include "model/engine/event/memory_track.h"

namespace orrery::report {
namespace {

using sim::At;

double WorkingSeconds(const sim::RankTime& time) { return time.compute + time.overlapped; }

// The part of a step's time that a message belongs to.
double StepTime::*PartOf(const sim::Line& line, ir::Phase phase, bool gathers_inside) {
  if (line.axis >= 0 || phase == ir::Phase::kPipeline) return &StepTime::pipeline_exposed;
  switch (phase) {
    case ir::Phase::kParamGather:
    case ir::Phase::kGradReduce:
      return gathers_inside ? &StepTime::gather_exposed : &StepTime::data_exposed;
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
      return &StepTime::data_exposed;
    default:
      return &StepTime::tensor_exposed;
  }
}

class Analyst {
 public:
  Analyst(const TraceSource& source, const sim::StepResult& result,
          const sim::Perturbation& perturbation)
      : source_(source), result_(result), perturbation_(perturbation) {
    for (std::size_t stage = 0; stage < source.plan->programs.size(); ++stage)
      ops_.emplace_back(*source.plan, *source.tasks, *source.op_time, stage);
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

  // One rank's step: its device, what of its communication is exposed, and where it waits.
  StepTime Parts(std::size_t r, bool gathers_inside) const {
    StepTime parts;
    AddMessages(r, gathers_inside, &parts);
    AddTasks(r, &parts);
    const sim::RankTime& time = result_.times[r];
    parts.compute = WorkingSeconds(time) - parts.host - parts.optimizer;
    parts.bubble = time.idle;
    parts.total = result_.seconds;
    parts.low = parts.high = std::numeric_limits<double>::quiet_NaN();
    return parts;
  }

 private:
  std::size_t StageOf(std::size_t r) const {
    return At(source_.plan->mesh.Coords(result_.ranks[r])[At(source_.plan->mesh.program_axis)]);
  }

  void AddMessages(std::size_t r, bool gathers_inside, StepTime* parts) const {
    const sim::MessageTimes times =
        sim::TimesByMessage(*source_.tasks, *source_.meetings, static_cast<uint32_t>(r), StageOf(r),
                            (*source_.timeline)[r]);
    for (std::size_t line = 0; line < times.size(); ++line) {
      const sim::LineMessages& messages = source_.tasks->lines[line];
      for (std::size_t m = 0; m < times[line].size(); ++m) {
        parts->*PartOf(messages.line, messages.messages[m].phase, gathers_inside) +=
            times[line][m].exposed;
        parts->overlapped += times[line][m].overlapped;
      }
    }
  }

  void AddTasks(std::size_t r, StepTime* parts) const {
    const std::size_t stage = StageOf(r);
    const std::vector<sim::Task>& tasks = source_.tasks->stages[stage].tasks;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].line >= 0) continue;
      const auto id = static_cast<int32_t>(t);
      const sim::TaskSpan& span = (*source_.timeline)[r][t];
      const double host =
          sim::HostShare(tasks[t], span, sim::ComputeFactor(perturbation_, result_.ranks[r], id));
      parts->host += host * (span.end - span.start);
      parts->optimizer += (1 - host) * OptimizerShare(ops_[stage], id) * (span.end - span.start);
    }
  }

  static double OptimizerShare(const sim::TaskOps& ops, int32_t task) {
    double share = 0, before = 0;
    const std::span<const ir::Instance> instances = ops.Of(task);
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const double after = ops.EndShare(task, i);
      const ir::Phase phase = ops.OpOf(instances[i]).phase;
      if (phase == ir::Phase::kOptimizer || phase == ir::Phase::kGradNorm) share += after - before;
      before = after;
    }
    return share;
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
                         const std::vector<std::size_t>& ranks, bool gathers_inside) {
  const Analyst analyst(source, result, perturbation);
  StepAnalysis analysis;
  const sim::AxisTable table =
      sim::TimesByAxis(*source.plan, *source.tasks, *source.meetings, *source.timeline);
  analysis.axes = analyst.Axes(table);
  std::size_t longest = ranks.front();
  for (const std::size_t r : ranks) {
    analysis.memory.push_back(analyst.Memory(r));
    std::vector<sim::AxisTime>& row = analysis.rank_axes.emplace_back();
    for (std::size_t a = 0; a < table.axes.size(); ++a) {
      for (const AxisUse& use : analysis.axes) {
        if (use.axis == table.axes[a]) row.push_back(table.times[r][a]);
      }
    }
    if (WorkingSeconds(result.times[r]) > WorkingSeconds(result.times[longest])) longest = r;
  }
  analysis.path = analyst.Path();
  analysis.time = analyst.Parts(longest, gathers_inside);
  return analysis;
}

}  // namespace orrery::report
