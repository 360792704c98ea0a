// SPDX-License-Identifier: Apache-2.0
// What a fit found, as text: constants before and after, errors seen and unseen.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/case_source.h"
#include "calib/fit/fit.h"
#include "calib/fit/kinship.h"

namespace orrery {

std::string RenderConstants(const FitResult& result);

// What was learnt of sites: each site's factor with its 80 % interval. Empty: no site was fitted.
std::string RenderSites(const FitResult& result);

// Training runs that a site's factor leaves far from what is predicted. Empty: none.
std::string RenderUnexplained(const Evidence& evidence, const FitResult& result);

// `unseen`: errors with the group left out, `by_kinship`: those behind the intervals; empty: not computed.
std::string RenderErrors(const Evidence& evidence, const FitResult& result, Holdout holdout,
                         const Unseen& unseen, const std::vector<KinError>& by_kinship);

// Rows that the fit did not see, predicted with its constants; intervals as `trust` has them.
std::string RenderKept(const CaseSource& kept, const FitResult& result, const Trust& trust,
                       ProfileStore store);

}  // namespace orrery
