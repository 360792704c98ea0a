// SPDX-License-Identifier: Apache-2.0
// How far a predicted step time can be trusted: how wrong the calibration was on runs as far from its evidence.
//
// calib/profiles/trust.json, written by `plan calibrate`, holds the covariance C of the logarithms of the fitted constants
// and, per class of kinship (kinship.h), the errors of runs whose nearest kin were left out. A prediction T with the
// slopes g = d log T / d log constant has the 80 % interval
//   T exp(-z f) .. T exp(z f),   f = w sqrt((r s)^2 + g' C g + h),        (HalfWidth())
// s, z: spread of the class beyond what the constants explain, and the 80 % quantile of |log(measured / predicted)| / f
// over its groups (calib/fit/kinship.h); with a new chip and a new framework at once s^2 also holds what a new chip adds
// to a new cluster. r: errors of this site over those of its class, where it was calibrated, else 1. w = 1 + kPerDoubling x
// doublings outside of the calibrated range. h: spreads of the priors of a chip, network or framework without calibrated
// runs, the rates between nodes of a network without them (kNewNetwork) and, where the framework was never calibrated on the
// cluster, how far sites lie from their family, for each constant around which sites were fitted, and what the topology file
// assumes of the links between nodes (kAssumedRate). C knows the
// files of the catalogue; a constant that a user's file sets counts by the spread that it states there, on its own. At a site
// that `plan calibrate` calibrated, C is that of its own profile: its factor took up what other constants are off there.
// Two layouts of one model and cluster share most errors of the model, not those of their layouts: whether one is faster
// is judged by `difference`, the 80 % quantile of |difference of left-out errors| between rows of one sweep.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/price/setting.h"
#include "model/twin/kinship.h"

namespace orrery {

inline constexpr double kPerDoubling = 0.1;
inline constexpr double kPriorSpread = 0.15;  // of a prior that names none
// Of rates between nodes that a topology of evidence C assumes: a factor of two at 80 %, as generations of NICs differ.
inline constexpr double kAssumedRate = 0.54;
// Of rates between nodes of a network that no calibrated run used. Published collectives of clusters that made no constant are 20 %
// off to 16 MiB (calib/DERIVATIONS.md, section 8) and 14 % above (calib/ACCURACY.md).
inline constexpr double kNewNetwork = 0.2;

// Errors of one class of kinship.
struct KinErrors {
  int groups = 0, rows = 0;  // independent groups; runs in them
  double spread = 0.1;       // s
  double quantile = 1.28;    // z
  double covered = 0;        // share of the groups inside the interval of the other groups
};

// 80 % of the differences between layouts of one sweep are below this.
struct SweepDifference {
  double difference = 0;  // of logarithms
  int pairs = 0;
};

struct Trust {
  // Constants that move as one: "gpu/family-ampere:gemm_efficiency_fp16".
  std::vector<std::vector<std::string>> constants;
  std::vector<double> covariance;  // by rows, whole
  std::array<KinErrors, kKins> kin;
  std::map<std::string, double> sites;                 // r by SiteOf()
  std::map<std::string, SweepDifference> differences;  // by framework profile; "": all
  std::map<std::string, double> site_spread;  // of sites around a family's constant, logarithms
  std::vector<RunIdentity> runs;              // calibrated ones; of left_out.csv, not of the file

  bool empty() const;  // no class has a group
};

// z f of a class. `variance`: g' C g + h and, for a new framework on a new chip, ChipBesideFramework().
double HalfWidth(const KinErrors& of_class, double site, double variance, double doublings);
double ChipBesideFramework(const std::array<KinErrors, kKins>& kin);

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
  std::string basis;                 // "new cluster, 16 groups"; "": the profile's residuals
};

using PredictWith = std::function<double(const CostSetting&)>;
// `total` = predict(setting). An empty Trust gives the interval of the framework's profile.
Confidence ConfidenceOf(const Trust& trust, const CostSetting& setting, const RunIdentity& asked,
                        double total, const PredictWith& predict);

}  // namespace orrery
