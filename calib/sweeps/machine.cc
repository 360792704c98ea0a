// SPDX-License-Identifier: Apache-2.0
// Pools sweeps and fits what they can determine.
#include "calib/sweeps/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "calib/import/device_names.h"
#include "calib/sweeps/sibling.h"
#include "model/hardware/catalog.h"

namespace orrery {
namespace {

constexpr std::size_t kLeastForLeftOut = 4;

bool OfOneNodeRing(const MeasuredRuns& runs, const TopologySpec* topology) {
  return runs.collective == "all_reduce" && runs.nodes == 1 && runs.ranks > 1 &&
         AlgorithmOf(runs, topology) == "ring";
}

FittedGroup FitGroup(const MeasuredRuns& runs, const std::vector<MeasuredRuns>& all,
                     const MachineTopologies& topologies) {
  FittedGroup group;
  group.runs = runs;
  const CurvePrior prior = PriorOf(runs, topologies.Find(runs.machine));
  group.protocols = ChooseProtocols(runs.points, prior);
  const CurveOptions options{group.protocols, true};
  group.fit = FitCurve(runs.points, prior, options);
  if (runs.points.size() >= kLeastForLeftOut)
    group.left_out = LeavePointsOut(runs.points, prior, options);
  const auto base = CurveOfSiblings(runs, all, topologies);
  if (!base || group.left_out.empty()) return group;
  std::vector<double> on_base = LeavePointsOutOnBase(runs.points, *base);
  if (!IsBetter(group.left_out, on_base)) return group;
  group.fit = FitOnBase(runs.points, *base);
  group.left_out = std::move(on_base);
  group.protocols = 1;
  return group;
}

void FitOverRanks(FittedMachine* machine) {
  for (const FittedGroup& group : machine->groups) {
    if (!OfOneNodeRing(group.runs, machine->topology)) continue;
    const int rings = RingsOf(machine->topology, group.runs.ranks);
    if (rings > 0) {
      machine->node_sweeps.push_back({group.runs.ranks, rings, group.runs.points});
    } else {
      machine->notes.push_back(fmt::format(
          "{} ranks: the links hold no ring among them; not part of the form over ranks",
          group.runs.ranks));
    }
  }
  if (machine->node_sweeps.empty()) return;
  if (machine->topology == nullptr) {
    machine->notes.push_back(
        "no form over ranks: --topology NAME says which links a node of this machine has");
    return;
  }
  machine->node_form = FitNodeForm(machine->node_sweeps);
}

}  // namespace

std::string OtherMachine(const MeasuredRuns& sweep, const TopologySpec& topology) {
  if (topology.gpu != kUnknownGpu && topology.other_nodes.empty()) {
    const GpuProfile gpu = LoadGpuProfile(topology.gpu);
    const std::string why = sweep.devices.empty() ? measured::OtherChip(sweep.machine, gpu)
                                                  : measured::OtherDevice(sweep.devices, gpu);
    if (!why.empty()) return fmt::format("{}, and {} has {}", why, topology.name, topology.gpu);
  }
  if (sweep.ranks_per_node() > topology.node.gpus)
    return fmt::format("it ran on {} ranks of a node, and a node of {} has {}",
                       sweep.ranks_per_node(), topology.name, topology.node.gpus);
  return "";
}

std::vector<MeasuredRuns> PoolSweeps(const std::vector<MeasuredRuns>& sweeps) {
  std::vector<MeasuredRuns> pooled;
  std::map<std::string, std::size_t> at;
  for (const MeasuredRuns& sweep : sweeps) {
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}", sweep.machine, sweep.collective, sweep.algorithm,
                    sweep.ranks, sweep.nodes, sweep.ranks == 0 ? sweep.name : "");
    const auto [found, added] = at.try_emplace(key, pooled.size());
    if (added) {
      pooled.push_back(sweep);
      continue;
    }
    MeasuredRuns& into = pooled[found->second];
    into.points.insert(into.points.end(), sweep.points.begin(), sweep.points.end());
    std::ranges::stable_sort(into.points, {}, &SweepPoint::bytes);
    if (into.source.find(sweep.source) == std::string::npos) into.source += "; " + sweep.source;
  }
  return pooled;
}

std::vector<FittedMachine> FitMachines(const std::vector<MeasuredRuns>& sweeps,
                                       const MachineTopologies& topologies) {
  std::vector<FittedMachine> machines;
  const std::vector<MeasuredRuns> pooled = PoolSweeps(sweeps);
  for (const MeasuredRuns& runs : pooled) {
    auto machine = std::ranges::find(machines, runs.machine, &FittedMachine::machine);
    if (machine == machines.end()) {
      machines.push_back({runs.machine, topologies.Find(runs.machine), {}, {}, {}, {}});
      machine = machines.end() - 1;
    }
    machine->groups.push_back(FitGroup(runs, pooled, topologies));
  }
  for (FittedMachine& machine : machines) FitOverRanks(&machine);
  return machines;
}

}  // namespace orrery
