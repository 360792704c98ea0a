// SPDX-License-Identifier: Apache-2.0
// Closed form times what sweeps on the nearest numbers of nodes left of it.
#include "model/collectives/measured_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/collectives/select.h"
#include "model/hardware/measured_collectives.h"

namespace orrery {
namespace {

constexpr int kLeastPower = 0, kMostPower = 36;  // sizes of the table, as powers of two

bool InModel(const std::string& algorithm) { return FindAlgorithm(algorithm) != nullptr; }

// A sweep with the closed form of its own group.
struct Anchor {
  const GroupCurve* curve = nullptr;
  PreparedCollective model;

  double LogRatio(double bytes) const {
    const double inside = std::clamp(bytes, curve->least_bytes, curve->most_bytes);
    return std::log(curve->curve.Time(inside) / model.Time(inside));
  }
};

// Of the numbers of nodes that may speak for `nodes`, the nearest below and above.
struct Neighbours {
  const GroupCurve *below = nullptr, *above = nullptr;

  void Take(const GroupCurve& curve, int nodes) {
    if (curve.nodes <= nodes && (below == nullptr || curve.nodes > below->nodes)) below = &curve;
    if (curve.nodes >= nodes && (above == nullptr || curve.nodes < above->nodes)) above = &curve;
  }
  bool empty() const { return below == nullptr && above == nullptr; }
};

// Which algorithm an all-reduce ran that nobody named may differ between two nodes and more.
bool OneAlgorithm(const GroupCurve& curve) {
  return !curve.algorithm.empty() || curve.collective != Name(Collective::kAllReduce);
}

template <class Fits>
Neighbours NearestOf(const Network& network, Fits fits) {
  const int nodes = network.shape.nodes();
  Neighbours all, alike;
  for (const GroupCurve& curve : network.sweeps->groups) {
    if (!fits(curve) || !network.swept.contains({curve.ranks, curve.nodes})) continue;
    if ((curve.nodes > 1) != (nodes > 1)) continue;
    if (OneAlgorithm(curve)) all.Take(curve, nodes);
    const bool message = curve.collective == Name(Collective::kSendRecv);
    if (message || (curve.nodes == 2) == (nodes == 2)) alike.Take(curve, nodes);
  }
  return alike.empty() ? all : alike;
}

Anchor AnchorOf(const GroupCurve& curve, const Network& network, const std::string& algorithm) {
  if (curve.collective == Name(Collective::kSendRecv)) {
    // Leaves that a sweep crosses are in its time: the same message, alone, on the same network.
    Network alone = network;
    alone.sweeps = nullptr;
    alone.use.nic = alone.use.scaleup = 1;
    return {&curve, Prepare(Collective::kSendRecv, alone, "")};
  }
  const Network& group = *network.swept.at({curve.ranks, curve.nodes});
  const Collective collective = *CollectiveNamed(curve.collective);
  return {&curve, Prepare(collective, group, algorithm)};
}

// exp(r) M as a table over sizes.
SweepCurve Carried(const PreparedCollective& model, const std::vector<Anchor>& anchors, int nodes) {
  double share = 0;  // of the second anchor
  if (anchors.size() == 2 && anchors[0].curve->nodes != anchors[1].curve->nodes)
    share = std::log(static_cast<double>(nodes) / anchors[0].curve->nodes) /
            std::log(static_cast<double>(anchors[1].curve->nodes) / anchors[0].curve->nodes);
  SweepCurve curve;
  const double most = std::ldexp(1.0, kMostPower);
  curve.protocols.push_back({model.Time(std::ldexp(1.0, kLeastPower)), model.Time(most) / most});
  for (int half = 2 * kLeastPower; half <= 2 * kMostPower; ++half) {
    const double bytes = std::exp2(0.5 * half);
    double ratio = anchors[0].LogRatio(bytes);
    if (share > 0) ratio += share * (anchors[1].LogRatio(bytes) - ratio);
    curve.residuals.push_back(
        {std::log(bytes), ratio + std::log(model.Time(bytes) / curve.Formula(bytes))});
  }
  return curve;
}

std::shared_ptr<const MeasuredTime> FromNeighbours(const Neighbours& found, Collective collective,
                                                   const Network& network,
                                                   const std::string& algorithm) {
  if (found.empty()) return nullptr;
  std::vector<Anchor> anchors;
  std::string nodes;
  for (const GroupCurve* curve : {found.below, found.above}) {
    if (curve == nullptr || (!anchors.empty() && curve == anchors[0].curve)) continue;
    anchors.push_back(AnchorOf(*curve, network, algorithm));
    nodes += fmt::format("{}{}", nodes.empty() ? "" : " and ", curve->nodes);
  }
  Network plain = network;
  plain.sweeps = nullptr;
  const PreparedCollective model = Prepare(collective, plain, algorithm);
  return std::make_shared<const MeasuredTime>(
      MeasuredTime{Carried(model, anchors, network.shape.nodes()), MeasuredRule::kOtherNodes,
                   fmt::format("{} on {} node{}", anchors[0].curve->collective, nodes,
                               nodes == "1" ? "" : "s")});
}

}  // namespace

std::shared_ptr<const MeasuredTime> OfOtherNodes(Collective collective, const Network& network,
                                                 const std::string& algorithm) {
  const GroupShape& shape = network.shape;
  if (shape.nodes() < 2) return nullptr;
  const auto alike = [&](const GroupCurve& curve) {
    return curve.ranks == curve.nodes * shape.ranks_per_node;
  };
  // As the library chooses; or the one that is asked for.
  const Neighbours same = NearestOf(network, [&](const GroupCurve& curve) {
    return alike(curve) && curve.collective == Name(collective) && curve.algorithm == algorithm;
  });
  if (!same.empty()) return FromNeighbours(same, collective, network, algorithm);
  const std::string likely = algorithm.empty() ? LikelyAlgorithm(collective, network) : algorithm;
  if (!InModel(likely)) return nullptr;
  const Neighbours named = NearestOf(network, [&](const GroupCurve& curve) {
    return alike(curve) && curve.collective == Name(collective) && curve.algorithm == likely;
  });
  if (!named.empty()) return FromNeighbours(named, collective, network, likely);
  if (likely != "ring") return nullptr;
  const Neighbours others = NearestOf(network, [&](const GroupCurve& curve) {
    return alike(curve) && curve.algorithm == "ring" && CollectiveNamed(curve.collective);
  });
  return FromNeighbours(others, collective, network, likely);
}

std::shared_ptr<const MeasuredTime> OfMessages(const Network& network) {
  const GroupShape& shape = network.shape;
  const bool crosses = shape.nodes() > 1;
  if (crosses && shape.sharing > std::max(1, network.nics)) return nullptr;
  return FromNeighbours(NearestOf(network,
                                  [&](const GroupCurve& curve) {
                                    return curve.collective == Name(Collective::kSendRecv);
                                  }),
                        Collective::kSendRecv, network, "");
}

}  // namespace orrery
