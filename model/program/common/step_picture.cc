// SPDX-License-Identifier: Apache-2.0
// Reduces a recorded step to what a figure can show.
#include "model/program/common/step_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "model/engine/event/index.h"
#include "model/engine/event/memory_track.h"
#include "model/engine/event/task_ops.h"
#include "model/engine/network/network.h"
#include "model/plan/ir/text_words.h"

namespace orrery::report {
namespace {

using Json = nlohmann::ordered_json;
using sim::At;

constexpr double kEffortOfFigures = 4;  // of a step that is simulated for its time alone
constexpr std::size_t kMostStagesShown = 16;
constexpr std::size_t kMostMemoryStages = 2;
constexpr std::size_t kLeastStagesShown = 4;
constexpr std::size_t kMostSpans = 2400;   // of all lanes of passes, and of all of messages
constexpr std::size_t kMemoryDates = 160;  // of a stage
constexpr std::size_t kMostTensors = 7;    // named in a stage's memory; the rest is "other tensors"
constexpr double kLeastOfPeak = 0.002;     // of the peak: what is less counts as "other tensors"
constexpr double kLongMessage = 0.02;      // of the step
constexpr std::size_t kMostDevices = 160;  // of a drawing

struct Span {
  double start = 0, end = 0;
  std::string name, phase;
  int32_t micro_batch = -1;
  int passes = 1;
};

// `count` of `all`, evenly spread, the first and the last among them.
std::vector<std::size_t> Spread(std::size_t all, std::size_t count) {
  std::vector<std::size_t> chosen;
  if (all <= count) {
    for (std::size_t i = 0; i < all; ++i) chosen.push_back(i);
    return chosen;
  }
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(i * (all - 1) / (count - 1));
  return chosen;
}

// The calls of a stream as spans: a call is one pass over a block.
class Passes {
 public:
  Passes(const sim::Simulation& simulation, std::size_t stage)
      : simulation_(simulation),
        stage_(stage),
        ops_(simulation.plan(), simulation.tasks(), simulation.pricer(), stage) {}

  const sim::TaskOps& ops() const { return ops_; }

  std::vector<Span> Of(std::size_t rank, std::size_t stream, bool compute) const {
    const sim::StageTasks& tasks = simulation_.tasks().stages[stage_];
    std::vector<Span> spans;
    int32_t call = -1;
    std::map<ir::Phase, double> by_phase;
    const auto close = [&] {
      if (spans.empty() || by_phase.empty()) return;
      const auto longest =
          std::ranges::max_element(by_phase, {}, [](const auto& one) { return one.second; });
      spans.back().phase = ir::kPhaseWords[At(static_cast<int>(longest->first))];
      by_phase.clear();
    };
    for (const int32_t id : tasks.on_stream[stream]) {
      const sim::TaskSpan& span = simulation_.timeline()[rank][At(id)];
      const std::span<const ir::Instance> instances = ops_.Of(id);
      for (std::size_t i = 0; i < instances.size(); ++i) {
        const ir::Instance& at = instances[i];
        const double begin = ops_.Begin(id, span, i), end = ops_.End(id, span, i);
        // A stream of messages has one span for each; messages between kernels belong to their pass.
        const bool message = compute && simulation_.tasks().stages[stage_].tasks[At(id)].line >= 0;
        // A long one, such as one that waits for a slow rank, is no part of a pass.
        const bool alone = message && end - begin > kLongMessage * simulation_.result().seconds;
        if (at.call != call || !compute || alone) {
          close();
          call = alone ? -1 : at.call;
          spans.push_back({begin, end, NameOf(at, !compute || alone), "", at.micro_batch});
        }
        spans.back().end = std::max(spans.back().end, end);
        by_phase[ops_.OpOf(at).phase] += end - begin;
      }
    }
    close();
    return spans;
  }

 private:
  std::string NameOf(const ir::Instance& at, bool message) const {
    if (message) return std::string(ir::Info(ops_.OpOf(at).kind).name);
    return ops_.program().blocks[At(at.block)].name;
  }

