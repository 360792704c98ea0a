// SPDX-License-Identifier: Apache-2.0
// Fits the curve of a sweep (model/hardware/sweep_curve.h) to its points.
//
// Variables, all but the last as logarithms, so that nothing becomes negative: a_1 the latency of
// the fastest start, b_P the bandwidth of the largest messages, u_i = a_{i+1} / a_i >= 1,
// v_i = b_i / b_{i+1} <= 1, and h = g / (2 sqrt(a_P / b_P)) in [0, 3], the pipelining loss in units
// of the line's own knee. Residuals are logarithms of predicted over measured, robust (Cauchy).
// Priors: wide on a_1 and b_P; on u, v, h what protocols of NCCL differ by on all kinds of machines
// (they carry a fit of few points). The number of protocols is the one whose left-out points are
// predicted best. The rest of the logarithms goes into a table, shrunk by a Gaussian process
// (exponential kernel) whose amplitude, reach and noise the points choose.
#pragma once

#include <string>
#include <vector>

#include "calib/sweeps/sweep.h"
#include "model/hardware/sweep_curve.h"

namespace orrery {

inline constexpr int kMostProtocols = 3;

struct NormalPrior {
  double mean = 0, sigma = 1;
};

struct CurvePrior {
  NormalPrior log_latency, log_bandwidth;  // a_1 in seconds, b_P in bytes per second
  NormalPrior log_latency_step{0.75, 0.6}, log_bandwidth_step{-1.6, 0.9};
  NormalPrior loss{0.25, 0.3};
};

// Wide: one node starts within tens of microseconds, several within hundreds.
CurvePrior GenericPrior(int nodes);

struct CurveConstant {
  std::string name;   // "latency 1", "bandwidth 2", "pipelining loss"
  double value = 0;   // SI
  double spread = 0;  // relative; 0: the value is none
  int points = 0;     // that it rests on
  double ratio = 1;   // posterior over prior spread: near 1 the points do not determine it
  bool bound = false;
};

struct CurveFit {
  SweepCurve curve;
  std::vector<CurveConstant> constants;
  double spread = 0;  // robust standard deviation of the formula's logarithmic residuals
  double noise = 0;   // of the points around the table
  int points = 0;
};

struct CurveOptions {
  int protocols = 0;  // 0: by cross-validation
  bool table = true;  // false: the formula alone
};

// At least one point. `bytes` of points ascending.
CurveFit FitCurve(const std::vector<SweepPoint>& points, const CurvePrior& prior,
                  const CurveOptions& options = {});

// ln(predicted / measured) of every point, each predicted by a fit without the points of its size.
std::vector<double> LeavePointsOut(const std::vector<SweepPoint>& points, const CurvePrior& prior,
                                   const CurveOptions& options);

// The number of protocols, 1 to kMostProtocols, with the smallest left-out error.
int ChooseProtocols(const std::vector<SweepPoint>& points, const CurvePrior& prior);

}  // namespace orrery
