// SPDX-License-Identifier: Apache-2.0
// The table of algorithms and what they share.
#include "model/collectives/algorithm.h"

#include <algorithm>
#include <cmath>

#include "model/base/check.h"

namespace orrery {
namespace {

constexpr Algorithm kAlgorithms[] = {
    {"ring", true, RingCost},
    {"tree", true, DoubleBinaryTreeCost},
    {"nvls", true, NvlsCost},
    {"nvls-tree", true, NvlsTreeCost},
    {"hierarchical", false, HierarchicalCost},
    {"direct", true, DirectAllToAllCost},
    {"send-recv", true, SendRecvCost},
};

}  // namespace

std::span<const Algorithm> Algorithms() { return kAlgorithms; }

bool IsCandidate(const Algorithm& algorithm, std::string_view only, const BandwidthUse& use) {
  if (only.empty()) only = use.algorithm;
  return only.empty() ? algorithm.chosen_by_default : algorithm.name == only;
}

const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kSendRecv:
      return "sendrecv";
    case Collective::kBroadcast:
      return "broadcast";
  }
  ORRERY_CHECK(false, "collective {}", static_cast<int>(collective));
}

double WireFactor(Collective collective, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2.0 * share;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return share;
    case Collective::kSendRecv:
    case Collective::kBroadcast:
      return ranks > 1 ? 1.0 : 0.0;
  }
  ORRERY_CHECK(false, "collective {}", static_cast<int>(collective));
}

BytesPerSecond BusBandwidth(Collective collective, int ranks, Bytes size, Seconds time) {
  return size * WireFactor(collective, ranks) / time;
}

void FillTimeLines(const Network& network, BytesPerSecond inter, double extra_per_byte,
                   AlgorithmCost* cost) {
  const int inside = cost->steps - cost->hops;
  double per_byte = 0;
  if (cost->scaleup_load > 0) per_byte = cost->scaleup_load / network.intra.value;
  double hop = network.intra_hop.value;
  if (cost->nic_load > 0 && cost->nic_load / inter.value >= per_byte) {
    per_byte = cost->nic_load / inter.value;
    hop = network.inter_hop.value;
  }
  const double travel = inside * network.intra_hop.value + cost->hops * network.inter_hop.value;
  cost->bandwidth.latency = network.launch.value + travel;
  cost->bandwidth.per_byte = per_byte + extra_per_byte;
  cost->bandwidth.per_root_byte = network.pipelining * std::sqrt(hop * per_byte);
  TimeLine fast;
  fast.latency = network.launch.value + travel * network.low_latency_hop;
  fast.per_byte = per_byte / network.low_latency_bandwidth + extra_per_byte;
  cost->latency = fast;
}

}  // namespace orrery
