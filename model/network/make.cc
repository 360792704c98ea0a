// SPDX-License-Identifier: Apache-2.0
// Chooses a backend.
#include "model/network/backends.h"
#include "model/network/fluid.h"

namespace orrery::net {

std::unique_ptr<Network> MakeNetwork(Backend backend, Wires wires) {
  switch (backend) {
    case Backend::kFluid:
      return std::make_unique<FluidNetwork>(std::move(wires));
    case Backend::kSimGrid:
      return MakeSimGridNetwork(std::move(wires));
  }
  return nullptr;
}

}  // namespace orrery::net
