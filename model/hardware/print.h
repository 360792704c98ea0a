// SPDX-License-Identifier: Apache-2.0
// The text of `plan topo NAME`: figures, a drawing of one node, link matrix, example routes.
#pragma once

#include <cstdint>
#include <string>

#include "model/hardware/spec.h"

namespace orrery {

std::string PrintTopology(const TopologySpec& spec, int64_t nodes);

}  // namespace orrery
