// SPDX-License-Identifier: Apache-2.0
// Direct all-to-all: every rank sends S/n to every other one, all at once.
//
// What stays in the node goes over scale-up links, the rest, (n-g)/n S of each of the g local
// ranks, over the NICs. The floor is higher than that of a ring: n-1 sends to different peers.
// Invariant: no byte is passed on by a third rank, so that the wire volume is (n-1)/n S per rank.
// Source: NCCL's grouped sends and receives, as nccl-tests' alltoall_perf issues them.
#include <algorithm>

#include "model/collectives/routing.h"

namespace orrery {
namespace {

class DirectImpl : public Algorithm {
 public:
  DirectImpl() : Algorithm("direct") {}

  bool Serves(Collective collective, const GroupShape&) const override {
    return collective == Collective::kAllToAll;
  }

  InsideAndBetween<double> Efficiency(const Network& network) const override {
    return {network.InsideShare("ring_efficiency"),
            network.BetweenShare("point_to_point_efficiency")};
  }
  LineRates Lines(const Network& network) const override {
    // All ranks of a node send at once, each through what it reaches of the NICs.
    const BytesPerSecond all = network.own_nics * network.shape.ranks_per_node;
    return {network.inside, std::min(network.between(), all) * network.uplinks};
  }

  net::Traffic Route(Collective, net::GroupRoutes* routes) const override {
    for (const int64_t from : routes->members()) {
      for (const int64_t to : routes->members()) {
        if (from != to) routes->AddEdge(from, to, 0);
      }
    }
    net::TrafficPhase phase;
    phase.push_back(routes->TakeChannel(1.0 / routes->ranks()));
    return net::InOnePhase(std::move(phase));
  }

 private:
  AlgorithmCost CostOf(Collective, const Network& network) const override {
    const int ranks = network.shape.ranks;
    const int local = network.shape.ranks_per_node;
    const int nodes = network.shape.nodes();
    AlgorithmCost cost;
    cost.steps = ranks - 1;
    cost.hops = nodes - 1;
    cost.scaleup_load = static_cast<double>(local - 1) / ranks;
    cost.nic_load = nodes > 1 ? static_cast<double>(local) * (ranks - local) / ranks : 0.0;
    FillTimeLines(*this, network, 0.0, &cost);
    return cost;
  }
};

}  // namespace

const Algorithm& DirectAlgorithm() {
  static const DirectImpl direct;
  return direct;
}

}  // namespace orrery
