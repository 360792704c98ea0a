// SPDX-License-Identifier: Apache-2.0
// What all algorithms share: wire volume, the bus-bandwidth rule, protocols.
#include "model/collectives/algorithm.h"

#include <cmath>

#include "model/base/check.h"

namespace orrery {

double LineShare::On(LinkKind kind) const {
  switch (kind) {
    case LinkKind::kScaleUp:
      return scale_up;
    case LinkKind::kPcie:
    case LinkKind::kHostLink:
      return pcie;
    case LinkKind::kNicPort:
    case LinkKind::kFabric:
      return network;
  }
  ORRERY_CHECK(false, "kind of link {}", static_cast<int>(kind));
}

LineRates Algorithm::Lines(const Network& network) const {
  return {network.inside, network.between()};
}

LineRates Algorithm::Rates(const Network& network) const {
  const LineRates lines = Lines(network);
  const InsideAndBetween<double> share = Efficiency(network);
  return {lines.inside * share.inside, lines.between * share.between};
}

std::optional<AlgorithmCost> Algorithm::Cost(Collective collective, const Network& network) const {
  if (!Serves(collective, network.shape) || !Possible(network)) return std::nullopt;
  return CostOf(collective, network);
}

bool IsCandidate(const Algorithm& algorithm, std::string_view only, const BandwidthUse& use) {
  if (only.empty()) only = use.algorithm;
  return only.empty() ? algorithm.chosen_by_default() : algorithm.name() == only;
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

void FillTimeLines(const Algorithm& algorithm, const Network& network, double extra_per_byte,
                   AlgorithmCost* cost) {
  const LineRates rates = algorithm.Rates(network);
  const int inside = cost->steps - cost->hops;
  // Chunks wait for the slower kind of step: a faster line inside the node must not make a message slower, as it did where
  // the hops of the line that bounds the bytes were counted alone.
  double per_byte = 0, hop_per_byte = 0, fast_per_byte = 0;
  const InsideAndBetween<double> share = algorithm.Efficiency(network);
  const double fast_share = cost->latency_share > 0 ? cost->latency_share : share.between;
  if (cost->scaleup_load > 0) {
    per_byte = fast_per_byte = cost->scaleup_load / rates.inside.value;
    hop_per_byte = network.intra_hop.value * per_byte;
  }
  if (cost->nic_load > 0) {
    const double across = cost->nic_load / rates.between.value;
    per_byte = std::max(per_byte, across);
    fast_per_byte = std::max(fast_per_byte, across * share.between / fast_share);
    hop_per_byte = std::max(hop_per_byte, network.inter_hop.value * across);
  }
  const double within = inside * cost->inside_step * network.intra_hop.value;
  const double across = cost->hops * network.inter_hop.value;
  const auto latency = [&](double start, double travel) {
    return std::max(network.issue.value, network.launch.value + start + travel);
  };
  TimeLine& wide = cost->bandwidth.line;
  const bool tree = !cost->chunks.none();
  const bool starts = cost->steps > 1 && !cost->by_switch;
  wide.latency =
      latency(starts ? network.bandwidth_launch.value : 0.0, within + across * cost->between_step);
  wide.per_byte = per_byte + extra_per_byte;
  if (tree) {
    wide.chunks = cost->chunks;
    // A chunk crosses one edge at a time: what edges in both directions cost the whole message does not slow it.
    if (cost->hops > 0) {
      double hop = share.between / fast_share / rates.between.value;
      // What the switches of the nodes on its way add up it passes, too.
      if (cost->by_switch) hop = std::max(hop, cost->scaleup_load / rates.inside.value);
      wide.fill += cost->hops * hop;
    }
    if (inside > 0) wide.fill += inside / rates.inside.value;
  } else {
    wide.per_root_byte = network.pipelining * std::sqrt(hop_per_byte);
  }
  const bool crosses = network.shape.nodes() > 1;
  cost->bandwidth.share = {share.inside, crosses ? 1.0 : share.inside, share.between};
  // Flags in every word cost the latency protocol bandwidth on the line that bounds the message.
  Protocol fast = cost->bandwidth;
  fast.line.latency =
      latency(0, within * network.low_latency_inside_hop + across * network.low_latency_hop);
  fast.line.per_byte = fast_per_byte / network.low_latency_bandwidth + extra_per_byte;
  fast.line.per_root_byte = fast.line.fill = 0;
  fast.line.chunks = {};
  if (cost->channel_bytes > 0 && cost->hops > 0) {
    // A hop takes longer with each channel in use, up to all of them.
    const double all = network.channels() * cost->channel_bytes;
    fast.line.fill = cost->hops * network.low_latency_channel.value / cost->channel_bytes;
    fast.line.chunks = ChunkSizes(all);
  }
  if (crosses) {
    fast.share.network = fast_share * network.low_latency_bandwidth;
  } else {
    fast.share.scale_up *= network.low_latency_bandwidth;
    fast.share.pcie *= network.low_latency_bandwidth;
  }
  cost->latency = fast;
  if (!crosses || network.line128_bandwidth <= 0 || cost->line_hop.between <= 0) return;
  // LL128: hops of the latency protocol's kind, with all channels in use, and nearly the bandwidth protocol's rates.
  Protocol lines = cost->bandwidth;
  const double all_channels = cost->hops * network.low_latency_channel.value * network.channels();
  lines.line.latency =
      latency(0, within * network.low_latency_inside_hop * cost->line_hop.inside +
                     across * network.low_latency_hop * cost->line_hop.between + all_channels);
  lines.line.per_byte = per_byte / network.line128_bandwidth + extra_per_byte;
  lines.line.per_root_byte = 0;
  lines.line.fill /= network.line128_bandwidth;
  lines.line.chunks = cost->line_chunks;
  lines.share.network *= network.line128_bandwidth;
  lines.share.scale_up *= network.line128_bandwidth;
  cost->line128 = lines;
}

}  // namespace orrery
