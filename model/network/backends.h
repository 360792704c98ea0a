// SPDX-License-Identifier: Apache-2.0
// Makers of the optional backends; MakeNetwork() is the door for everybody else.
#pragma once

#include <memory>

#include "model/network/network.h"

namespace orrery::net {

std::unique_ptr<Network> MakeSimGridNetwork(Wires wires);

}  // namespace orrery::net
