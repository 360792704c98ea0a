// SPDX-License-Identifier: Apache-2.0
// Looks sweeps up and carries them over to other collectives and ranks.
#include "model/collectives/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/collectives/measured_nodes.h"
#include "model/collectives/nccl_choice.h"
#include "model/hardware/measured_collectives.h"

namespace orrery {
namespace {

constexpr double kProbeBytes = 64.0 * 1024 * 1024;  // where algorithms are told apart

std::string AlgorithmOf(const GroupCurve& group, const Network& network) {
  if (!group.algorithm.empty()) return group.algorithm;
  const auto collective = CollectiveNamed(group.collective);
  return collective ? LikelyAlgorithm(*collective, network) : "";
}

std::string OriginOf(const std::string& collective, const std::string& ranks, int nodes) {
  return fmt::format("{} among {} ranks on {} node{}", collective, ranks, nodes,
                     nodes == 1 ? "" : "s");
}

std::string OriginOf(const GroupCurve& group) {
  return OriginOf(group.collective, std::to_string(group.ranks), group.nodes);
}

std::optional<MeasuredTime> OfSameGroup(const std::string& name, const Network& network,
                                        const std::string& algorithm) {
  const GroupShape& shape = network.shape;
  const GroupCurve* group = network.sweeps->Find(name, algorithm, shape.ranks, shape.nodes());
  if (group == nullptr) return std::nullopt;
  return MeasuredTime{group->curve, MeasuredRule::kSweep, OriginOf(*group)};
}

// Wire volume holds for rings and chains. The same collective first that is nearest in volume.
std::optional<MeasuredTime> OfOtherCollective(Collective collective, const Network& network,
                                              const std::string& algorithm) {
  const std::string wanted = algorithm.empty() ? LikelyAlgorithm(collective, network) : algorithm;
  if (wanted != "ring") return std::nullopt;
  const int ranks = network.shape.ranks;
  const double volume = WireFactor(collective, ranks);
  const GroupCurve* best = nullptr;
  double nearest = INFINITY;
  for (const GroupCurve& group : network.sweeps->groups) {
    if (group.ranks != ranks || group.nodes != network.shape.nodes()) continue;
    if (AlgorithmOf(group, network) != wanted) continue;
    const double away = std::abs(std::log(WireFactor(group.collective, ranks) / volume));
    if (away < nearest) nearest = away, best = &group;
  }
  if (best == nullptr) return std::nullopt;
  return MeasuredTime{ForCollective(best->curve, best->collective, Name(collective), ranks,
                                    network.chain_pipelining),
                      MeasuredRule::kOtherCollective, OriginOf(*best)};
}

// What the form leaves at the nearest measured numbers of ranks below and above, by distance.
std::vector<SweepCurve::Residual> BetweenRanks(const MeasuredCollectives& measured, int ranks,
                                               int rings) {
  const GroupCurve *below = nullptr, *above = nullptr;
  for (const GroupCurve& group : measured.groups) {
    if (group.collective != "all_reduce" || group.nodes != 1) continue;
    if (group.ranks < ranks && (below == nullptr || group.ranks > below->ranks)) below = &group;
    if (group.ranks > ranks && (above == nullptr || group.ranks < above->ranks)) above = &group;
  }
  std::vector<SweepCurve::Residual> residuals;
  if (below == nullptr || above == nullptr || rings != 1) return residuals;
  const auto left = [&](const GroupCurve& group, double log_bytes) {
    const SweepCurve form = measured.node_form->form.CurveOf(group.ranks, rings);
    const double bytes = std::exp(log_bytes);
    return std::log(group.curve.Time(bytes) / form.Formula(bytes));
  };
  const double low = 1.0 / (1 + ranks - below->ranks), high = 1.0 / (1 + above->ranks - ranks);
  for (const SweepCurve::Residual& at : below->curve.residuals) {
    const double mean =
        (low * left(*below, at.log_bytes) + high * left(*above, at.log_bytes)) / (low + high);
    residuals.push_back({at.log_bytes, mean});
  }
  return residuals;
}

std::optional<MeasuredTime> OfOtherRanks(Collective collective, const Network& network,
                                         const std::string& algorithm) {
  if (!network.sweeps->node_form || network.shape.nodes() != 1 || network.rings < 1)
    return std::nullopt;
  const std::string wanted = algorithm.empty() ? LikelyAlgorithm(collective, network) : algorithm;
  if (wanted != "ring") return std::nullopt;
  const NodeFormCurve& form = *network.sweeps->node_form;
  const int ranks = network.shape.ranks;
  SweepCurve curve = form.form.CurveOf(ranks, network.rings);
  curve.residuals = BetweenRanks(*network.sweeps, ranks, network.rings);
  return MeasuredTime{
      ForCollective(curve, "all_reduce", Name(collective), ranks, network.chain_pipelining),
      MeasuredRule::kOtherRanks,
      OriginOf("all_reduce", fmt::format("{}", fmt::join(form.ranks, ", ")), 1)};
}

}  // namespace

std::optional<Collective> CollectiveNamed(const std::string& name) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (name == Name(collective)) return collective;
  }
  if (name == "reduce") return Collective::kBroadcast;  // the same chain, backwards
  return std::nullopt;
}

