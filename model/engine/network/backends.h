// SPDX-License-Identifier: Apache-2.0
// The door for backends that only some programs link; MakeNetwork() is the one for everybody else.
#pragma once

#include <memory>

#include "model/engine/network/network.h"

namespace orrery::net {

using NetworkMaker = std::unique_ptr<Network> (*)(Wires wires);

// Called by the backend's own file before main(); returns true.
bool OfferSimGrid(NetworkMaker maker);

}  // namespace orrery::net
