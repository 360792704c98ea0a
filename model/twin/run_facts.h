// SPDX-License-Identifier: Apache-2.0
// Facts of a framework's release and choices that shape a run, as it ran: {"attention", "fa2"}, {"compile", "on"}.
//
// Stated are those for which the layout has an occasion, in whichever way they went: no fact of tensor parallelism where
// nothing is cut, none of reductions where nothing is reduced.
#pragma once

#include <map>
#include <string>

#include "model/price/setting.h"

namespace orrery {

using RunFacts = std::map<std::string, std::string>;

// Kernels of a chip: known where they ran on it.
inline constexpr const char* kAttentionFact = "attention";
inline constexpr const char* kProductsFact = "products";  // "16-bit", "fp32", "mxfp8"

RunFacts FactsOf(const CostSetting& setting, const Workload& work, const Strategy& strategy);
std::string FactsText(const RunFacts& facts);  // "attention=fa2;compile=on"
RunFacts ReadFacts(const std::string& text);

}  // namespace orrery
