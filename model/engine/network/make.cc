// SPDX-License-Identifier: Apache-2.0
// Chooses a backend.
#include "model/base/diagnostics.h"
#include "model/engine/network/backends.h"
#include "model/engine/network/fluid.h"

namespace orrery::net {
namespace {

NetworkMaker simgrid = nullptr;  // constant before any constructor runs

}  // namespace

bool OfferSimGrid(NetworkMaker maker) {
  simgrid = maker;
  return true;
}

bool HasSimGrid() { return simgrid != nullptr; }

std::unique_ptr<Network> MakeNetwork(Backend backend, Wires wires) {
  switch (backend) {
    case Backend::kFluid:
      return std::make_unique<FluidNetwork>(std::move(wires));
    case Backend::kSimGrid:
      if (HasSimGrid()) return simgrid(std::move(wires));
      throw InputError("this build has no SimGrid backend",
                       "install libsimgrid-dev and build again, or use the fluid backend");
  }
  return nullptr;
}

}  // namespace orrery::net
