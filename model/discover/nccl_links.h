// SPDX-License-Identifier: Apache-2.0
// NVLinks from the rates of bundles that NCCL's log prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/discover/observed.h"

namespace orrery::discover {

// `gpu`: "" where it is not known, then its links have the rate that NCCL's stands for. `release`: 18 of NCCL 2.18; 0: not
// said. None: no rate of a link divides those of the bundles.
std::optional<ScaleUp> LinksOfRates(const std::vector<NvBundle>& bundles, const std::string& gpu,
                                    int release);

// nvidia-smi prints the number of links between two GPUs, not what lies between. SXM modules have no bridges: where two have
// all their links, these go into switches, whose other GPUs are not this node's (a part of a machine).
void FindSwitches(std::string_view gpu, int64_t gpus, ScaleUp* links);

}  // namespace orrery::discover
