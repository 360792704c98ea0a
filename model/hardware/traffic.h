// SPDX-License-Identifier: Apache-2.0
// Plain data: what a collective puts on which links, before any of it is sent.
//
// A channel is one coupled job: each of its edges carries `share` bytes per byte of S (the size that
// nccl-tests prints), and the weight of a link is the number of its edges that cross it. So weight x
// share x S are the bytes that really cross the link. What an algorithm loses of the line's rate is
// no part of it (LineShare in model/collectives/algorithm.h): it lengthens a transfer, it moves nothing.
#pragma once

#include <vector>

#include "model/hardware/cluster.h"

namespace orrery::net {

struct LinkUse {
  LinkId link = 0;
  double weight = 1;  // bytes on the link per byte of the job
  bool operator==(const LinkUse&) const = default;
};

struct Channel {
  std::vector<LinkUse> uses;
  double share = 0;  // bytes over each edge per byte of S
};
using TrafficPhase = std::vector<Channel>;  // run together
using Traffic = std::vector<TrafficPhase>;  // run one after the other

}  // namespace orrery::net
