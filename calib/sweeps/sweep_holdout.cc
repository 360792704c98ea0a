// SPDX-License-Identifier: Apache-2.0
// Leaves parts of sweeps out and predicts them.
#include "calib/sweeps/sweep_holdout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calib/sweeps/sibling.h"
#include "model/collectives/measured.h"
#include "model/collectives/network.h"
#include "model/hardware/measured_collectives.h"
#include "model/hardware/summary.h"

namespace orrery {
namespace {

constexpr double kKiB = 1024, kMiB = 1024 * kKiB;
constexpr double kFourSizes[] = {8, 128 * kKiB, 2 * kMiB, 64 * kMiB};
constexpr std::pair<const char*, SweepHoldout> kHoldoutNames[] = {
    {"none", SweepHoldout::kNone},
    {"point", SweepHoldout::kPoint},
    {"collective", SweepHoldout::kCollective},
    {"ranks", SweepHoldout::kRanks},
    {"nodes", SweepHoldout::kNodes},
    {"four-points", SweepHoldout::kFourPoints}};

HeldOutSweep Predicted(const MeasuredRuns& sweep, const std::string& from,
                       const SweepCurve& curve) {
  HeldOutSweep out{sweep.name + from, sweep.nodes, {}};
  for (const SweepPoint& point : sweep.points)
    out.points.push_back({point.bytes, std::log(curve.Time(point.bytes) / point.seconds)});
  return out;
}

std::optional<HeldOutSweep> WithoutMeasurement(const MeasuredRuns& sweep,
                                               const TopologySpec* topology) {
  HeldOutSweep out{sweep.name, sweep.nodes, {}};
  for (const SweepPoint& point : sweep.points) {
    const auto time = ModelTime(sweep, topology, point.bytes);
    if (!time) return std::nullopt;
    out.points.push_back({point.bytes, std::log(*time / point.seconds)});
  }
  return out;
}

std::optional<HeldOutSweep> WithoutEachPoint(const MeasuredRuns& sweep,
                                             const std::vector<MeasuredRuns>& sweeps,
                                             const MachineTopologies& topologies) {
  if (sweep.points.front().bytes == sweep.points.back().bytes) return std::nullopt;
  HeldOutSweep out{sweep.name, sweep.nodes, {}};
  std::vector<double> errors =
      LeavePointsOut(sweep.points, PriorOf(sweep, topologies.Find(sweep.machine)), {});
  if (const auto base = CurveOfSiblings(sweep, sweeps, topologies)) {
    const std::vector<double> on_base = LeavePointsOutOnBase(sweep.points, *base);
    if (IsBetter(errors, on_base)) errors = on_base, out.name += " with other ranks";
  }
  for (std::size_t i = 0; i < errors.size(); ++i)
    out.points.push_back({sweep.points[i].bytes, errors[i]});
  return out;
}

std::optional<HeldOutSweep> FromFourPoints(const MeasuredRuns& sweep,
                                           const TopologySpec* topology) {
  std::vector<SweepPoint> four;
  MeasuredRuns others = sweep;
  others.points.clear();
  for (const SweepPoint& point : sweep.points) {
    const bool kept = std::ranges::find(kFourSizes, point.bytes) != std::end(kFourSizes);
    (kept ? four : others.points).push_back(point);
  }
  if (four.size() != std::size(kFourSizes) || others.points.empty()) return std::nullopt;
  return Predicted(others, "", FitCurve(four, PriorOf(sweep, topology)).curve);
}

void FromOtherCollectives(const MeasuredRuns& sweep, const std::vector<MeasuredRuns>& sweeps,
                          const MachineTopologies& topologies, std::vector<HeldOutSweep>* out) {
  const TopologySpec* topology = topologies.Find(sweep.machine);
  const std::string algorithm = AlgorithmOf(sweep, topology);
  if (algorithm != "ring" || sweep.ranks < 2) return;
  for (const MeasuredRuns& other : sweeps) {
    if (other.machine != sweep.machine || other.collective == sweep.collective ||
        other.ranks != sweep.ranks || other.nodes != sweep.nodes ||
        AlgorithmOf(other, topology) != algorithm)
      continue;
    const SweepCurve curve = FitCurve(other.points, PriorOf(other, topology)).curve;
    out->push_back(Predicted(sweep, fmt::format(" from {}", other.collective),
                             ForCollective(curve, other.collective, sweep.collective, sweep.ranks,
                                           ChainPipelining(topology, sweep.nodes))));
  }
}

std::optional<HeldOutSweep> FromOtherRanks(const MeasuredRuns& sweep,
                                           const std::vector<MeasuredRuns>& sweeps,
                                           const MachineTopologies& topologies) {
  const auto curve = CurveOfSiblings(sweep, sweeps, topologies);
  if (!curve) return std::nullopt;
  return Predicted(sweep, " from other numbers of ranks", *curve);
}

GroupCurve GroupOf(const MeasuredRuns& runs, const TopologySpec* topology) {
  GroupCurve group;
  group.collective = runs.collective;
  group.algorithm = runs.algorithm;
  group.ranks = runs.ranks;
  group.nodes = runs.nodes;
  group.curve = FitCurve(runs.points, PriorOf(runs, topology)).curve;
  group.least_bytes = runs.points.front().bytes;
  group.most_bytes = runs.points.back().bytes;
  return group;
}

// Of sweeps over several nodes, in their order.
std::vector<GroupCurve> FitGroups(const std::vector<MeasuredRuns>& sweeps,
                                  const MachineTopologies& topologies) {
  std::vector<GroupCurve> groups;
  for (const MeasuredRuns& sweep : sweeps)
    groups.push_back(sweep.nodes > 1 ? GroupOf(sweep, topologies.Find(sweep.machine))
                                     : GroupCurve{});
  return groups;
}

// By the rules of the twin itself, among all sweeps of the machine on other numbers of nodes.
void FromOtherNodes(const MeasuredRuns& sweep, const std::vector<MeasuredRuns>& sweeps,
                    const std::vector<GroupCurve>& fitted, const TopologySpec* topology,
                    std::vector<HeldOutSweep>* out) {
  const auto collective = CollectiveNamed(sweep.collective);
  if (topology == nullptr || !collective || sweep.nodes < 2 || sweep.ranks % sweep.nodes != 0)
    return;
  auto others = std::make_shared<MeasuredCollectives>();
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    const MeasuredRuns& other = sweeps[i];
    if (other.machine == sweep.machine && other.nodes != sweep.nodes && other.nodes > 1)
      others->groups.push_back(fitted[i]);
  }
  const ClusterSummary cluster = Summarise(*topology, sweep.nodes, sweep.ranks_per_node());
  FabricProfile fabric = LoadFabricProfile(cluster.fabric_profile);
  fabric.measured = others;
  const Network network = ViewNetwork(cluster, LoadGpuProfile(cluster.gpu), fabric,
                                      GroupShape{sweep.ranks, cluster.domain_gpus(), 1});
  const auto found = FindMeasuredTime(*collective, network, sweep.algorithm);
  if (found == nullptr) return;
  out->push_back(Predicted(sweep, " from " + found->origin, found->curve));
}

std::string Cells(const BandErrors& errors) {
  std::string text;
  for (const BandError& band : errors.bands) {
    const auto mean = band.mean();
    text += mean ? fmt::format("{:>9.1f} ({:>3})", 100 * *mean, band.points)
                 : fmt::format("{:>15}", "-");
  }
  return text;
}

}  // namespace

