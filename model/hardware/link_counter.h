// SPDX-License-Identifier: Apache-2.0
// Counts the edges of a communication pattern on the links that they are routed over.
#pragma once

#include <utility>
#include <vector>

#include "model/hardware/traffic.h"

namespace orrery::net {

class LinkCounter {
 public:
  explicit LinkCounter(const Cluster& cluster)
      : cluster_(cluster), count_(cluster.links.size(), 0.0) {}

  void AddEdge(int64_t from, int64_t to, int channel) {
    route_.clear();
    cluster_.AppendRoute(from, to, channel, &route_);
    for (const LinkId link : route_) {
      if (count_[static_cast<std::size_t>(link)]++ == 0) touched_.push_back(link);
    }
  }

  // The counts so far; starts again from zero.
  std::vector<LinkUse> Take() {
    std::vector<LinkUse> uses;
    uses.reserve(touched_.size());
    for (const LinkId link : touched_) {
      uses.push_back({link, std::exchange(count_[static_cast<std::size_t>(link)], 0.0)});
    }
    touched_.clear();
    return uses;
  }

 private:
  const Cluster& cluster_;
  std::vector<double> count_;
  std::vector<LinkId> touched_, route_;
};

}  // namespace orrery::net
