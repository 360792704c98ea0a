// SPDX-License-Identifier: Apache-2.0
// Tensors of a recorded step over time: the moment at which most are alive of each interval, the largest by name.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "model/engine/event/index.h"
#include "model/engine/event/memory_track.h"
#include "model/engine/event/task_ops.h"
#include "model/program/common/picture_parts.h"

namespace orrery::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMemoryDates = 160;  // of a stage
constexpr std::size_t kMostTensors = 7;    // named in a stage's memory; the rest is "other tensors"
constexpr double kLeastOfPeak = 0.002;     // of the peak: what is less counts as "other tensors"

// "l3.attn.probs" -> "attn.probs": one tensor of all layers.
std::string TensorOf(const std::string& buffer) {
  std::size_t at = buffer.starts_with('l') ? 1 : 0;
  while (at > 0 && at < buffer.size() && buffer[at] >= '0' && buffer[at] <= '9') ++at;
  return at > 1 && at < buffer.size() && buffer[at] == '.' ? buffer.substr(at + 1) : buffer;
}

const char* ClassWords(ir::BufferClass cls) {
  switch (cls) {
    case ir::BufferClass::kParam:
      return "weights";
    case ir::BufferClass::kGathered:
      return "gathered weights";
    case ir::BufferClass::kGrad:
      return "gradients";
    case ir::BufferClass::kGradTransient:
      return "transient gradients";
    case ir::BufferClass::kMaster:
      return "master weights";
    case ir::BufferClass::kOptimizer:
      return "optimizer state";
    case ir::BufferClass::kActivation:
      return nullptr;  // by tensor
    case ir::BufferClass::kScalar:
      return "scalars";
  }
  return "scalars";
}

// The peak in each of kMemoryDates intervals.
std::vector<double> DatesOf(const sim::MemoryTrack& track, double seconds) {
  std::vector<double> dates;
  std::size_t interval = 0;
  int64_t most = -1;
  for (const sim::MemoryPoint& point : track.points) {
    const auto at = static_cast<std::size_t>(point.time / seconds * kMemoryDates);
    if (dates.empty() || at != interval) {
      dates.push_back(point.time);
      most = point.bytes;
      interval = at;
    } else if (point.bytes > most) {
      dates.back() = point.time;
      most = point.bytes;
    }
  }
  return dates;
}

using Series = std::vector<std::pair<std::string, std::vector<int64_t>>>;

// Tensors of all layers and micro-batches together, the largest at the peak first; classes of the step's states below.
Series SeriesOf(const sim::StageMemoryMap& map, const ir::Program& program,
                const std::vector<sim::TaskSpan>& spans, const std::vector<double>& dates,
                double peak_time) {
  std::vector<std::string> names;
  std::vector<bool> by_tensor;
  std::vector<int> group_of;
  std::map<std::string, int> known;
  for (const ir::Buffer& buffer : program.buffers) {
    const char* words = ClassWords(buffer.cls);
    const std::string name = words != nullptr ? words : TensorOf(buffer.name);
    const auto [at, added] = known.try_emplace(name, static_cast<int>(names.size()));
    if (added) {
      names.push_back(name);
      by_tensor.push_back(words == nullptr);
    }
    group_of.push_back(at->second);
  }
  const int groups = static_cast<int>(names.size());
  const auto at_peak = map.ByGroup(spans, {peak_time}, group_of, groups);
  auto bytes = map.ByGroup(spans, dates, group_of, groups);
  double peak = 0;
  for (const std::vector<int64_t>& one : at_peak) peak += static_cast<double>(one.front());
  std::vector<std::size_t> tensors, small;
  Series series;
  for (std::size_t g = 0; g < names.size(); ++g) {
    if (by_tensor[g]) {
      tensors.push_back(g);
    } else if (static_cast<double>(std::ranges::max(bytes[g])) > kLeastOfPeak * peak) {
      series.emplace_back(names[g], std::move(bytes[g]));
    } else {
      small.push_back(g);
    }
  }
  std::ranges::stable_sort(tensors, std::greater<>(),
                           [&](std::size_t g) { return at_peak[g].front(); });
  tensors.insert(tensors.end(), small.begin(), small.end());
  std::vector<int64_t> others(dates.size(), 0);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i<kMostTensors&& static_cast<double>(at_peak[tensors[i]].front())> kLeastOfPeak * peak) {
      series.emplace_back(names[tensors[i]], std::move(bytes[tensors[i]]));
      continue;
    }
    for (std::size_t t = 0; t < dates.size(); ++t) others[t] += bytes[tensors[i]][t];
  }
  if (std::ranges::max(others) > 0) series.emplace_back("other tensors", std::move(others));
  return series;
}

}  // namespace

Json MemoryOfStage(const sim::Simulation& simulation, std::size_t r, std::size_t stage) {
  const ir::Plan& plan = simulation.plan();
  const sim::TaskOps ops(plan, simulation.tasks(), simulation.pricer(), stage);
  const sim::StageMemoryMap map(ops);
  const std::vector<sim::TaskSpan>& spans = simulation.timeline()[r];
  const sim::MemoryTrack track = map.Track(spans);
  const std::vector<double> dates = DatesOf(track, simulation.result().seconds);
  const Series series = SeriesOf(map, ops.program(), spans, dates, track.peak_time);
  std::vector<int64_t> total(dates.size(), 0);
  for (const auto& one : series) {
    for (std::size_t t = 0; t < total.size(); ++t) total[t] += one.second[t];
  }
  Json json = {{"stage", plan.programs[stage].stage},
               {"rank", simulation.result().ranks[r]},
               {"peak_bytes", track.peak},
               {"peak_at_s", track.peak_time},
               {"seconds", simulation.result().seconds},
               {"time_s", dates},
               {"total_bytes", total}};
  json["series"] = Json::array();
  for (const auto& [name, bytes] : series)
    json["series"].push_back({{"name", name}, {"bytes", bytes}});
  return json;
}

}  // namespace orrery::report
