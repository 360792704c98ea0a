// SPDX-License-Identifier: Apache-2.0
// Spans of tasks to lanes.
#include "runtime/program/run/measured_timeline.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/plan/ir/text_words.h"
#include "model/program/common/timeline_lanes.h"

namespace orrery::cli {
namespace {

using report::TimelineLane;
using report::TimelineSpan;

bool IsMessage(const exec::Task& task) { return task.line >= 0 || task.channel >= 0; }

std::string PhaseOf(const exec::Task& task) {
  return std::string(ir::kPhaseWords[static_cast<std::size_t>(task.op->phase)]);
}

TimelineSpan SpanOf(const exec::Task& task, const exec::OpSpan& span, int64_t origin_ns) {
  return {1e-9 * static_cast<double>(span.begin - origin_ns),
          1e-9 * static_cast<double>(span.end - origin_ns),
          std::string(ir::Info(task.op->kind).name), PhaseOf(task), task.micro_batch};
}

// One span for each run of ops of one block, micro-batch and phase.
std::vector<TimelineSpan> PassesOf(const exec::RankImage& image, const std::vector<int32_t>& queue,
                                   const std::vector<TimelineSpan>& ops) {
  std::vector<TimelineSpan> passes;
  int32_t block = -1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const exec::Task& task = image.tasks[static_cast<std::size_t>(queue[i])];
    if (passes.empty() || task.block != block || ops[i].micro_batch != passes.back().micro_batch ||
        ops[i].phase != passes.back().phase) {
      block = task.block;
      passes.push_back(ops[i]);
      passes.back().name = image.program->blocks[static_cast<std::size_t>(block)].name;
    }
    passes.back().end = std::max(passes.back().end, ops[i].end);
  }
  return passes;
}

}  // namespace

bool IsDrawn(int64_t rank, int64_t ranks) {
  return std::ranges::binary_search(
      report::Spread(static_cast<std::size_t>(ranks), report::kMostLanesShown),
      static_cast<std::size_t>(rank));
}

std::string MeasuredLanes(const exec::RankImage& image, const std::vector<exec::OpSpan>& spans,
                          int64_t origin_ns) {
  const auto ranks = static_cast<std::size_t>(image.plan->mesh.ranks());
  const std::size_t most = report::kMostSpans / std::min(ranks, report::kMostLanesShown);
  std::vector<TimelineLane> lanes;
  for (std::size_t s = 0; s < image.queues.size(); ++s) {
    const std::vector<int32_t>& queue = image.queues[s];
    if (queue.empty()) continue;
    TimelineLane lane{
        image.program->stage, image.rank, std::string(image.plan->streams[s]), false, {}};
    for (const int32_t t : queue) {
      const exec::Task& task = image.tasks[static_cast<std::size_t>(t)];
      lane.compute = lane.compute || !IsMessage(task);
      lane.spans.push_back(SpanOf(task, spans[static_cast<std::size_t>(t)], origin_ns));
    }
    if (lane.spans.size() > most) lane.spans = PassesOf(image, queue, lane.spans);
    lanes.push_back(std::move(lane));
  }
  int64_t joined = 0;
  nlohmann::ordered_json json = {{"lanes", report::LanesJson(std::move(lanes), most, &joined)}};
  json["joined"] = joined;
  return json.dump();
}

nlohmann::ordered_json MeasuredTimeline(const std::vector<std::string>& lanes, int64_t step,
                                        std::size_t stages, double clock_error_s) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  int64_t joined = 0;
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const std::string& text : lanes) {
    if (text.empty()) continue;
    nlohmann::ordered_json rank = nlohmann::ordered_json::parse(text);
    joined += rank["joined"].get<int64_t>();
    for (nlohmann::ordered_json& lane : rank["lanes"]) {
      for (const nlohmann::ordered_json& span : lane["spans"]) {
        first = std::min(first, span["start_s"].get<double>());
        last = std::max(last, span["end_s"].get<double>());
      }
      all.push_back(std::move(lane));
    }
  }
  if (all.empty()) return {};
  // Another rank may have begun before rank 0.
  for (nlohmann::ordered_json& lane : all) {
    for (nlohmann::ordered_json& span : lane["spans"]) {
      for (const char* end : {"start_s", "end_s"}) span[end] = span[end].get<double>() - first;
    }
  }
  return {{"seconds", last - first}, {"measured", true},       {"step", step},
          {"ranks", lanes.size()},   {"stages", stages},       {"clock_error_s", clock_error_s},
          {"joined", joined},        {"lanes", std::move(all)}};
}

}  // namespace orrery::cli