SweepHoldout ParseSweepHoldout(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, holdout] : kHoldoutNames) {
    if (text == name) return holdout;
    names.emplace_back(name);
  }
  throw InputError(fmt::format("--holdout {} does not apply to sweeps", text),
                   SuggestName(text, names));
}

const char* NameOf(SweepHoldout holdout) {
  for (const auto& [name, value] : kHoldoutNames) {
    if (value == holdout) return name;
  }
  return "";
}

std::string WhatIsLeftOut(SweepHoldout holdout) {
  switch (holdout) {
    case SweepHoldout::kNone:
      return "no measurement: closed form with class constants (priors)";
    case SweepHoldout::kPoint:
      return "leave-one-size-out: predicted from the other sizes of the sweep";
    case SweepHoldout::kCollective:
      return "leave-one-sweep-out: predicted from another collective with the same algorithm on "
             "the machine";
    case SweepHoldout::kRanks:
      return "leave-one-sweep-out: predicted from other numbers of ranks of the node";
    case SweepHoldout::kNodes:
      return "leave-one-node-count-out: predicted from other numbers of nodes of the machine";
    case SweepHoldout::kFourPoints:
      return "fitted to 8 B, 128 KiB, 2 MiB and 64 MiB only";
  }
  return "";
}

std::vector<HeldOutSweep> HoldOut(SweepHoldout holdout, const std::vector<MeasuredRuns>& sweeps,
                                  const MachineTopologies& topologies) {
  std::vector<HeldOutSweep> out;
  std::vector<GroupCurve> fitted;
  if (holdout == SweepHoldout::kNodes) fitted = FitGroups(sweeps, topologies);
  for (const MeasuredRuns& sweep : sweeps) {
    const TopologySpec* topology = topologies.Find(sweep.machine);
    std::optional<HeldOutSweep> one;
    switch (holdout) {
      case SweepHoldout::kNone:
        one = WithoutMeasurement(sweep, topology);
        break;
      case SweepHoldout::kPoint:
        one = WithoutEachPoint(sweep, sweeps, topologies);
        break;
      case SweepHoldout::kCollective:
        FromOtherCollectives(sweep, sweeps, topologies, &out);
        break;
      case SweepHoldout::kRanks:
        one = FromOtherRanks(sweep, sweeps, topologies);
        break;
      case SweepHoldout::kNodes:
        FromOtherNodes(sweep, sweeps, fitted, topology, &out);
        break;
      case SweepHoldout::kFourPoints:
        one = FromFourPoints(sweep, topology);
        break;
    }
    if (one) out.push_back(std::move(*one));
  }
  return out;
}

std::optional<double> BandError::mean() const {
  if (points == 0) return std::nullopt;
  return sum / points;
}

void BandErrors::Add(const HeldOutPoint& point) {
  BandError& band = bands[SizeBand(point.bytes)];
  band.sum += std::abs(std::exp(point.error) - 1);
  ++band.points;
}

std::string RenderHoldOut(SweepHoldout holdout, const std::vector<HeldOutSweep>& sweeps) {
  std::string text = fmt::format("{}; mean |error| in % (points)\n{:<64}{:>15}{:>15}{:>15}\n",
                                 WhatIsLeftOut(holdout), "sweep", SizeBandName(0), SizeBandName(1),
                                 SizeBandName(2));
  BandErrors all, one_node, several;
  for (const HeldOutSweep& sweep : sweeps) {
    BandErrors errors;
    for (const HeldOutPoint& point : sweep.points) {
      errors.Add(point);
      all.Add(point);
      (sweep.nodes == 1 ? one_node : several).Add(point);
    }
    text += fmt::format("{:<64}{}\n", sweep.name, Cells(errors));
  }
  if (sweeps.empty()) return text + "this applies to no sweep\n";
  text += fmt::format("{:<64}{}\n", "one node", Cells(one_node));
  text += fmt::format("{:<64}{}\n", "several nodes", Cells(several));
  return text + fmt::format("{:<64}{}\n", "all points", Cells(all));
}

}  // namespace orrery
