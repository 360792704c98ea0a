// SPDX-License-Identifier: Apache-2.0
// What NCCL's choices depend on of a machine.
#pragma once

#include <cmath>
#include <memory>

#include "model/hardware/nccl_release.h"
#include "model/hardware/profile.h"
#include "model/hardware/summary.h"

namespace orrery::nccl {

struct Setting {
  std::shared_ptr<const NodeSpec> node;  // null: not described, or NCCL does not run on its chip
  int gpus_per_node = 1;                 // in use
  int domain_gpus = 1;                   // of nodes that share a scale-up domain
  int capability = 0;
  bool gpu_direct = true;      // of NICs and their network
  BytesPerSecond driver_rate;  // of a NIC, where its driver tells another than its own
  bool in_network = false;
  bool rails = false;  // the NICs next to each GPU are one device
  Release release = kOwnRelease;
};

// CUDA's, in tenths; 0: not a chip of that kind.
inline int Capability(const GpuProfile& gpu) {
  constexpr double kTenths = 10;
  return static_cast<int>(std::lround(gpu.compute_capability * kTenths));
}

// Whether the library's plugin makes one device of the NICs next to each GPU.
inline bool HasRails(const FabricProfile& fabric) { return fabric.rails > 0; }

inline Setting SettingOf(const ClusterSummary& cluster, const GpuProfile& gpu,
                         const FabricProfile& fabric) {
  Setting setting;
  setting.capability = Capability(gpu);
  if (setting.capability <= 0 || cluster.node == nullptr) return setting;
  setting.node = cluster.node;
  setting.gpus_per_node = cluster.gpus_per_node;
  setting.domain_gpus = cluster.domain_gpus();
  setting.gpu_direct = cluster.node->gpu_direct && fabric.gpu_direct > 0;
  setting.driver_rate = fabric.driver_rate;
  setting.in_network = cluster.network_reduces;
  setting.rails = HasRails(fabric);
  return setting;
}

}  // namespace orrery::nccl