std::string LikelyAlgorithm(Collective collective, const Network& network) {
  const auto nccl = NcclRangesOf(network.nccl, network.shape, collective);
  if (nccl != nullptr) {
    const Algorithm* taken = RangeOf(*nccl, kProbeBytes).algorithm;
    if (taken != nullptr && taken->Cost(collective, network)) return taken->name();
  }
  std::string best;
  double least = INFINITY;
  for (const Algorithm* algorithm : Algorithms()) {
    if (!IsCandidate(*algorithm, "", network.use)) continue;
    const std::optional<AlgorithmCost> cost = algorithm->Cost(collective, network);
    if (!cost) continue;
    const double time = cost->bandwidth.line.At(kProbeBytes, std::sqrt(kProbeBytes));
    if (time < least) least = time, best = algorithm->name();
  }
  return best;
}

double WireFactor(const std::string& collective, int ranks) {
  const auto known = CollectiveNamed(collective);
  return known ? WireFactor(*known, ranks) : 0.0;
}

SweepCurve ForCollective(const SweepCurve& curve, const std::string& from, const std::string& to,
                         int ranks, double chain_pipelining) {
  SweepCurve other = curve.ForVolume(WireFactor(to, ranks) / WireFactor(from, ranks));
  const auto loss = [&](const std::string& name) {
    return name == "all_reduce" ? 1.0 : chain_pipelining;
  };
  other.per_root_byte *= loss(to) / loss(from);
  return other;
}

std::shared_ptr<const MeasuredTime> FindMeasuredTime(Collective collective, const Network& network,
                                                     const std::string& algorithm) {
  if (network.sweeps == nullptr || network.shape.ranks < 2) return nullptr;
  const bool crosses = network.shape.nodes() > 1;
  if (collective == Collective::kSendRecv) return OfMessages(network);
  if (crosses && network.shape.sharing > 1) return nullptr;
  std::optional<MeasuredTime> found = OfSameGroup(Name(collective), network, algorithm);
  if (!found) found = OfOtherCollective(collective, network, algorithm);
  if (!found) found = OfOtherRanks(collective, network, algorithm);
  if (!found) return OfOtherNodes(collective, network, algorithm);
  const double share = crosses ? network.use.nic : network.use.scaleup;
  if (share != 1) found->curve = found->curve.AtShare(share);
  return std::make_shared<const MeasuredTime>(std::move(*found));
}

const char* Words(MeasuredRule rule) {
  switch (rule) {
    case MeasuredRule::kSweep:
      return "measured";
    case MeasuredRule::kOtherCollective:
      return "by wire volume";
    case MeasuredRule::kOtherRanks:
      return "by ranks";
    case MeasuredRule::kOtherNodes:
      return "by nodes";
  }
  return "";
}

}  // namespace orrery