  const sim::Simulation& simulation_;
  const std::size_t stage_;
  const sim::TaskOps ops_;
};

// At most `most` spans: the first and the last of them, those in between as one.
std::vector<Span> Joined(std::vector<Span> spans, std::size_t most) {
  std::ranges::stable_sort(spans, {}, &Span::start);
  if (spans.size() <= most) return spans;
  const std::size_t edge = std::max<std::size_t>(1, most / 2);
  Span middle = spans[edge];
  const std::size_t last = spans.size() - edge;
  for (std::size_t i = edge + 1; i < last; ++i) {
    middle.end = std::max(middle.end, spans[i].end);
    ++middle.passes;
  }
  middle.phase = "mixed";
  middle.micro_batch = -1;
  spans.erase(spans.begin() + static_cast<std::ptrdiff_t>(edge),
              spans.begin() + static_cast<std::ptrdiff_t>(last));
  spans.insert(spans.begin() + static_cast<std::ptrdiff_t>(edge), std::move(middle));
  return spans;
}

struct Lane {
  int stage = 0;
  int64_t rank = 0;
  std::string stream;
  bool compute = false;
  std::vector<Span> spans;
};

// Of `stages` stages.
std::vector<Lane> LanesOf(const sim::Simulation& simulation, const std::vector<std::size_t>& ranks,
                          std::size_t stages) {
  const ir::Plan& plan = simulation.plan();
  std::vector<Lane> lanes;
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

// Lanes of passes or of messages, and their spans.
std::pair<std::size_t, std::size_t> SpansOf(const std::vector<Lane>& lanes, bool compute) {
  std::size_t count = 0, spans = 0;
  for (const Lane& lane : lanes) {
    if (lane.compute != compute) continue;
    ++count;
    spans += lane.spans.size();
  }
  return {std::max<std::size_t>(1, count), spans};
}

Json TimelineJson(const sim::Simulation& simulation, const std::vector<std::size_t>& ranks) {
  std::vector<Lane> lanes = LanesOf(simulation, ranks, kMostStagesShown);
  // Rather few stages with every pass than many with their edges alone.
  if (const auto [count, spans] = SpansOf(lanes, true); spans > kMostSpans) {
    const std::size_t stages = std::max(kLeastStagesShown, count * kMostSpans / spans);
    if (stages < count) lanes = LanesOf(simulation, ranks, stages);
  }
  Json json = {{"seconds", simulation.result().seconds},
               {"stages", simulation.plan().programs.size()},
               {"joined", 0}};
  int64_t joined = 0;
  json["lanes"] = Json::array();
  const std::size_t of_passes = kMostSpans / SpansOf(lanes, true).first,
                    of_messages = kMostSpans / SpansOf(lanes, false).first;
  for (Lane& lane : lanes) {
    Json out = {{"stage", lane.stage},
                {"rank", lane.rank},
                {"stream", lane.stream},
                {"compute", lane.compute}};
    out["spans"] = Json::array();
    for (const Span& span : Joined(std::move(lane.spans), lane.compute ? of_passes : of_messages)) {
      joined += span.passes > 1 ? span.passes : 0;
      out["spans"].push_back({{"start_s", span.start},
                              {"end_s", span.end},
                              {"name", span.name},
                              {"phase", span.phase},
                              {"micro_batch", span.micro_batch},
                              {"passes", span.passes}});
    }
    json["lanes"].push_back(std::move(out));
  }
  json["joined"] = joined;
  return json;
}

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

// The fullest moment in each of kMemoryDates intervals.
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

const char* WordOf(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "GPU";
    case DeviceKind::kNvSwitch:
      return "scale-up switch";
    case DeviceKind::kPcieSwitch:
      return "PCIe switch";
    case DeviceKind::kHost:
      return "host";
    case DeviceKind::kNic:
      return "NIC";
    case DeviceKind::kSwitch:
    case DeviceKind::kLeaf:
    case DeviceKind::kSpine:
    case DeviceKind::kCore:
    case DeviceKind::kRouter:
      return "switch";
  }
  return "switch";
}

// Links with their traffic; of a large cluster the nodes whose links are busiest, and the switches that they reach.
class Drawing {
 public:
  Drawing(const sim::Simulation& simulation, const Cluster& cluster)
      : cluster_(cluster),
        traffic_(sim::TrafficOnLinks(simulation.plan(), simulation.tasks(), simulation.meetings(),
                                     cluster.links.size())),
        seconds_(simulation.result().seconds) {}

  Json Draw() {
    ChooseNodes();
    ChooseSwitches();
    Json json = {{"nodes", cluster_.nodes}, {"nodes_shown", nodes_}};
    json["devices"] = Json::array();
    json["links"] = Json::array();
    for (const VertexId v : shown_) {
      const Device& device = cluster_.devices[At(v)];
      json["devices"].push_back(
          {{"name", cluster_.DeviceName(v)}, {"kind", WordOf(device.kind)}, {"node", device.node}});
    }
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const Link& link = cluster_.links[i];
      if (!shown_.contains(link.from) || !shown_.contains(link.to)) continue;
      json["links"].push_back({{"from", cluster_.DeviceName(link.from)},
                               {"to", cluster_.DeviceName(link.to)},
                               {"bytes", traffic_[i].bytes},
                               {"busy", Busy(i)},
                               {"efficiency", traffic_[i].efficiency()}});
    }
    return json;
  }

 private:
  double Busy(std::size_t link) const {
    return traffic_[link].occupied / cluster_.links[link].capacity.value / seconds_;
  }

