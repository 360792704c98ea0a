// SPDX-License-Identifier: Apache-2.0
// What a fit adds to trust in predictions (model/twin/trust.h).
#pragma once

#include <vector>

#include "calib/fit/kinship.h"

namespace orrery {

// The constants' covariance, the errors by kinship, and the differences between layouts of one sweep, which `unseen`
// gives for all framework profiles with kLeastPoints pairs or more and for all rows together.
Trust MakeTrust(const Evidence& evidence, const Unseen& unseen, const std::vector<KinError>& errors,
                const FitResult& result);

// `fresh` over `old`: its constants and sites replace those of the same name. Of kinship, the fit of at least half of the
// runs speaks. Left behind are constants that no file says to be fitted any more, and sites without runs.
Trust Merged(const Trust& old, const Trust& fresh);

}  // namespace orrery
