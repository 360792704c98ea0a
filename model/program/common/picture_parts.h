// SPDX-License-Identifier: Apache-2.0
// The parts of a step's picture; see step_picture.h for their keys. The simulation has run with `record` and `keep_links`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "model/engine/event/simulation.h"

namespace orrery::report {

// `ranks`: indices of result().ranks, one per stage.
nlohmann::ordered_json TimelineJson(const sim::Simulation& simulation,
                                    const std::vector<std::size_t>& ranks);
// `rank`: an index of result().ranks, of that stage.
nlohmann::ordered_json MemoryOfStage(const sim::Simulation& simulation, std::size_t rank,
                                     std::size_t stage);
// Of a large cluster the nodes whose links are busiest, and the switches that they reach.
nlohmann::ordered_json DrawCluster(const sim::Simulation& simulation, const Cluster& cluster);

}  // namespace orrery::report
