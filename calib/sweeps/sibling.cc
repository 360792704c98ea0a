// SPDX-License-Identifier: Apache-2.0
// Tables over the curve that other numbers of ranks give.
#include "calib/sweeps/sibling.h"

#include <algorithm>
#include <cmath>

#include "calib/sweeps/residual_table.h"

namespace orrery {
namespace {

constexpr double kMostError = 0.3;  // of one point, so that none decides
constexpr double kClearly =
    0.93;  // left-out error over that of the curve alone; a smaller gain is chance

bool IsNodeRing(const MeasuredRuns& sweep, const TopologySpec* topology) {
  return sweep.collective == "all_reduce" && sweep.nodes == 1 && sweep.ranks > 1 &&
         RingsOf(topology, sweep.ranks) > 0 && AlgorithmOf(sweep, topology) == "ring";
}

double SumOf(const std::vector<double>& errors) {
  double sum = 0;
  for (const double error : errors) sum += std::min(std::abs(error), kMostError);
  return sum;
}

}  // namespace

std::optional<SweepCurve> CurveOfSiblings(const MeasuredRuns& sweep,
                                          const std::vector<MeasuredRuns>& sweeps,
                                          const MachineTopologies& topologies) {
  const TopologySpec* topology = topologies.Find(sweep.machine);
  if (!IsNodeRing(sweep, topology)) return std::nullopt;
  std::vector<NodeSweep> others;
  for (const MeasuredRuns& other : sweeps) {
    if (other.machine == sweep.machine && other.ranks != sweep.ranks && IsNodeRing(other, topology))
      others.push_back({other.ranks, RingsOf(topology, other.ranks), other.points});
  }
  if (others.empty()) return std::nullopt;
  NodeRingForm form = FitNodeForm(others).form;
  form.residuals = ResidualsNear(form, others, sweep.ranks);
  return form.CurveOf(sweep.ranks, RingsOf(topology, sweep.ranks));
}

CurveFit FitOnBase(const std::vector<SweepPoint>& points, const SweepCurve& base) {
  std::vector<SweepCurve::Residual> left;
  for (const SweepPoint& point : points)
    left.push_back({std::log(point.bytes), std::log(point.seconds / base.Time(point.bytes))});
  const ResidualTable table = ShrinkResiduals(left);
  CurveFit fit;
  fit.curve = base;
  fit.curve.residuals.clear();
  for (const SweepCurve::Residual& entry : table.entries)
    fit.curve.residuals.push_back(
        {entry.log_bytes, entry.log_ratio + base.Correction(entry.log_bytes)});
  fit.noise = table.noise;
  fit.points = static_cast<int>(points.size());
  const SweepCurve::Protocol& line = base.protocols.front();
  const auto constant = [&](const char* name, double value) {
    fit.constants.push_back({name, value, 0, fit.points, 0, false});
  };
  constant("latency 1", line.latency);
  constant("bandwidth 1", 1 / line.per_byte);
  constant("pipelining loss", base.per_root_byte);
  return fit;
}

std::vector<double> LeavePointsOutOnBase(const std::vector<SweepPoint>& points,
                                         const SweepCurve& base) {
  std::vector<double> errors;
  for (const SweepPoint& point : points) {
    std::vector<SweepPoint> kept;
    std::ranges::copy_if(points, std::back_inserter(kept),
                         [&](const SweepPoint& one) { return one.bytes != point.bytes; });
    if (kept.empty()) return {};
    // Other sweeps' residuals at this size stay known: they are measured.
    std::vector<SweepCurve::Residual> left;
    for (const SweepPoint& one : kept)
      left.push_back({std::log(one.bytes), std::log(one.seconds / base.Time(one.bytes))});
    SweepCurve table;
    table.residuals = ShrinkResiduals(left).entries;
    errors.push_back(table.Correction(std::log(point.bytes)) +
                     std::log(base.Time(point.bytes) / point.seconds));
  }
  return errors;
}

bool IsBetter(const std::vector<double>& before, const std::vector<double>& after) {
  return !after.empty() && after.size() == before.size() && SumOf(after) < kClearly * SumOf(before);
}

}  // namespace orrery
