// SPDX-License-Identifier: Apache-2.0
// calib/ACCURACY.md: how far predictions are from published measurements, as `plan validate FILE.csv --accuracy` writes it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "calib/validate/collective_errors.h"
#include "calib/validate/left_out.h"
#include "calib/validate/validate.h"

namespace orrery {

struct Accuracy {
  std::vector<CasePrediction> closed, event;  // the same runs by both engines
  LeftOutRows left_out;
  std::array<KinErrors, kKins> kin;           // errors by kinship, of trust.json
  std::vector<CasePrediction> seeds;          // single figures of tutorials
  std::vector<CollectiveErrors> collectives;  // by class constants
  std::vector<SweepErrors> sweeps;            // fitted, each size left out
};

// Predicts the runs of `path` by both engines, and what else the document tells from calib/data and calib/profiles.
Accuracy MeasureAccuracy(const std::string& path);

// Markdown. Errors in % with one digit, so that two builds print the same text but for the last digit.
std::string RenderAccuracy(const Accuracy& accuracy);

}  // namespace orrery
