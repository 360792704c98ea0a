// SPDX-License-Identifier: Apache-2.0
// Fits constants jointly to all measurements, and says how far to trust them.
//
// Residual: log(predicted / measured) over the spread of its group, with a Cauchy loss. A group of
// n rows counts as min(n, sqrt(n n0)) rows: rows of one sweep share the errors of the model. The
// spreads of the groups come from a first fit. A constant whose posterior spread stays above
// kKeptRatio of its prior's was not determined by the data and keeps its value.
#pragma once

#include <Eigen/Dense>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "calib/fit/parameters.h"
#include "calib/fit/solver.h"
#include "calib/fit/source.h"

namespace orrery {

inline constexpr double kKeptRatio = 0.95;  // posterior over prior spread: above, the prior stays
inline constexpr double kWeakRatio = 0.7;   // above, the value moved but mostly rests on its prior
inline constexpr double kMovesRow = 0.02;   // relative change of a row per relative change

struct FitOptions {
  double first_spread = 0.05;   // of every group, before the first fit
  double least_spread = 0.015;  // what the model is never trusted beyond
  double cauchy_scale = 1.4;
  double full_rows = 40;  // n0
  int threads = 2;
  // Runs of a user's own site: a few are no outliers of each other, whatever the prior says.
  void TrustFewRows(std::size_t rows) {
    if (rows < 8) cauchy_scale = 100;
  }
};

enum class FitStatus { kFitted, kWeak, kKept };

struct FittedConstant {
  FitParameter parameter;
  double after = 0;
  double spread = 0;  // relative
  double ratio = 1;   // posterior over prior spread
  FitStatus status = FitStatus::kKept;
  bool bound = false;
  int points = 0;                   // rows that move with it
  std::vector<std::string> groups;  // that determine it, the most informative first
};

// All measurements of a fit in one order, with the profiles as they stand.
class Evidence {
 public:
  Evidence(std::vector<const MeasurementSource*> sources, ProfileStore store);
  const std::vector<const Observation*>& observations() const { return observations_; }
  const ProfileStore& store() const { return store_; }
  // Predictions for `which` (ascending).
  std::vector<double> Predict(const ProfileStore& store, const std::vector<int>& which) const;

 private:
  std::vector<const MeasurementSource*> sources_;
  std::vector<int> first_;  // index of each source's first observation
  std::vector<const Observation*> observations_;
  ProfileStore store_;
};

struct FitResult {
  std::vector<FittedConstant> constants;
  std::vector<double> error;             // log(predicted / measured), per observation
  std::map<std::string, double> spread;  // per group
  Eigen::MatrixXd covariance;  // of the logarithms of the constants, kept ones by their priors
};

// How far the sites that are drawn around a constant lie from it, by index of that constant.
std::map<int, double> SiteSpreads(const std::vector<FitParameter>& parameters);

// Rows predicted by a fit that had not seen them.
struct Unseen {
  std::vector<double> error;          // log(predicted / measured); empty: nothing was left out
  std::vector<double> variance;       // of the prediction's logarithm, by the constants' covariance
  std::vector<double> site_variance;  // more of it where its site is not known
};

class Fitter {
 public:
  Fitter(const Evidence& evidence, std::vector<FitParameter> parameters, FitOptions options);
  ~Fitter();
  FitResult Fit();
  // After Fit(): the rows at `without` when they are left out. `site`: they are all that is known of
  // theirs, so that constants go far (the model is made linear anew on the way).
  Unseen LeaveOut(const std::vector<int>& without, bool site = false);

 private:
  class Model;
  std::vector<double> Weights() const;
  std::vector<Variable> Variables() const;
  // Of the site of a row with these slopes around the constants of its family: as far as others lie.
  double SiteVariance(const Eigen::VectorXd& slope) const;
  double PriorSpread(std::size_t j) const;  // of the constant, its centre's own included
  // By a model that is linear around `around`.
  void Refit(const std::vector<double>& weights, const SolverOptions& options,
             const Solution& around, Solution* solution);
  FitResult Describe(const Solution& solution) const;
  Eigen::MatrixXd Covariance(const Solution& solution, const std::vector<double>& weights) const;

  const Evidence& evidence_;
  std::vector<FitParameter> parameters_;
  FitOptions options_;
  std::unique_ptr<Model> model_;
  std::map<std::string, double> spread_;
  Solution solution_;
  std::vector<bool> frozen_;
  std::vector<double> ratios_;
};

}  // namespace orrery
