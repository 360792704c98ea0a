// SPDX-License-Identifier: Apache-2.0
// One message between two ranks, all groups of the node sending at once.
//
// The message takes one hop, over scale-up links or over the sender's own NICs, in as many channels as
// the sender has NICs. It is in flight as a whole, so that it pays no pipelining loss.
// Invariant: S leaves the sender once; of a longer group (a pipeline) one rank leaves each node.
// Source: NCCL's point-to-point calls, as nccl-tests' sendrecv_perf issues them.
#include "model/collectives/routing.h"

namespace orrery {
namespace {

class SendRecvImpl : public Algorithm {
 public:
  SendRecvImpl() : Algorithm("send-recv") {}

  bool Serves(Collective collective, const GroupShape& shape) const override {
    return collective == Collective::kSendRecv && shape.ranks > 1;
  }

  InsideAndBetween<double> Efficiency(const Network& network) const override {
    return {network.InsideShare("ring_efficiency"),
            network.BetweenShare("point_to_point_efficiency")};
  }
  LineRates Lines(const Network& network) const override {
    return {network.inside, network.between_ranks()};
  }

  net::Traffic Route(Collective, net::GroupRoutes* routes) const override {
    net::TrafficPhase phase;
    const int64_t from = routes->members()[0], to = routes->members()[1];
    const int channels = routes->ChannelsOf({{from}, {to}});
    for (int c = 0; c < channels; ++c) {
      routes->AddEdge(from, to, c);
      phase.push_back(routes->TakeChannel(1.0 / channels));
    }
    return {phase};
  }

 private:
  AlgorithmCost CostOf(Collective, const Network& network) const override {
    AlgorithmCost cost;
    cost.steps = 1;
    const bool crosses = network.shape.nodes() > 1;
    cost.hops = crosses ? 1 : 0;
    cost.scaleup_load = crosses ? 0.0 : 1.0;
    cost.nic_load = crosses ? 1.0 : 0.0;  // in rank order one rank of the group leaves each node
    FillTimeLines(*this, network, 0.0, &cost);
    cost.bandwidth.line.per_root_byte = 0.0;
    return cost;
  }
};

}  // namespace

const Algorithm& SendRecvAlgorithm() {
  static const SendRecvImpl send_recv;
  return send_recv;
}

}  // namespace orrery
