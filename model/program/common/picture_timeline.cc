// SPDX-License-Identifier: Apache-2.0
// Passes and messages of a recorded step over time, few enough to draw.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "model/engine/event/index.h"
#include "model/engine/event/task_ops.h"
#include "model/plan/ir/text_words.h"
#include "model/program/common/picture_parts.h"
#include "model/program/common/timeline_lanes.h"

namespace orrery::report {
namespace {

using Json = nlohmann::ordered_json;
using sim::At;

constexpr std::size_t kLeastStagesShown = 4;
constexpr double kLongMessage = 0.02;  // of the step
constexpr double kLeastWait = 0.1;     // of one that is drawn

// The calls of a stream as spans: a call is one pass over a block.
class Passes {
 public:
  Passes(const sim::Simulation& simulation, std::size_t stage)
      : simulation_(simulation),
        stage_(stage),
        shown_wait_(kShownWait * simulation.result().seconds),
        ops_(simulation.plan(), simulation.tasks(), simulation.pricer(), stage) {}

  const sim::TaskOps& ops() const { return ops_; }

  std::vector<TimelineSpan> Of(std::size_t rank, std::size_t stream, bool compute) const {
    std::vector<TimelineSpan> spans;
    int32_t call = -1;
    std::map<ir::Phase, double> by_phase;
    const auto close = [&] {
      if (spans.empty() || by_phase.empty()) return;
      const auto longest =
          std::ranges::max_element(by_phase, {}, [](const auto& one) { return one.second; });
      spans.back().phase = ir::kPhaseWords[At(static_cast<int>(longest->first))];
      by_phase.clear();
    };
    for (const int32_t id : StageOf().on_stream[stream]) {
      const sim::TaskSpan& span = simulation_.timeline()[rank][At(id)];
      const std::span<const ir::Instance> instances = ops_.Of(id);
      const bool message = StageOf().tasks[At(id)].line >= 0;
      for (std::size_t i = 0; i < instances.size(); ++i) {
        const ir::Instance& at = instances[i];
        const double begin = ops_.Begin(id, span, i), end = ops_.End(id, span, i);
        const double met = message ? std::clamp(span.met, begin, end) : begin;
        // A stream of messages has one span for each; messages between kernels belong to their pass.
        const bool alone = message && (!compute || StandsOut(begin, met, end));
        const bool waited = !spans.empty() && WaitsBehind(spans.back(), begin);
        if (at.call != call || alone || waited) {
          close();
          call = alone ? -1 : at.call;
          spans.push_back({begin, end, NameOf(at, alone), "", at.micro_batch});
          if (alone) spans.back().met = met;
        }
        spans.back().end = std::max(spans.back().end, end);
        spans.back().busy += end - met;
        by_phase[ops_.OpOf(at).phase] += end - met;
      }
    }
    close();
    return spans;
  }

 private:
  const sim::StageTasks& StageOf() const { return simulation_.tasks().stages[stage_]; }

  // A message that is long, or waits long for its partners, such as for a slow rank, is no part of a pass.
  bool StandsOut(double begin, double met, double end) const {
    return end - begin > kLongMessage * simulation_.result().seconds || met - begin > shown_wait_;
  }

  // Nor does a pass go on behind a long wait for another stream, or one that is longer than its work so far.
  bool WaitsBehind(const TimelineSpan& pass, double begin) const {
    const double gap = begin - pass.end;
    return gap > shown_wait_ || (gap > pass.busy && gap > kLeastWait * shown_wait_);
  }

  std::string NameOf(const ir::Instance& at, bool message) const {
    if (message) return std::string(ir::Info(ops_.OpOf(at).kind).name);
    return ops_.program().blocks[At(at.block)].name;
  }

  const sim::Simulation& simulation_;
  const std::size_t stage_;
  const double shown_wait_;
  const sim::TaskOps ops_;
};

// Of `stages` stages.
std::vector<TimelineLane> LanesOf(const sim::Simulation& simulation,
                                  const std::vector<std::size_t>& ranks, std::size_t stages) {
  const ir::Plan& plan = simulation.plan();
  std::vector<TimelineLane> lanes;
  for (const std::size_t chosen : Spread(ranks.size(), stages)) {
    const std::size_t r = ranks[chosen];
    const int64_t rank = simulation.result().ranks[r];
    const auto stage = At(plan.mesh.Coords(rank)[At(plan.mesh.program_axis)]);
    const Passes passes(simulation, stage);
    for (std::size_t s = 0; s < simulation.tasks().streams; ++s) {
      const std::vector<int32_t>& on_stream = simulation.tasks().stages[stage].on_stream[s];
      if (on_stream.empty()) continue;
      const bool compute = std::ranges::any_of(on_stream, [&](int32_t id) {
        return simulation.tasks().stages[stage].tasks[At(id)].line < 0;
      });
      lanes.push_back({plan.programs[stage].stage, rank, std::string(plan.streams[s]), compute,
                       passes.Of(r, s, compute)});
    }
  }
  return lanes;
}

}  // namespace

Json TimelineJson(const sim::Simulation& simulation, const std::vector<std::size_t>& ranks) {
  std::vector<TimelineLane> lanes = LanesOf(simulation, ranks, kMostLanesShown);
  // Rather few stages with every pass than many with their edges alone.
  if (const auto [count, spans] = SpansOf(lanes, true); spans > kMostSpans) {
    const std::size_t stages = std::max(kLeastStagesShown, count * kMostSpans / spans);
    if (stages < count) lanes = LanesOf(simulation, ranks, stages);
  }
  int64_t joined = 0;
  Json drawn = LanesJson(std::move(lanes), kMostSpans, &joined);
  return {{"seconds", simulation.result().seconds},
          {"stages", simulation.plan().programs.size()},
          {"joined", joined},
          {"lanes", std::move(drawn)}};
}

}  // namespace orrery::report
