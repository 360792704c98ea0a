// SPDX-License-Identifier: Apache-2.0
// Reduces a recorded step to what a figure can show.
#include "model/program/common/step_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "model/engine/event/index.h"
#include "model/program/common/picture_parts.h"

namespace orrery::report {
namespace {

using Json = nlohmann::ordered_json;
using sim::At;

constexpr double kEffortOfFigures = 4;  // of a step that is simulated for its time alone
constexpr std::size_t kMostMemoryStages = 2;
constexpr double kRounding = 1e-9;

}  // namespace

std::vector<std::size_t> Representatives(const sim::StepResult& result,
                                         const std::vector<int>& stages) {
  const auto working = [](const sim::RankTime& time) { return time.compute + time.overlapped; };
  std::map<int, std::size_t> by_stage;
  for (std::size_t r = 0; r < result.times.size(); ++r) {
    const auto [at, added] = by_stage.try_emplace(stages[r], r);
    // The first of those that differ by rounding alone.
    const double most = working(result.times[at->second]) * (1 + kRounding);
    if (!added && working(result.times[r]) > most) at->second = r;
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
  (*json)["cluster"] = DrawCluster(simulation, cluster);
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
