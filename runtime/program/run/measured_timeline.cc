// SPDX-License-Identifier: Apache-2.0
// Spans of tasks to lanes.
#include "runtime/program/run/measured_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
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

double SecondsSince(int64_t origin_ns, int64_t ns) {
  return 1e-9 * static_cast<double>(ns - origin_ns);
}

// The same text on all ranks that take part; messages of one name pass in order.
std::string MessageName(const exec::RankImage& image, const exec::Task& task) {
  if (task.line >= 0) {
    const exec::Line& line = image.lines[static_cast<std::size_t>(task.line)];
    return fmt::format("{} of {}", line.key, std::ranges::min(line.members));
  }
  const bool receives = task.op->kind == ir::OpKind::kRecv;
  return fmt::format("{} {} to {}", task.channel, receives ? task.peer : image.rank,
                     receives ? image.rank : task.peer);
}

// Visits (name, number of that name, task) of this rank's messages.
template <class Visit>
void ForEachMessage(const exec::RankImage& image, const Visit& visit) {
  std::map<std::string, std::size_t> passed;
  for (const std::vector<int32_t>& queue : image.queues) {
    for (const int32_t t : queue) {
      const exec::Task& task = image.tasks[static_cast<std::size_t>(t)];
      if (!IsMessage(task)) continue;
      const std::string name = MessageName(image, task);
      visit(name, passed[name]++, static_cast<std::size_t>(t));
    }
  }
}

// By task: seconds when the message's last partner came; -1: not known, or no message.
std::vector<double> LatestArrivalOf(const exec::RankImage& image, const std::string& latest) {
  std::vector<double> met(image.tasks.size(), -1);
  if (latest.empty()) return met;
  const nlohmann::json all = nlohmann::json::parse(latest);
  ForEachMessage(image, [&](const std::string& name, std::size_t number, std::size_t task) {
    met[task] = all.at(name).at(number).get<double>();
  });
  return met;
}

TimelineSpan SpanOf(const exec::Task& task, const exec::OpSpan& span, int64_t origin_ns,
                    double met) {
  TimelineSpan out{SecondsSince(origin_ns, span.begin), SecondsSince(origin_ns, span.end),
                   std::string(ir::Info(task.op->kind).name), PhaseOf(task), task.micro_batch};
  out.met = met < 0 ? -1 : std::clamp(met, out.start, out.end);
  out.busy = out.end - (out.met < 0 ? out.start : out.met);
  return out;
}

// One span for each run of ops of one block, micro-batch and phase without a long wait in it.
std::vector<TimelineSpan> PassesOf(const exec::RankImage& image, const std::vector<int32_t>& queue,
                                   const std::vector<TimelineSpan>& ops, double shown_wait) {
  std::vector<TimelineSpan> passes;
  int32_t block = -1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const exec::Task& task = image.tasks[static_cast<std::size_t>(queue[i])];
    const bool waits = ops[i].met - ops[i].start > shown_wait;
    if (passes.empty() || waits || task.block != block ||
        ops[i].start - passes.back().end > shown_wait ||
        ops[i].micro_batch != passes.back().micro_batch || ops[i].phase != passes.back().phase) {
      block = waits ? -1 : task.block;
      passes.push_back(ops[i]);
      if (waits) continue;
      passes.back().name = image.program->blocks[static_cast<std::size_t>(block)].name;
      passes.back().met = -1;
      continue;
    }
    passes.back().end = std::max(passes.back().end, ops[i].end);
    passes.back().busy += ops[i].busy;
  }
  return passes;
}

}  // namespace

bool IsDrawn(int64_t rank, int64_t ranks) {
  return std::ranges::binary_search(
      report::Spread(static_cast<std::size_t>(ranks), report::kMostLanesShown),
      static_cast<std::size_t>(rank));
}

std::string ArrivalsAtMessages(const exec::RankImage& image, const std::vector<exec::OpSpan>& spans,
                               int64_t origin_ns) {
  nlohmann::json arrivals = nlohmann::json::object();
  ForEachMessage(image, [&](const std::string& name, std::size_t, std::size_t task) {
    arrivals[name].push_back(SecondsSince(origin_ns, spans[task].begin));
  });
  return arrivals.dump();
}

std::string LatestArrivals(const std::vector<std::string>& arrivals) {
  std::map<std::string, std::vector<double>> latest;
  for (const std::string& text : arrivals) {
    const nlohmann::json of_rank = nlohmann::json::parse(text);
    for (const auto& [name, dates] : of_rank.items()) {
      std::vector<double>& all = latest[name];
      all.resize(std::max(all.size(), dates.size()), -std::numeric_limits<double>::max());
      for (std::size_t i = 0; i < dates.size(); ++i)
        all[i] = std::max(all[i], dates[i].get<double>());
    }
  }
  return nlohmann::json(latest).dump();
}

std::string MeasuredLanes(const exec::RankImage& image, const std::vector<exec::OpSpan>& spans,
                          int64_t origin_ns, const std::string& latest) {
  const auto ranks = static_cast<std::size_t>(image.plan->mesh.ranks());
  const std::size_t most = report::kMostSpans / std::min(ranks, report::kMostLanesShown);
  const std::vector<double> met = LatestArrivalOf(image, latest);
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const exec::OpSpan& span : spans) {
    first = std::min(first, SecondsSince(origin_ns, span.begin));
    last = std::max(last, SecondsSince(origin_ns, span.end));
  }
  const double shown_wait = report::kShownWait * (last - first);
  std::vector<TimelineLane> lanes;
  for (std::size_t s = 0; s < image.queues.size(); ++s) {
    const std::vector<int32_t>& queue = image.queues[s];
    if (queue.empty()) continue;
    TimelineLane lane{
        image.program->stage, image.rank, std::string(image.plan->streams[s]), false, {}};
    for (const int32_t t : queue) {
      const exec::Task& task = image.tasks[static_cast<std::size_t>(t)];
      lane.compute = lane.compute || !IsMessage(task);
      const auto at = static_cast<std::size_t>(t);
      lane.spans.push_back(SpanOf(task, spans[at], origin_ns, met[at]));
    }
    if (lane.spans.size() > most) lane.spans = PassesOf(image, queue, lane.spans, shown_wait);
    lanes.push_back(std::move(lane));
  }
  int64_t joined = 0;
  nlohmann::ordered_json json = {{"lanes", report::LanesJson(std::move(lanes), most, &joined)}};
  json["joined"] = joined;
  return json.dump();
}

nlohmann::ordered_json MeasuredTimeline(const std::vector<std::string>& lanes, int64_t step,
                                        std::size_t stages, double clock_error_s,
                                        bool partners_known) {
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
      for (const char* date : {"start_s", "end_s", "met_s"})
        if (span.contains(date)) span[date] = span[date].get<double>() - first;
    }
  }
  return {{"seconds", last - first},
          {"measured", true},
          {"step", step},
          {"ranks", lanes.size()},
          {"stages", stages},
          {"clock_error_s", clock_error_s},
          {"meetings_known", partners_known},
          {"joined", joined},
          {"lanes", std::move(all)}};
}

}  // namespace orrery::cli
