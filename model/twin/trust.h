// SPDX-License-Identifier: Apache-2.0
// How far a predicted step time can be trusted: what the calibration covered and how wrong it was.
//
// calib/profiles/trust.json, written by `plan calibrate`, holds the covariance C of the logarithms
// of the fitted constants and, per software, the errors of runs that were left out. A prediction T
// with the slopes g = d log T / d log constant has the 80 % interval
//   T exp(z_low f) .. T exp(z_high f),   f = w sqrt(s^2 + g' C g + h),
// s: spread of the left-out errors; z: 10 % and 90 % quantiles of log(measured / predicted) / f over
// them; w = 1 + kPerDoubling x doublings outside of the calibrated range, at most kMostDoublings;
// h: for a chip, network or software without calibrated runs, the spreads of its constants' priors.
// On a cluster where that software was never calibrated s and z are those of all sources, each left
// out as a whole, and h also holds how far sites lie from their family, for each constant of the family
// around which sites were fitted.
// Two layouts of one model and cluster share most errors of the model, not those of their layouts:
// whether one is faster is judged by `difference`, the 80 % quantile of |difference of left-out
// errors| between rows of one sweep.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/price/layer_table.h"
#include "model/twin/situation.h"

namespace orrery {

inline constexpr double kPerDoubling = 0.1;
inline constexpr double kMostDoublings = 10;
inline constexpr double kPriorSpread = 0.15;  // of a prior that names none

enum class RunScale { kAny, kOneNode, kSeveralNodes };

// Left-out errors of one software.
struct FrameworkTrust {
  std::string profile;  // id; "": all of them left out by source, for software without runs
  RunScale scale = RunScale::kAny;  // runs that it speaks for, where both kinds were measured
  int rows = 0;
  double spread = 0.1;              // s
  double low = -1.28, high = 1.28;  // z
  double difference = 0;
  int pairs = 0;
  std::array<std::pair<double, double>, kFeatures> range{};
  std::set<std::string> gpus, fabrics, clusters;
};

struct Trust {
  // Constants that move as one: "gpu/family-ampere:gemm_efficiency_fp16".
  std::vector<std::vector<std::string>> constants;
  std::vector<double> covariance;  // by rows, whole
  std::vector<FrameworkTrust> frameworks;
  std::map<std::string, double> site_spread;  // of sites around a family's constant, logarithms

  bool empty() const { return frameworks.empty(); }
  const FrameworkTrust& Of(const std::string& framework, double nodes = 1) const;  // not empty
};

// The file below DataRoot(); without one an empty Trust. Throws InputError: it is damaged.
Trust LoadTrust();
Trust ParseTrust(const SourcePtr& source);
std::string TrustText(const Trust& trust);

struct Confidence {
  double total = 0;                  // seconds, as predicted
  double low = 0, high = 0;          // seconds
  double difference = 0;             // of logarithms; 0: not known
  int pairs = 0;                     // behind it
  std::vector<std::string> outside;  // "64 nodes: calibrated on 1 to 32"
};

using PredictWith = std::function<double(const CostSetting&)>;
// `total` = predict(setting). An empty Trust gives the interval of the software's profile.
Confidence ConfidenceOf(const Trust& trust, const CostSetting& setting, const Situation& at,
                        double total, const PredictWith& predict);

}  // namespace orrery
