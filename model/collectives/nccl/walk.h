// SPDX-License-Identifier: Apache-2.0
// One search for channels at fixed bandwidth and distances (src/graph/search.cc, see search.h).
#pragma once

#include "model/collectives/nccl/search.h"

namespace orrery::nccl {

// `graph` states pattern, bandwidth and distances that are tried; `best` is replaced where something better is found.
// At most `steps` GPUs are entered. Returns the steps that were left; -1: as many channels as allowed, nothing can be
// better. `system` is left as it was.
int FindChannelsAt(System* system, Graph* graph, Graph* best, int steps);

}  // namespace orrery::nccl
