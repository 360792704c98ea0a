// SPDX-License-Identifier: Apache-2.0
// NVLinks from the rates of bundles that NCCL's log prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/discover/observed.h"

namespace orrery::discover {

// None: the rate of a link of this GPU is not known, or does not divide those of the bundles.
std::optional<ScaleUp> LinksOfRates(const std::vector<NvBundle>& bundles, const std::string& gpu);

}  // namespace orrery::discover
