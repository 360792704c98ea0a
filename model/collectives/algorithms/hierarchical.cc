// SPDX-License-Identifier: Apache-2.0
// Hierarchical: reduce-scatter inside every node, one ring per local rank between nodes, all-gather
// inside.
//
// The NICs carry what a flat ring makes them carry, but the chain of dependent steps is 2(g-1) +
// 2(N-1) long instead of 2(n-1). Phases follow each other, so that their times add.
// Invariant: after the first phase each local rank holds the node's sum of its own S/g, and every ring
// between nodes joins ranks that hold the same part. All-reduce, all-gather and reduce-scatter on several
// nodes with several ranks each.
// Source: Goyal et al. 2017 (section 4); libraries over MPI. NCCL does not run it by itself.
#include "model/base/diagnostics.h"
#include "model/collectives/routing.h"

namespace orrery {
namespace {

class HierarchicalImpl : public Algorithm {
 public:
  HierarchicalImpl() : Algorithm("hierarchical") {}

  bool chosen_by_default() const override { return false; }

  bool Serves(Collective collective, const GroupShape& shape) const override {
    const bool reduces_or_gathers = collective == Collective::kAllReduce ||
                                    collective == Collective::kAllGather ||
                                    collective == Collective::kReduceScatter;
    return reduces_or_gathers && shape.ranks_per_node > 1 && shape.nodes() > 1;
  }

  InsideAndBetween<double> Efficiency(const Network& network) const override {
    return RingAlgorithm().Efficiency(network);
  }
  LineRates Lines(const Network& network) const override { return RingAlgorithm().Lines(network); }

  net::Traffic Route(Collective collective, net::GroupRoutes* routes) const override {
    const net::Nodes& nodes = routes->nodes();
    const std::size_t local = nodes.front().size();
    for (const auto& node : nodes) {
      if (node.size() != local)
        throw InputError("hierarchical collectives want equally many members on every node");
    }
    const double one_lap = WireFactor(Collective::kAllGather, static_cast<int>(local));
    const net::TrafficPhase inside = routes->RingsInsideNodes(one_lap);
    net::TrafficPhase between;
    for (std::size_t i = 0; i < local; ++i) {
      net::Nodes column;
      for (const auto& node : nodes) column.push_back({node[i]});
      const double share =
          WireFactor(collective, static_cast<int>(nodes.size())) / static_cast<double>(local);
      for (net::Channel& channel : routes->Ring(column, share))
        between.push_back(std::move(channel));
    }
    if (collective == Collective::kAllGather) return {between, inside};
    if (collective == Collective::kReduceScatter) return {inside, between};
    return {inside, between, inside};
  }

 private:
  AlgorithmCost CostOf(Collective collective, const Network& network) const override {
    const int local = network.shape.ranks_per_node, nodes = network.shape.nodes();
    const int laps = collective == Collective::kAllReduce ? 2 : 1;
    AlgorithmCost cost;
    cost.hops = laps * (nodes - 1);
    cost.steps = cost.hops + laps * (local - 1);
    cost.nic_load = WireFactor(collective, nodes);
    const double inside = WireFactor(collective, local) / Rates(network).inside.value;
    FillTimeLines(*this, network, inside, &cost);
    cost.scaleup_load = WireFactor(collective, local);
    return cost;
  }
};

}  // namespace

const Algorithm& HierarchicalAlgorithm() {
  static const HierarchicalImpl hierarchical;
  return hierarchical;
}

}  // namespace orrery
