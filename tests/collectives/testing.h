// SPDX-License-Identifier: Apache-2.0
// Routed collectives on links that carry nothing else.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "model/collectives/routing.h"

namespace orrery::net {

inline Traffic RouteCollective(std::string_view algorithm, Collective collective,
                               const Cluster& cluster, std::span<const int64_t> members) {
  return TrafficRouter(cluster).Route(algorithm, collective, members);
}

// The time of one phase after another: sum over phases of the largest over links of bytes /
// capacity. No latency.
inline Seconds BottleneckTime(const Traffic& traffic, const Cluster& cluster, Bytes size) {
  std::vector<double> load(cluster.links.size());
  Seconds total;
  for (const TrafficPhase& phase : traffic) {
    std::ranges::fill(load, 0.0);
    for (const Channel& channel : phase) {
      for (const LinkUse& use : channel.uses)
        load[static_cast<std::size_t>(use.link)] += use.weight * channel.share * size.value;
    }
    Seconds longest;
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load[i] > 0) longest = std::max(longest, Bytes(load[i]) / cluster.links[i].capacity);
    }
    total += longest;
  }
  return total;
}

}  // namespace orrery::net
