// SPDX-License-Identifier: Apache-2.0
// Sweeps made from a known curve, with noise that repeats.
#pragma once

#include <cmath>
#include <random>

#include "calib/sweeps/sweep.h"
#include "model/hardware/sweep_curve.h"

namespace orrery {

// Two protocols: 12 us and 6 GB/s, 30 us and 200 GB/s, and a pipelining loss.
inline SweepCurve KnownCurve() {
  SweepCurve curve;
  curve.protocols = {{12e-6, 1 / 6e9}, {30e-6, 1 / 200e9}};
  curve.per_root_byte = 0.3 * 2 * std::sqrt(30e-6 / 200e9);
  return curve;
}

// Sizes from 8 B to 8 GiB by factors of two; times off by `noise` (relative, normal).
inline std::vector<SweepPoint> PointsOf(const SweepCurve& curve, double noise, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, noise);
  std::vector<SweepPoint> points;
  for (int power = 3; power <= 33; ++power) {
    const double bytes = std::ldexp(1.0, power);
    points.push_back({bytes, curve.Time(bytes) * std::exp(noise > 0 ? normal(random) : 0.0)});
  }
  return points;
}

inline MeasuredRuns MadeRuns(const std::string& collective, int ranks, int nodes,
                             std::vector<SweepPoint> points) {
  MeasuredRuns runs;
  runs.name = collective + std::to_string(ranks);
  runs.machine = "made machine";
  runs.collective = collective;
  runs.ranks = ranks;
  runs.nodes = nodes;
  runs.source = "made from a known curve";
  runs.points = std::move(points);
  return runs;
}

}  // namespace orrery
