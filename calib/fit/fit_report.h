// SPDX-License-Identifier: Apache-2.0
// What a fit found, as text: constants before and after, errors seen and unseen.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "calib/fit/holdout.h"

namespace orrery {

std::string RenderConstants(const FitResult& result);

// Factors of measured layers; "" when the fit has none.
std::string RenderLayers(const FitResult& result);

// `unseen`: errors with the group left out; empty: not computed.
std::string RenderErrors(const Evidence& evidence, const FitResult& result, Holdout holdout,
                         const Unseen& unseen);

// Rows that the fit did not see, predicted with its constants.
std::string RenderKept(const MeasurementSource& kept, const FitResult& result, ProfileStore store);

}  // namespace orrery
