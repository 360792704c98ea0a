// SPDX-License-Identifier: Apache-2.0
// What prices depend on: the profiles of a chip, a network and a framework, and the cluster.
#pragma once

#include "model/collectives/network.h"
#include "model/framework/profile.h"
#include "model/hardware/summary.h"

namespace orrery {

struct CostSetting {
  const GpuProfile* gpu = nullptr;
  const FabricProfile* fabric = nullptr;
  const FrameworkProfile* framework = nullptr;
  const ClusterSummary* cluster = nullptr;
  UplinkStretch stretch;  // of all messages between nodes
};

}  // namespace orrery
