// SPDX-License-Identifier: Apache-2.0
// Rates of the host's link and memory, as one rank sees them.
#include "model/price/host_prices.h"

#include <algorithm>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

BytesPerSecond LinkRate(const CostSetting& setting) {
  const ClusterSummary& cluster = *setting.cluster;
  const double efficiency = setting.gpu->host_link_efficiency;
  if (cluster.node && cluster.node->gpu_to_host.value > 0)
    return cluster.node->gpu_to_host * efficiency;
  return cluster.pcie_rate / std::max(1, cluster.switch_gpus) * efficiency;
}

}  // namespace

BytesPerSecond HostBandwidth(const CostSetting& setting) {
  const ClusterSummary& cluster = *setting.cluster;
  if (cluster.node && cluster.node->host_bandwidth.value > 0) return cluster.node->host_bandwidth;
  return setting.gpu->host_bandwidth;
}

HostPrices::HostPrices(const CostSetting& setting) {
  const double link = LinkRate(setting).value;
  if (link > 0) copy = 1 / link;
  const double memory = HostBandwidth(setting).value * setting.framework->host_update_efficiency;
  if (memory > 0)
    update = setting.framework->host_update_traffic * std::max(1, setting.cluster->gpus_per_node) /
             memory;
}

void RequireHostPrices(const CostSetting& setting, bool updates) {
  const HostPrices prices(setting);
  if (prices.copy <= 0)
    throw InputError("offload: the topology states no rate of the link between GPU and host",
                     "pcie: rate in its node");
  if (updates && prices.update <= 0)
    throw InputError("offload: the bandwidth of the host's memory is not known",
                     "host_bandwidth under pcie in the topology's node, or in the GPU's profile");
}

}  // namespace orrery
