// SPDX-License-Identifier: Apache-2.0
// Factors of measured layers as variables of a fit (model/price/layer_factors.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/fit/fit.h"

namespace orrery {

// One variable per framework profile and shape of layer that runs of two models or more share, so that a model
// left out is predicted by the others. Prior: a factor of 1 with this relative spread.
std::vector<FitParameter> LayerParameters(const std::vector<Observation>& observations,
                                          double spread, const ProfileStore& store);

// Text of calib/profiles/layer/<framework>.yaml by profile, of the factors that the rows determine.
std::map<std::string, std::string> LayerFiles(const FitResult& result);

// Writes them below `folder`, or into calib/profiles when it is empty; removes files of the fitted
// profiles that have no factor any more. Returns the paths.
std::vector<std::string> WriteLayerFiles(const FitResult& result, const std::string& folder);

}  // namespace orrery
