// SPDX-License-Identifier: Apache-2.0
// Errors by kinship: what the fit says of runs when their nearest kin were not in it.
//
// Runs are left out in six ways, and predicted without: a quarter of the runs of each layer shape; an eighth of the layer
// shapes; all runs of one width on a cluster; a cluster; a chip; a framework's release. Each run of each way is then of the
// class that KinshipOf() (model/twin/kinship.h) gives it among the runs that remained: the same function that classifies
// questions. Errors of one cause are one observation, so a class counts in groups: layer shapes on a cluster (same shape,
// same model), widths on a cluster (new model), clusters, chips, releases. A group has the weight 1, however many rows.
//
// Model of the error e = log(predicted / measured) of a row of class c at site k, with the variance v that the covariance
// of the constants, their priors and unknown sites give it, and w for doublings outside of the range:
//   f = w sqrt((r_k s_c)^2 + v),   z f: HalfWidth() (model/twin/trust.h), by which questions get theirs
//   z_c  weighted quantile of |e| / f at 0.8 (1 + 1 / n), n groups: the next group, not the average one, shall be
//        inside with 80 % (split conformal prediction, Vovk et al. 2005)
//   s_c  such that z_c without r is that of a normal distribution (1.28), not below that of a nearer class
//   r_k  the same for the rows of site k in the first three classes, in squares shrunk to 1 by kSiteGroups groups; 1 in
//        the others
// Coverage of a class: each group judged by s, r and z from rows outside of it.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "calib/fit/holdout.h"
#include "model/twin/trust.h"

namespace orrery {

// A run that was predicted without some of its kin.
struct KinError {
  int row = 0;
  Kin kin = Kin::kNewFramework;
  std::string group, site;  // one observation of the class; where residuals are told apart
  double error = 0;         // log(predicted / measured)
  double variance = 0;      // v
  double doublings = 0;     // outside of the calibrated range
  bool new_chip = false;    // too, where the framework is new
};

struct KinModel {
  std::array<KinErrors, kKins> kin;
  std::map<std::string, double> sites;  // r
};

// Training runs only. Takes about a hundred refits.
std::vector<KinError> LeaveKinOut(const Evidence& evidence, Fitter* fitter);
// The rows of `groups` as they were left out: each predicted without its group.
std::vector<KinError> ClassifyLeftOut(const Evidence& evidence, const Groups& groups,
                                      const Unseen& unseen);

KinModel FitKinship(const std::vector<KinError>& errors);
// The same with the coverage of each class.
KinModel FitAndCover(const std::vector<KinError>& errors);

// Whether each row, left out by `holdout`, lies inside the interval from `errors` of rows outside of its group.
std::map<int, bool> Coverage(const Evidence& evidence, Holdout holdout, const Unseen& unseen,
                             const std::vector<KinError>& errors);

}  // namespace orrery
