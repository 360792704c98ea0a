// SPDX-License-Identifier: Apache-2.0
// How many nodes a dragonfly can hold.
#pragma once

#include <cstdint>

#include "model/hardware/spec.h"

namespace orrery {

// Every pair of groups needs at least one global link, so a group of a routers with h global links
// each joins at most a*h + 1 groups (Kim et al., "Technology-Driven, Highly-Scalable Dragonfly
// Topology", 2008).
int64_t DragonflyMaxNodes(const FabricSpec& fabric, int64_t nics_per_node);

}  // namespace orrery
