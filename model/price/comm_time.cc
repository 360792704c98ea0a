// SPDX-License-Identifier: Apache-2.0
// Splits closed-form lines into latency and traffic.
#include "model/price/comm_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery::sim {

namespace {

// Makes a message alone take what was measured: `wire` seconds of S / b are the closed form's.
void FollowMeasured(double bytes, double wire, double extra, MessageTime* time) {
  if (time->measured == nullptr || bytes <= 0 || wire <= 0) return;
  const SweepCurve::Parts parts = time->measured->curve.Split(bytes);
  time->latency = extra + parts.latency;
  time->wire_per_byte *= parts.wire / wire;
  time->wire_inside *= parts.wire / wire;
  time->floor_per_byte *= parts.wire / wire;
  time->seconds_per_byte *= parts.wire / wire;
}

}  // namespace

CommTime::Use CommTime::UseOf(ir::Phase phase, Collective collective, const GroupShape& shape,
                              bool whole_step) const {
  const StackProfile& stack = *setting_.stack;
  switch (phase) {
    case ir::Phase::kForward:
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
    case ir::Phase::kRecompute: {
      const double extra =
          stack.tensor_latency.value + (shape.ranks - 1) * stack.tensor_latency_per_rank.value;
      return {{stack.scaleup_use, 1.0, stack.algorithm},
              collective == Collective::kAllReduce ? extra : 0.5 * extra};
    }
    case ir::Phase::kGradReduce:
    case ir::Phase::kParamGather:
      if (whole_step) {
        const double nic = ReductionNicUse(stack, EndsApart(*setting_.cluster, shape));
        return {{stack.data_scaleup_use, nic, stack.algorithm}, 0.0};
      }
      return {{stack.gather_scaleup_use, stack.gather_nic_use, stack.algorithm},
              stack.gather_latency.value *
                  (1.0 + stack.gather_latency_growth * std::log2(shape.nodes()))};
    case ir::Phase::kPipeline:
      return {{1.0, stack.pipeline_nic_use}, stack.pipeline_latency.value};
    case ir::Phase::kInput:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kSetup:
      return {};
  }
  return {};
}

// Share of the nominal rate of its bottleneck links that an algorithm reaches.
double CommTime::LineShare(std::string_view algorithm, const GroupShape& shape,
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
MessageTime Timed(Collective collective, double seconds) {
  constexpr double kNextToNothing = 1e-6;
  MessageTime time;
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

MessageTime CommTime::Time(Collective collective, const GroupShape& shape, double bytes,
                           ir::Phase phase, std::string_view only, bool whole_step) const {
  const Use use = UseOf(phase, collective, shape, whole_step);
  const Network network =
      ViewNetwork(*setting_.cluster, *setting_.gpu, *setting_.fabric, shape, use.bandwidth);
  GroupShape alone = shape;
  alone.sharing = 1;
  const Network unshared =
      ViewNetwork(*setting_.cluster, *setting_.gpu, *setting_.fabric, alone, use.bandwidth);
  const double root = std::sqrt(bytes);
  double best = -1, wire = 0;
  MessageTime result;
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

Beside CommTime::BesideOf(const Message& message, const GroupShape& shape) const {
  const StackProfile& stack = *setting_.stack;
  if (message.part != Part::kWhole) return {message.part == Part::kAwaited ? 1.0 : 0.0, 0};
  const BandwidthUse layer{stack.gather_scaleup_use, stack.gather_nic_use, stack.algorithm};
  const double usual =
      setting_.gpu->overlap_slowdown *
      TrafficShare(*setting_.cluster, *setting_.gpu, *setting_.fabric, shape, layer);
  switch (message.phase) {
    case ir::Phase::kForward:
    case ir::Phase::kRecompute:
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad: {
      const bool returns =
          message.phase == ir::Phase::kBackward || message.phase == ir::Phase::kWeightGrad;
      const double pairs =
          message.collective == Collective::kAllReduce ? 0.0 : stack.sequence_overlap;
      return {0, returns ? std::max(stack.tensor_overlap, pairs) : pairs};
    }
    case ir::Phase::kPipeline:
      return {0, 0};
    case ir::Phase::kGradReduce:
    case ir::Phase::kParamGather:
    case ir::Phase::kInput:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kSetup:
      return {usual, 0};
  }
  return {};
}

}  // namespace orrery::sim
