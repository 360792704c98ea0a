// SPDX-License-Identifier: Apache-2.0
// Stands in for the SimGrid backend where the library was not found.
#include "model/input/diagnostics.h"
#include "model/network/backends.h"

namespace orrery::net {

bool HasSimGrid() { return false; }

std::unique_ptr<Network> MakeSimGridNetwork(Wires) {
  throw InputError("this build has no SimGrid backend",
                   "install libsimgrid-dev and build again, or use the fluid backend");
}

}  // namespace orrery::net
