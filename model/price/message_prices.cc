// SPDX-License-Identifier: Apache-2.0
// The policy of roles; closed-form lines split into latency and traffic.
#include "model/price/message_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery {

namespace {

// Makes a message alone take what was measured: `wire` seconds of S / b are the closed form's.
void FollowMeasured(double bytes, double wire, double extra, MessagePrice* time) {
  if (time->measured == nullptr || bytes <= 0 || wire <= 0) return;
  const SweepCurve::Parts parts = time->measured->curve.Split(bytes);
  time->latency = extra + parts.latency;
  time->wire_per_byte *= parts.wire / wire;
  time->wire_inside *= parts.wire / wire;
  time->floor_per_byte *= parts.wire / wire;
  time->seconds_per_byte *= parts.wire / wire;
}

}  // namespace

MessageRole RoleOf(ir::Phase phase, bool one_use) {
  switch (phase) {
    case ir::Phase::kForward:
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
    case ir::Phase::kRecompute:
      return MessageRole::kLayer;
    case ir::Phase::kGradReduce:
    case ir::Phase::kParamGather:
      return one_use ? MessageRole::kShard : MessageRole::kStep;
    case ir::Phase::kPipeline:
      return MessageRole::kStage;
    case ir::Phase::kInput:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kSetup:
      return MessageRole::kControl;
  }
  ORRERY_CHECK(false, "phase {}", static_cast<int>(phase));
}

MessageTerms MessagePrices::TermsOf(MessageRole role, Collective collective,
                                    const GroupShape& shape, bool backward) const {
  const StackProfile& stack = *setting_.stack;
  const bool whole = collective == Collective::kAllReduce;
  MessageTerms terms;
  switch (role) {
    case MessageRole::kLayer: {
      // The two halves of an all-reduce (sequence parallelism) have half of its latency each, and are hidden behind
      // pieces of the products that need them.
      const double extra =
          stack.tensor_latency.value + (shape.ranks - 1) * stack.tensor_latency_per_rank.value;
      const double pieces = whole ? 0.0 : stack.sequence_overlap;
      terms.bandwidth = {stack.scaleup_use, 1.0, stack.algorithm};
      terms.latency = whole ? extra : 0.5 * extra;
      terms.hidden = backward ? std::max(stack.tensor_overlap, pieces) : pieces;
      return terms;
    }
    case MessageRole::kShard:
      terms.bandwidth = {stack.gather_scaleup_use, stack.gather_nic_use, stack.algorithm};
      terms.latency = stack.gather_latency.value *
                      (1.0 + stack.gather_latency_growth * std::log2(shape.nodes()));
      terms.slowdown =
          setting_.gpu->overlap_slowdown *
          TrafficShare(*setting_.cluster, *setting_.gpu, *setting_.fabric, shape, terms.bandwidth);
      return terms;
    case MessageRole::kStep:
      terms.bandwidth = {stack.data_scaleup_use,
                         ReductionNicUse(stack, EndsApart(*setting_.cluster, shape)),
                         stack.algorithm};
      terms.bucket = stack.bucket.value;
      return terms;
    case MessageRole::kStage:
      terms.bandwidth = {1.0, stack.pipeline_nic_use, ""};
      terms.latency = stack.pipeline_latency.value;
      return terms;
    case MessageRole::kControl:
      terms.bucket = 1e18;  // all of a step's travel together
      return terms;
  }
  ORRERY_CHECK(false, "role {}", static_cast<int>(role));
}

PreparedMessage MessagePrices::Prepare(MessageRole role, Collective collective,
                                       const GroupShape& shape, bool backward) const {
  PreparedMessage message;
  if (shape.ranks < 2) return message;
  message.terms = TermsOf(role, collective, shape, backward);
  message.collective =
      orrery::Prepare(collective, ViewNetwork(*setting_.cluster, *setting_.gpu, *setting_.fabric,
                                              shape, message.terms.bandwidth));
  return message;
}

AwaitedShares MessagePrices::Awaited(bool whole_replicas) const {
  return {VisibleShare(VisibleReductionOf(*setting_.stack), whole_replicas),
          setting_.stack->data_exposed};
}

