// SPDX-License-Identifier: Apache-2.0
// Prices of what the host does for a GPU: copies over the link between both, updates by the CPU.
//
//   copy    bytes / (L e), L: of the GPU's own link to its CPU, else of its PCIe switch over the GPUs in use behind it; e:
//           host_link_efficiency of the chip's profile
//   update  parameters t / (W u / r): t bytes that the CPU reads and writes per parameter (host_update_traffic), W of all
//           memory of the node, u the share that the update reaches (host_update_efficiency), r ranks that share it
#pragma once

#include "model/price/setting.h"

namespace orrery {

// Seconds per byte and per parameter; 0: not known.
struct HostPrices {
  HostPrices() = default;
  explicit HostPrices(const CostSetting& setting);

  double copy = 0;
  double update = 0;
};

// Bandwidth of all memory of a node's CPUs; 0: neither topology nor profile state it.
BytesPerSecond HostBandwidth(const CostSetting& setting);

// Throws InputError: the rate of copies, or of updates, is not known.
void RequireHostPrices(const CostSetting& setting, bool updates);

}  // namespace orrery
