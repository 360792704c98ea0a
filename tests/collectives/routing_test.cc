// SPDX-License-Identifier: Apache-2.0
// Collectives on routed links: loads by hand, both backends, and a ring against chunked steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/base/diagnostics.h"
#include "model/engine/network/fluid.h"
#include "tests/collectives/testing.h"
#include "tests/topo/testing.h"

namespace orrery::net {
namespace {

constexpr Bytes kGigabyte(1e9);
constexpr double kNic = 12.5e9, kNvLink = 450e9;  // of TopologyText()

Cluster Build(int gpus, int64_t nodes,
              const std::string& fabric = "kind: fat-tree, levels: 2, leaf_ports: 16") {
  return BuildCluster(ParseTopology(TopologyText(gpus, 64, fabric)), nodes);
}

std::vector<int64_t> Ranks(int64_t count, int64_t stride = 1, int64_t first = 0) {
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

// Starts the phases one after the other; `done` runs after the last.
void StartTraffic(Network* network, const std::shared_ptr<const Traffic>& traffic, Bytes size,
                  Done done, std::size_t phase = 0) {
  if (phase == traffic->size()) return done();
  auto left = std::make_shared<std::size_t>((*traffic)[phase].size());
  for (const Channel& channel : (*traffic)[phase]) {
    network->Start(network->AddPath(channel.uses, kNoCap, "collective"), size * channel.share, [=] {
      if (--*left == 0) StartTraffic(network, traffic, size, done, phase + 1);
    });
  }
}

struct Placed {
  std::string algorithm;
  Collective collective;
  std::vector<int64_t> members;
};

// Dates at which collectives of one gigabyte end that start together.
std::vector<double> Together(Backend backend, const Cluster& cluster,
                             const std::vector<Placed>& placed) {
  const std::unique_ptr<Network> network = MakeNetwork(backend, WiresOf(cluster));
  std::vector<double> ends(placed.size());
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const auto traffic = std::make_shared<const Traffic>(
        RouteCollective(placed[i].algorithm, placed[i].collective, cluster, placed[i].members));
    StartTraffic(network.get(), traffic, kGigabyte, [&, i] { ends[i] = network->Now().value; });
  }
  network->Run();
  return ends;
}

double Alone(const Cluster& cluster, const Placed& placed) {
  return Together(Backend::kFluid, cluster, {placed}).front();
}

TEST(Traffic, RingInOneNodeMovesTwoNMinusOneOverN) {
  const Cluster cluster = Build(8, 1);
  EXPECT_NEAR(Alone(cluster, {"ring", Collective::kAllReduce, Ranks(8)}),
              2 * 7 / 8.0 * 1e9 / kNvLink, 1e-12);
  EXPECT_NEAR(Alone(cluster, {"ring", Collective::kAllGather, Ranks(4)}), 3 / 4.0 * 1e9 / kNvLink,
              1e-12);
}

TEST(Traffic, RingOverNodesUsesEveryNic) {
  const Cluster cluster = Build(4, 8);
  EXPECT_NEAR(Alone(cluster, {"ring", Collective::kAllReduce, Ranks(32)}),
              2 * 31 / 32.0 * 1e9 / (4 * kNic), 1e-9);
}

TEST(Traffic, RingStaysOnItsRail) {
  const Cluster cluster =
      Build(4, 8, "kind: rail-optimised, levels: 2, leaf_ports: 8, oversubscription: 8");
  const Traffic ring = RouteCollective("ring", Collective::kAllReduce, cluster, Ranks(32));
  for (const Channel& channel : ring.front()) {
    for (const LinkUse& use : channel.uses) {
      EXPECT_NE(cluster.links[static_cast<std::size_t>(use.link)].kind, LinkKind::kFabric);
    }
  }
}

TEST(Traffic, TreeLoadsInteriorNodesTwice) {
  const Cluster cluster = Build(4, 8);
  EXPECT_NEAR(Alone(cluster, {"tree", Collective::kAllReduce, Ranks(32)}), 2e9 / (4 * kNic),
              0.2 * 2e9 / (4 * kNic));
  const Cluster two = Build(4, 2);
  EXPECT_NEAR(Alone(two, {"tree", Collective::kAllReduce, Ranks(8)}), 1e9 / (4 * kNic), 1e-9);
}

TEST(Traffic, EveryNodeButTheRootHasAParentInBothTrees) {
  for (const int nodes : {2, 3, 4, 5, 7, 8, 13}) {
    const Cluster cluster = Build(1, nodes);
    const Traffic trees = RouteCollective("tree", Collective::kAllReduce, cluster, Ranks(nodes));
    for (const Channel& channel : trees.front()) {
      double into_nics = 0;
      for (const LinkUse& use : channel.uses) {
        const Link& link = cluster.links[static_cast<std::size_t>(use.link)];
        const DeviceKind from = cluster.devices[static_cast<std::size_t>(link.from)].kind;
        if (link.kind == LinkKind::kNicPort && from == DeviceKind::kNic) into_nics += use.weight;
      }
      EXPECT_EQ(into_nics, 2 * (nodes - 1)) << nodes << " nodes";
    }
  }
}

TEST(Traffic, HierarchicalPhasesAddUp) {
  const Cluster cluster = Build(4, 8);
  const double inside = 2 * 3 / 4.0 * 1e9 / kNvLink, between = 2 * 7 / 8.0 * 1e9 / (4 * kNic);
  EXPECT_NEAR(Alone(cluster, {"hierarchical", Collective::kAllReduce, Ranks(32)}), inside + between,
              1e-9);
}

TEST(Traffic, AllToAllLeavesTheNodeWithWhatIsForOthers) {
  const Cluster cluster = Build(4, 4);
  EXPECT_NEAR(Alone(cluster, {"direct", Collective::kAllToAll, Ranks(16)}), 12 / 16.0 * 1e9 / kNic,
              1e-9);
}

TEST(Traffic, SendGoesAtTheRateOfTheNic) {
  const Cluster cluster = Build(4, 4);
  EXPECT_NEAR(Alone(cluster, {"send-recv", Collective::kSendRecv, {1, 9}}), 1e9 / kNic, 1e-9);
}

TEST(Traffic, ABroadcastSendsEverythingOnceThroughEveryNode) {
  const Cluster cluster = Build(4, 4);
  EXPECT_NEAR(Alone(cluster, {"ring", Collective::kBroadcast, Ranks(16)}), 1e9 / (4 * kNic), 1e-9);
  const Cluster pair = Build(1, 2);
  const Traffic traffic = RouteCollective("ring", Collective::kBroadcast, pair, Ranks(2));
  double into_root = 0;
  for (const LinkUse& use : traffic.front().front().uses) {
    if (pair.links[static_cast<std::size_t>(use.link)].to == pair.GpuOf(0)) into_root += use.weight;
  }
  EXPECT_EQ(into_root, 0);
}

const std::vector<Placed> kAllKinds = {
    {"ring", Collective::kAllReduce, Ranks(16)},
    {"tree", Collective::kAllReduce, Ranks(16)},
    {"ring", Collective::kAllGather, Ranks(8, 2)},
    {"ring", Collective::kReduceScatter, Ranks(4, 4, 1)},
    {"hierarchical", Collective::kAllReduce, Ranks(8)},
    {"ring", Collective::kBroadcast, Ranks(4, 4, 1)},
    {"direct", Collective::kAllToAll, Ranks(4, 4)},
    {"send-recv", Collective::kSendRecv, {2, 13}},
};

TEST(Traffic, AloneTheSimulationTakesTheStaticBottleneckTime) {
  const Cluster cluster =
      Build(4, 4, "kind: fat-tree, levels: 2, leaf_ports: 4, oversubscription: 2");
  for (const Placed& placed : kAllKinds) {
    const Traffic traffic =
        RouteCollective(placed.algorithm, placed.collective, cluster, placed.members);
    const double expected = BottleneckTime(traffic, cluster, kGigabyte).value;
    EXPECT_NEAR(Alone(cluster, placed), expected, 1e-9 * expected) << placed.algorithm;
  }
}

TEST(Traffic, BothBackendsAgreeUnderStaticContention) {
  if (!HasSimGrid()) GTEST_SKIP() << "libsimgrid was not found when this was built";
  const Cluster cluster =
      Build(4, 4, "kind: fat-tree, levels: 2, leaf_ports: 4, oversubscription: 2");
  const std::vector<double> fluid = Together(Backend::kFluid, cluster, kAllKinds);
  const std::vector<double> simgrid = Together(Backend::kSimGrid, cluster, kAllKinds);
  for (std::size_t i = 0; i < fluid.size(); ++i)
    EXPECT_NEAR(fluid[i], simgrid[i], 1e-3 * simgrid[i]) << i;
}

TEST(Traffic, WhatCannotRunIsRefused) {
  const Cluster cluster = Build(4, 2);
  EXPECT_THROW(RouteCollective("tree", Collective::kAllGather, cluster, Ranks(8)), InputError);
  EXPECT_THROW(RouteCollective("tree", Collective::kAllReduce, cluster, Ranks(4)), InputError);
  EXPECT_THROW(RouteCollective("star", Collective::kAllReduce, cluster, Ranks(8)), InputError);
  EXPECT_THROW(RouteCollective("hierarchical", Collective::kAllReduce, cluster, Ranks(5)),
               InputError);
}

// A ring of `n` ranks played as dependent sends of small chunks, while flows hit one rank after the
// other: the coupled job must take as long, independent edges would be far too fast.
class ChunkedRing {
 public:
  ChunkedRing(const Cluster& cluster, Network* network, int loops)
      : network_(network), loops_(loops) {
    n_ = static_cast<int>(cluster.ranks());
    steps_ = 2 * (n_ - 1) * loops;
    sent_.assign(static_cast<std::size_t>(n_), 0);
    received_.assign(static_cast<std::size_t>(n_), 0);
    for (int i = 0; i < n_; ++i)
      path_.push_back(network->AddRoute(cluster.Route(i, (i + 1) % n_), kNoCap, "edge"));
  }
  void Start(Bytes size) {
    chunk_ = size / (static_cast<double>(n_) * loops_);
    for (int i = 0; i < n_; ++i) Send(i);
  }
  double end() const { return end_; }