  void ChooseNodes() {
    std::vector<double> busiest(At(cluster_.nodes), 0);
    std::vector<std::size_t> devices(busiest.size(), 0);
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      for (const VertexId end : {cluster_.links[i].from, cluster_.links[i].to}) {
        const int32_t node = cluster_.devices[At(end)].node;
        if (node >= 0) busiest[At(node)] = std::max(busiest[At(node)], Busy(i));
      }
    }
    for (const Device& device : cluster_.devices) {
      if (device.node >= 0) ++devices[At(device.node)];
    }
    std::vector<int64_t> order;
    for (int64_t n = 0; n < cluster_.nodes; ++n) order.push_back(n);
    std::ranges::stable_sort(order, std::greater<>(), [&](int64_t n) { return busiest[At(n)]; });
    std::size_t drawn = 0;
    for (const int64_t n : order) {
      if (!nodes_.empty() && drawn + devices[At(n)] > kMostDevices) break;
      drawn += devices[At(n)];
      nodes_.push_back(n);
    }
    std::ranges::sort(nodes_);
  }

  void ChooseSwitches() {
    for (std::size_t v = 0; v < cluster_.devices.size(); ++v) {
      if (std::ranges::binary_search(nodes_, cluster_.devices[v].node))
        shown_.insert(static_cast<VertexId>(v));
    }
    constexpr std::size_t kMostSwitches = 24;
    for (int hop = 0; hop < 2; ++hop) {
      std::set<VertexId> found;
      for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
        const Link& link = cluster_.links[i];
        if (traffic_[i].bytes <= 0 && cluster_.nodes > 1) continue;
        if (shown_.contains(link.from) && cluster_.devices[At(link.to)].node < 0)
          found.insert(link.to);
      }
      for (const VertexId v : found) {
        if (switches_ >= kMostSwitches) break;
        switches_ += shown_.insert(v).second ? 1 : 0;
      }
    }
  }

  const Cluster& cluster_;
  const std::vector<sim::LinkTraffic> traffic_;
  const double seconds_;
  std::vector<int64_t> nodes_;
  std::set<VertexId> shown_;
  std::size_t switches_ = 0;
};

}  // namespace

std::vector<std::size_t> Representatives(const sim::StepResult& result,
                                         const std::vector<int>& stages) {
  const auto working = [](const sim::RankTime& time) { return time.compute + time.overlapped; };
  std::map<int, std::size_t> by_stage;
  for (std::size_t r = 0; r < result.times.size(); ++r) {
    const auto [at, added] = by_stage.try_emplace(stages[r], r);
    if (!added && working(result.times[r]) > working(result.times[at->second])) at->second = r;
  }
  std::vector<std::size_t> ranks;
  for (const auto& [stage, r] : by_stage) ranks.push_back(r);
  return ranks;
}

void AddStepPicture(const sim::Simulation& simulation, const Cluster& cluster,
                    const std::vector<std::size_t>& ranks, nlohmann::ordered_json* json) {
  const ir::Plan& plan = simulation.plan();
  (*json)["timeline"] = TimelineJson(simulation, ranks);
  Json memory = Json::array();
  for (const std::size_t r : ranks) {
    const int64_t rank = simulation.result().ranks[r];
    memory.push_back(
        MemoryOfStage(simulation, r, At(plan.mesh.Coords(rank)[At(plan.mesh.program_axis)])));
  }
  std::stable_sort(memory.begin(), memory.end(), [](const Json& a, const Json& b) {
    return a["peak_bytes"].get<int64_t>() > b["peak_bytes"].get<int64_t>();
  });
  while (memory.size() > kMostMemoryStages) memory.erase(memory.size() - 1);
  (*json)["memory_over_time"] = std::move(memory);
  (*json)["cluster"] = Drawing(simulation, cluster).Draw();
}

void AddStepPicture(const orrery::Job& job, const ir::Plan& plan, nlohmann::ordered_json* json) {
  const double most = kEffortOfFigures * job.most_effort;
  if (const double effort = SimulationEffort(plan); effort > most) {
    (*json)["not_pictured"] = fmt::format(
        "the step is too large to draw: effort of {:.3g} ops, at most {:.3g}", effort, most);
    return;
  }
  try {
    const Cluster cluster = ClusterOf(job);
    sim::SimulationOptions options;
    options.keep_links = true;
    sim::Simulation simulation(plan, cluster, job.prices(), options);
    simulation.Run();
    std::vector<int> stages;
    for (const int64_t rank : simulation.result().ranks)
      stages.push_back(plan.mesh.Coords(rank)[At(plan.mesh.program_axis)]);
    AddStepPicture(simulation, cluster, Representatives(simulation.result(), stages), json);
  } catch (const InputError& error) {  // such as no route between two ranks
    (*json)["not_pictured"] = error.what();
  }
}

void AddStepPicture(const orrery::Job& job, const Strategy& layout, nlohmann::ordered_json* json) {
  AddStepPicture(job, LowerLegal(job, layout), json);
}

}  // namespace orrery::report
