// SPDX-License-Identifier: Apache-2.0
// Reduction inside the NVLink switch of one node (NVLS).
//
// The switch adds what all ranks of the node write and sends the sums back, so that each rank sends and
// receives S once instead of 2 (n-1)/n S. In terms of bus bandwidth a node's switch is loaded with
// 2 (n-1)/n S, and measured bus bandwidth exceeds the link rate: its efficiency may be above 1.
// Invariant: one round trip through the switch, whatever the number of ranks. All-reduce on one node.
// Source: NCCL since 2.17; the switch works with the bandwidth protocol only.
#include "model/collectives/routing.h"

namespace orrery {
namespace {

class NvlsImpl : public Algorithm {
 public:
  NvlsImpl() : Algorithm("nvls") {}

  bool Serves(Collective collective, const GroupShape& shape) const override {
    return collective == Collective::kAllReduce && shape.ranks_per_node > 2 && shape.nodes() == 1;
  }
  bool Possible(const Network& network) const override { return network.into_switch.value > 0; }

  InsideAndBetween<double> Efficiency(const Network& network) const override {
    return {network.InsideShare("nvls_efficiency"), 1.0};
  }
  LineRates Lines(const Network& network) const override { return {network.into_switch, {}}; }

  // Each GPU sends and receives everything once: the edges of a ring through the switch do as much.
  net::Traffic Route(Collective, net::GroupRoutes* routes) const override {
    return net::InOnePhase(routes->Ring(routes->nodes(), 1.0));
  }

 private:
  AlgorithmCost CostOf(Collective collective, const Network& network) const override {
    AlgorithmCost cost;
    cost.scaleup_load = WireFactor(collective, network.shape.ranks_per_node);
    FillTimeLines(*this, network, 0.0, &cost);
    cost.bandwidth.line.latency += network.switch_round_trip.value;
    // The route has S, not the bus's 2 (n-1)/n S, on the links of the node.
    cost.bandwidth.share.scale_up /= cost.scaleup_load;
    cost.steps = 2;
    cost.scaleup_load = 1.0;
    cost.latency.reset();
    return cost;
  }
};

}  // namespace

const Algorithm& NvlsAlgorithm() {
  static const NvlsImpl nvls;
  return nvls;
}

}  // namespace orrery