// Share of the nominal rate of its bottleneck links that an algorithm reaches.
double MessagePrices::LineShare(std::string_view algorithm, const GroupShape& shape,
                                const BandwidthUse& use) const {
  const FabricProfile& fabric = *setting_.fabric;
  const GpuProfile& gpu = *setting_.gpu;
  const int nodes = shape.nodes();
  if (nodes < 2) {
    const bool pcie =
        setting_.cluster->intra == IntraLink::kPcie || setting_.cluster->intra == IntraLink::kNone;
    if (pcie) return fabric.pcie_efficiency * use.scaleup;
    return (algorithm == "nvls" ? gpu.nvls_efficiency : gpu.ring_efficiency) * use.scaleup;
  }
  const double collisions = 1.0 / (1.0 + fabric.large_ring_loss * std::max(0.0, 1.0 - 2.0 / nodes));
  if (algorithm == "tree") return fabric.nic_tree_efficiency * use.nic;
  if (algorithm == "nvls-tree" && nodes > 2) return fabric.nic_nvls_tree_efficiency * use.nic;
  if (algorithm == "nvls-tree") return fabric.nic_ring_efficiency * use.nic;
  if (algorithm == "direct" || algorithm == "send-recv")
    return fabric.point_to_point_efficiency * use.nic;
  return fabric.nic_ring_efficiency * collisions * use.nic;
}

namespace {

// A measured time holds everything: on the links there is next to nothing left.
MessagePrice Timed(Collective collective, double seconds) {
  constexpr double kNextToNothing = 1e-6;
  MessagePrice time;
  switch (collective) {
    case Collective::kSendRecv:
      time.algorithm = "send-recv";
      break;
    case Collective::kAllToAll:
      time.algorithm = "direct";
      break;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
      time.algorithm = "ring";
      break;
  }
  time.latency = seconds;
  time.wire_per_byte = time.wire_inside = kNextToNothing;
  return time;
}

}  // namespace

MessagePrice MessagePrices::Price(MessageRole role, Collective collective, const GroupShape& shape,
                                  double bytes, std::string_view only) const {
  const MessageTerms use = TermsOf(role, collective, shape);
  const Network network =
      ViewNetwork(*setting_.cluster, *setting_.gpu, *setting_.fabric, shape, use.bandwidth);
  GroupShape alone = shape;
  alone.sharing = 1;
  const Network unshared =
      ViewNetwork(*setting_.cluster, *setting_.gpu, *setting_.fabric, alone, use.bandwidth);
  const double root = std::sqrt(bytes);
  double best = -1, wire = 0;
  MessagePrice result;
  result.measured = FindMeasuredTime(collective, network, std::string(only));
  if (only.empty() && result.measured == nullptr && network.measured != nullptr) {
    if (const auto time =
            network.measured->MeasuredCollective(Name(collective), shape.ranks, bytes))
      return Timed(collective, use.latency + *time);
  }
  const auto consider = [&](const Algorithm& algorithm, const TimeLine& line, const TimeLine& floor,
                            double flags) {
    const double time = line.At(bytes, root);
    if (best >= 0 && time >= best) return;
    best = time;
    result.algorithm = algorithm.name;
    result.latency = use.latency + line.latency + line.per_root_byte * root;
    result.wire_per_byte = 1.0 / (LineShare(algorithm.name, shape, use.bandwidth) * flags);
    result.wire_inside = shape.nodes() > 1
                             ? 1.0 / (setting_.gpu->ring_efficiency * use.bandwidth.scaleup)
                             : result.wire_per_byte;
    result.seconds_per_byte = line.per_byte;
    result.floor_per_byte = floor.per_byte;
    wire = bytes * line.per_byte;
  };
  for (const Algorithm& algorithm : Algorithms()) {
    if (!IsCandidate(algorithm, only, use.bandwidth)) continue;
    const std::optional<AlgorithmCost> cost = algorithm.cost(collective, network);
    if (!cost) continue;
    const std::optional<AlgorithmCost> floor = algorithm.cost(collective, unshared);
    consider(algorithm, cost->bandwidth, floor->bandwidth, 1.0);
    const double flags = shape.nodes() > 1 ? setting_.fabric->low_latency_bandwidth
                                           : setting_.gpu->low_latency_bandwidth;
    if (cost->latency) consider(algorithm, *cost->latency, *floor->latency, flags);
  }
  if (best < 0 && !only.empty()) {
    throw InputError(
        fmt::format("algorithm '{}' cannot run {} among {} ranks on {} node{}", only,
                    Name(collective), shape.ranks, shape.nodes(), shape.nodes() == 1 ? "" : "s"),
        "leave it out: the fastest is taken");
  }
  ORRERY_CHECK(best >= 0, "no algorithm for {} among {} ranks", Name(collective), shape.ranks);
  FollowMeasured(bytes, wire, use.latency, &result);
  return result;
}

}  // namespace orrery