 private:
  // Step k of a rank passes on what came in at step k - 1.
  void Send(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    busy_.resize(static_cast<std::size_t>(n_));
    if (busy_[at] || sent_[at] == steps_ || sent_[at] > received_[at]) return;
    busy_[at] = true;
    network_->Start(path_[at], chunk_, [this, rank] { Sent(rank); });
  }
  void Sent(int rank) {
    const int next = (rank + 1) % n_;
    busy_[static_cast<std::size_t>(rank)] = false;
    ++sent_[static_cast<std::size_t>(rank)];
    ++received_[static_cast<std::size_t>(next)];
    end_ = network_->Now().value;
    Send(rank);
    Send(next);
  }

  Network* network_;
  int loops_, n_ = 0, steps_ = 0;
  Bytes chunk_;
  std::vector<PathId> path_;
  std::vector<int> sent_, received_;
  std::vector<bool> busy_;
  double end_ = 0;
};

void HitOneRankAfterTheOther(const Cluster& cluster, Network* network, int64_t victim) {
  if (victim == cluster.ranks()) return;
  const std::vector<LinkId> route = cluster.Route(victim, (victim + 5) % cluster.ranks());
  network->Flow(route, Bytes(1.5e8), kNoCap, [&cluster, network, victim] {
    HitOneRankAfterTheOther(cluster, network, victim + 1);
  });
}

TEST(Traffic, ACoupledRingMatchesAFinelyChunkedOneUnderMovingContention) {
  const Cluster cluster = Build(1, 16);
  FluidNetwork steps(WiresOf(cluster)), coupled(WiresOf(cluster));
  ChunkedRing chunked(cluster, &steps, 60);
  HitOneRankAfterTheOther(cluster, &steps, 0);
  chunked.Start(kGigabyte);
  steps.Run();
  double end = 0;
  HitOneRankAfterTheOther(cluster, &coupled, 0);
  const auto ring = std::make_shared<const Traffic>(
      RouteCollective("ring", Collective::kAllReduce, cluster, Ranks(16)));
  StartTraffic(&coupled, ring, kGigabyte, [&] { end = coupled.Now().value; });
  coupled.Run();
  const double uncontended = 2 * 15 / 16.0 * 1e9 / kNic;
  EXPECT_GT(chunked.end(), 1.5 * uncontended);
  EXPECT_NEAR(end, chunked.end(), 0.02 * chunked.end());
}

}  // namespace
}  // namespace orrery::net
