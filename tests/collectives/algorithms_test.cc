// SPDX-License-Identifier: Apache-2.0
// Schedule figures and closed forms of every collective algorithm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "model/base/diagnostics.h"
#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "tests/collectives/testing.h"

namespace orrery {
namespace {

std::optional<AlgorithmCost> CostOf(const char* name, Collective collective,
                                    const Network& network) {
  return FindAlgorithm(name)->Cost(collective, network);
}

constexpr int kRanks[] = {2, 3, 4, 7, 8};

// A network with round figures: 100 GB/s inside a node, 50 GB/s out of it, 2 us and 20 us per hop.
Network RoundNetwork(int ranks, int ranks_per_node) {
  Network network;
  network.shape = {ranks, ranks_per_node, 1};
  network.inside = BytesPerSecond(100e9);
  network.into_switch = BytesPerSecond(150e9);
  network.node_nics = network.own_nics = BytesPerSecond(50e9);
  network.launch = Seconds(10e-6);
  network.intra_hop = Seconds(2e-6);
  network.switch_round_trip = Seconds(25e-6);
  network.inter_hop = Seconds(20e-6);
  network.low_latency_bandwidth = 0.4;
  network.low_latency_hop = 0.3;
  network.pipelining = 2.0;
  return network;
}

TEST(Ring, TakesTwoLapsForAllReduceAndOneForGathering) {
  for (int n : kRanks) {
    const auto reduce = CostOf("ring", Collective::kAllReduce, RoundNetwork(n, n));
    const auto gather = CostOf("ring", Collective::kAllGather, RoundNetwork(n, n));
    EXPECT_EQ(reduce->steps, 2 * (n - 1));
    EXPECT_EQ(gather->steps, n - 1);
    EXPECT_DOUBLE_EQ(reduce->scaleup_load, 2.0 * (n - 1) / n);
    EXPECT_DOUBLE_EQ(reduce->bandwidth.line.per_byte, 2.0 * (n - 1) / n / 100e9);
    EXPECT_DOUBLE_EQ(reduce->bandwidth.line.latency, 10e-6 + 2 * (n - 1) * 2e-6);
    EXPECT_NEAR(2.0 * gather->bandwidth.line.per_byte, reduce->bandwidth.line.per_byte, 1e-18);
  }
}

// The bandwidth protocol alone starts late, and a single message waits for nothing.
TEST(Ring, StartsLateByTheBandwidthProtocol) {
  Network network = RoundNetwork(16, 8);
  const auto before = CostOf("ring", Collective::kAllReduce, network);
  const auto message = CostOf("send-recv", Collective::kSendRecv, RoundNetwork(2, 1));
  network.bandwidth_launch = Seconds(150e-6);
  const auto after = CostOf("ring", Collective::kAllReduce, network);
  EXPECT_DOUBLE_EQ(after->bandwidth.line.latency, before->bandwidth.line.latency + 150e-6);
  EXPECT_EQ(after->latency->line.latency, before->latency->line.latency);
  Network pair = RoundNetwork(2, 1);
  pair.bandwidth_launch = network.bandwidth_launch;
  EXPECT_EQ(CostOf("send-recv", Collective::kSendRecv, pair)->bandwidth.line.latency,
            message->bandwidth.line.latency);
}

TEST(Ring, LeavesEachNodeOnceSoThatTheNicsCarryTheWireVolume) {
  const auto cost = CostOf("ring", Collective::kAllReduce, RoundNetwork(16, 8));
  EXPECT_EQ(cost->hops, 2);
  EXPECT_DOUBLE_EQ(cost->nic_load, 2.0 * 15 / 16);
  EXPECT_DOUBLE_EQ(cost->bandwidth.line.per_byte, cost->nic_load / 50e9);
}

// A slow NIC saturates; beyond what two cores feed, a faster one carries no more. What a framework's compute
// takes from NICs does not count.
TEST(Sockets, StreamsHaveARateOfTheirOwn) {
  FabricProfile tcp = LoadFabricProfile("tcp");
  const double streams = tcp.socket_stream.value * tcp.socket_channels;
  ASSERT_GT(streams, 1.25e9);
  ClusterSummary cluster = Summarise(LoadTopology("dli-slurm-v100"), 2);
  const GpuProfile gpu = LoadGpuProfile("v100-sxm2-16gb");
  const auto rate = [&](double gbps, int sharing, double use) {
    cluster.nic_rate = BytesPerSecond(gbps * 1e9 / 8);
    const Network network =
        ViewNetwork(cluster, gpu, tcp, GroupShape{4, 2, sharing}, BandwidthUse{1.0, use, ""});
    return network.BetweenShare("nic_ring_efficiency") * network.between().value;
  };
  EXPECT_NEAR(rate(10, 1, 1), 0.94 * 1.25e9, 1e3);
  EXPECT_NEAR(rate(25, 1, 1), streams, 1e3);
  EXPECT_NEAR(rate(100, 1, 1), streams, 1e3);
  EXPECT_NEAR(rate(100, 1, 0.5), streams, 1e3);
  EXPECT_NEAR(rate(100, 4, 1), streams, 1e3);  // each group has streams and cores of its own
  EXPECT_NEAR(rate(10, 4, 1), 0.94 * 1.25e9 / 4, 1e3);  // but they share the NIC
}

TEST(DoubleBinaryTree, GrowsWithTheLogarithmOfTheNodes) {
  EXPECT_FALSE(CostOf("tree", Collective::kAllReduce, RoundNetwork(8, 8)));
  EXPECT_FALSE(CostOf("tree", Collective::kAllGather, RoundNetwork(16, 8)));
  EXPECT_EQ(CostOf("tree", Collective::kAllReduce, RoundNetwork(16, 8))->hops, 2);
  EXPECT_EQ(CostOf("tree", Collective::kAllReduce, RoundNetwork(64, 8))->hops, 6);
  EXPECT_EQ(CostOf("tree", Collective::kAllReduce, RoundNetwork(72, 8))->hops, 8);
  EXPECT_DOUBLE_EQ(CostOf("tree", Collective::kAllReduce, RoundNetwork(16, 8))->nic_load, 1.0);
  EXPECT_DOUBLE_EQ(CostOf("tree", Collective::kAllReduce, RoundNetwork(64, 8))->nic_load, 2.0);
}

TEST(Hierarchical, HasTheRingsVolumeBetweenNodesAndAShorterChain) {
  const auto flat = CostOf("ring", Collective::kAllReduce, RoundNetwork(64, 8));
  const auto levels = CostOf("hierarchical", Collective::kAllReduce, RoundNetwork(64, 8));
  EXPECT_EQ(levels->steps, 2 * 7 + 2 * 7);
  EXPECT_LT(levels->steps, flat->steps);
  EXPECT_LE(levels->nic_load, flat->nic_load);
  EXPECT_FALSE(CostOf("hierarchical", Collective::kAllReduce, RoundNetwork(8, 8)));
}

// The first chunk takes every hop before the others follow: as large as NCCL makes it, and no larger than the message.
TEST(NvlsTree, WaitsForAChunkOnEveryHop) {
  constexpr double kMi = 1024.0 * 1024;
  for (const int nodes : {2, 4, 16}) {
    const Network network = RoundNetwork(8 * nodes, 8);
    const TimeLine line = CostOf("nvls-tree", Collective::kAllReduce, network)->bandwidth.line;
    const int hops = 2 * std::bit_width(static_cast<unsigned>(nodes - 1));
    const auto chunk = [&](double bytes) { return line.Loss(bytes, 0) * 50e9 / hops; };
    // 16 channels x 8 GPUs x 32, 64 and, on two or three nodes, 128 KiB.
    EXPECT_NEAR(chunk(1 * kMi), 1 * kMi, 1);
    EXPECT_NEAR(chunk(7 * kMi), 4 * kMi, 1);
    EXPECT_NEAR(chunk(8 * kMi), 8 * kMi, 1);
    EXPECT_NEAR(chunk(63 * kMi), 8 * kMi, 1);
    EXPECT_NEAR(chunk(1024 * kMi), nodes < 4 ? 16 * kMi : 8 * kMi, 1);
    EXPECT_EQ(line.per_root_byte, 0);
  }
}

// Each node on its way adds a chunk up: where its switch is slower than its NICs, that is what a hop takes.
TEST(NvlsTree, WaitsForTheSwitchOfEachNodeThatIsSlowerThanItsNics) {
  constexpr double kMi = 1024.0 * 1024;
  Network network = RoundNetwork(32, 8);
  network.node_nics = BytesPerSecond(400e9);
  const TimeLine line = CostOf("nvls-tree", Collective::kAllReduce, network)->bandwidth.line;
  EXPECT_NEAR(line.Loss(64 * kMi, 0), 4 * 8 * kMi * (2 * 7 / 8.0) / 150e9, 1e-12);
}

TEST(NvlsTree, HasTwiceTheChannelsOnBlackwell) {
  constexpr double kGi = 1024.0 * 1024 * 1024;
  Network network = RoundNetwork(64, 8);
  const auto loss = [&] {
    return CostOf("nvls-tree", Collective::kAllReduce, network)->bandwidth.line.Loss(kGi, 0);
  };
  const double hopper = loss();
  network.switch_channels = 32;
  EXPECT_DOUBLE_EQ(loss(), 2 * hopper);
}

// Two channels for each NIC of the group, of 512 KiB each; up and down between nodes and along the chain inside.
TEST(DoubleBinaryTree, WaitsForAChunkOnEveryStep) {
  constexpr double kMi = 1024.0 * 1024;
  Network network = RoundNetwork(32, 8);
  network.nics = 4;
  const auto line = CostOf("tree", Collective::kAllReduce, network)->bandwidth.line;
  const double per_byte = 4 / 50e9 + 14 / 100e9;
  EXPECT_DOUBLE_EQ(line.Loss(1 * kMi, 0), 1 * kMi * per_byte);
  EXPECT_DOUBLE_EQ(line.Loss(64 * kMi, 0), 4 * kMi * per_byte);
  network.shape.sharing = 4;  // a quarter of the NICs
  EXPECT_EQ(CostOf("tree", Collective::kAllReduce, network)->bandwidth.line.chunks.Of(1e9),
            1 * kMi);
}

// Another channel for each 4 KiB: a hop of a tree takes longer with each.
TEST(LowLatency, TakesLongerByTheChannelsInUse) {
  constexpr double kKi = 1024.0;
  Network network = RoundNetwork(16, 8);
  network.nics = 4;
  network.low_latency_channel = Seconds(1e-6);
  const auto extra = [&](const char* name, double bytes) {
    return CostOf(name, Collective::kAllReduce, network)->latency->line.Loss(bytes, 0);
  };
  EXPECT_DOUBLE_EQ(extra("tree", 4 * kKi), 2e-6);
  EXPECT_DOUBLE_EQ(extra("tree", 1024 * kKi), 2 * 8e-6);
  EXPECT_EQ(extra("ring", 1024 * kKi), 0);
}

// Flags bound a tree as they bound a ring, whatever less a tree reaches by the bandwidth protocol.
TEST(LowLatency, LeavesATreeTheRateOfARing) {
  GpuProfile gpu;
  FabricProfile fabric;
  fabric.nic_ring_efficiency = 0.8;
  fabric.nic_tree_efficiency = 0.4;
  Network network = RoundNetwork(32, 1);
  network.efficiency = Efficiencies(gpu, fabric);
  const auto cost = CostOf("tree", Collective::kAllReduce, network);
  EXPECT_DOUBLE_EQ(cost->bandwidth.line.per_byte, 2 / (0.4 * 50e9));
  EXPECT_DOUBLE_EQ(cost->latency->line.per_byte, 2 / (0.8 * 50e9) / 0.4);
  EXPECT_DOUBLE_EQ(cost->latency->share.network, 0.8 * 0.4);
}

// Between nodes LL128 has the bandwidth of lines of which 120 of 128 bytes are data, and hops a little longer than LL's.
TEST(Line128, HasNearlyAllOfTheBandwidthAndShortHops) {
  Network network = RoundNetwork(16, 8);
  network.nics = 4;
  network.low_latency_inside_hop = 0.3;
  network.low_latency_channel = Seconds(0.25e-6);
  EXPECT_FALSE(CostOf("tree", Collective::kAllReduce, network)->line128);
  network.line128_bandwidth = 120.0 / 128;
  const auto tree = CostOf("tree", Collective::kAllReduce, network);
  const TimeLine& line = tree->line128->line;
  EXPECT_DOUBLE_EQ(line.per_byte, tree->bandwidth.line.per_byte * 128 / 120);
  EXPECT_NEAR(line.latency, 10e-6 + 14 * 0.6e-6 * 1.25 / 0.6 + 2 * 6e-6 * 8.5 / 5 + 2 * 8 * 0.25e-6,
              1e-12);
  EXPECT_DOUBLE_EQ(tree->line128->share.network, 120.0 / 128);
  const auto ring = CostOf("ring", Collective::kAllGather, network);
  EXPECT_NEAR(ring->line128->line.latency,
              10e-6 + 14 * 0.6e-6 * 1.9 / 0.6 + 6e-6 * 4 / 2.7 + 8 * 0.25e-6, 1e-12);
  EXPECT_FALSE(CostOf("nvls-tree", Collective::kAllReduce, network)->line128);
  EXPECT_FALSE(CostOf("ring", Collective::kAllReduce, RoundNetwork(8, 8))->line128);
}

// NCCL halves the chunk of a channel, 576,000 bytes, while a message has few of them: of 16 channels here.
TEST(Line128, HasSmallerChunksInSmallerMessages) {
  constexpr double kMi = 1024.0 * 1024;
  Network network = RoundNetwork(16, 8);
  network.nics = 8;
  network.line128_bandwidth = 120.0 / 128;
  const ChunkSizes chunks = CostOf("tree", Collective::kAllReduce, network)->line128->line.chunks;
  EXPECT_DOUBLE_EQ(chunks.Of(1 * kMi), 16 * 18000);
  EXPECT_DOUBLE_EQ(chunks.Of(4 * kMi), 16 * 36000);
  EXPECT_DOUBLE_EQ(chunks.Of(8 * kMi), 16 * 72000);
  EXPECT_DOUBLE_EQ(chunks.Of(1024 * kMi), 16 * 576000);
  EXPECT_DOUBLE_EQ(chunks.Of(1000), 1000);
}

// One process launches the kernels of its GPUs one after the other: calls are no shorter.
TEST(Issue, IsAFloorOfLatencyAlone) {
  Network network = RoundNetwork(8, 8);
  const TimeLine before = CostOf("ring", Collective::kBroadcast, network)->latency->line;
  network.issue = Seconds(34e-6);
  const TimeLine after = CostOf("ring", Collective::kBroadcast, network)->latency->line;
  EXPECT_LT(before.latency, 34e-6);
  EXPECT_EQ(after.latency, 34e-6);
  EXPECT_EQ(after.per_byte, before.per_byte);
}

TEST(Nvls, RunsAtTheSwitchsBusBandwidth) {
  const auto cost = CostOf("nvls", Collective::kAllReduce, RoundNetwork(8, 8));
  EXPECT_DOUBLE_EQ(cost->bandwidth.line.per_byte, 1.75 / 150e9);
  Network without = RoundNetwork(8, 8);
  without.into_switch = BytesPerSecond(0);
  EXPECT_FALSE(CostOf("nvls", Collective::kAllReduce, without));
  EXPECT_FALSE(CostOf("nvls", Collective::kAllReduce, RoundNetwork(16, 8)));
  EXPECT_EQ(CostOf("nvls-tree", Collective::kAllReduce, RoundNetwork(64, 8))->hops, 6);
}

TEST(DirectAllToAll, SendsOnlyWhatIsMeantForOtherNodesOverTheNics) {
  const auto cost = CostOf("direct", Collective::kAllToAll, RoundNetwork(16, 8));
  EXPECT_EQ(cost->steps, 15);
  EXPECT_DOUBLE_EQ(cost->nic_load, 8.0 * 8 / 16);
  // Each GPU sends through a NIC of its own, all of them at once.
  Network own = RoundNetwork(16, 8);
  own.node_nics = BytesPerSecond(400e9), own.own_nics = BytesPerSecond(50e9);
  EXPECT_DOUBLE_EQ(CostOf("direct", Collective::kAllToAll, own)->bandwidth.line.per_byte,
                   4 / 400e9);
}

// Ranks of a node send through a NIC each: with its NICs a node is as fast for eight ranks as for one.
TEST(DirectAllToAll, UsesTheNicsOfAllRanksOfANode) {
  for (const int each : {1, 2, 4, 8}) {
    Network network = RoundNetwork(2 * each, each);
    network.node_nics = BytesPerSecond(400e9);
    const auto cost = CostOf("direct", Collective::kAllToAll, network);
    EXPECT_DOUBLE_EQ(cost->bandwidth.line.per_byte, 0.5 / 50e9) << each;
  }
}

TEST(SendRecv, MovesTheMessageOnce) {
  const auto inside = CostOf("send-recv", Collective::kSendRecv, RoundNetwork(2, 2));
  EXPECT_DOUBLE_EQ(inside->bandwidth.line.per_byte, 1.0 / 100e9);
  const auto across = CostOf("send-recv", Collective::kSendRecv, RoundNetwork(2, 1));
  EXPECT_DOUBLE_EQ(across->bandwidth.line.per_byte, 1.0 / 50e9);
}

// Trees of many channels hold links inside nodes once; each link carries the same.
TEST(TrafficRouter, SeveralChannelsAtOncePutTheSameOnEachLink) {
  for (const auto& [topology, nodes, gpus] :
       {std::tuple{"nvl72-gb300", 54, 216}, {"dgx-h100", 5, 40}, {"aws-dl1", 3, 24}}) {
    const Cluster cluster = BuildCluster(LoadTopology(topology), nodes);
    std::vector<int64_t> all(static_cast<std::size_t>(gpus));
    std::iota(all.begin(), all.end(), 0);
    const auto bytes_of = [&](const net::Traffic& traffic) {
      std::map<LinkId, double> bytes;
      for (const net::TrafficPhase& phase : traffic)
        for (const net::Channel& channel : phase)
          for (const net::LinkUse& use : channel.uses)
            bytes[use.link] += use.weight * channel.share;
      return bytes;
    };
    net::TrafficRouter router(cluster), few(cluster, gpus * 3);
    const net::Traffic apart = router.Route("tree", Collective::kAllReduce, all);
    const net::Traffic together = few.Route("tree", Collective::kAllReduce, all);
    ASSERT_LT(together.front().size(), apart.front().size()) << topology;
    const auto bytes = bytes_of(apart), again = bytes_of(together);
    ASSERT_EQ(bytes.size(), again.size()) << topology;
    for (const auto& [link, sum] : bytes)
      ASSERT_NEAR(again.at(link), sum, 1e-9) << topology << ", link " << link;
  }
}

// Whatever was asked before.
TEST(TrafficRouter, RoutesEachQuestionForItself) {
  const Cluster cluster = BuildCluster(LoadTopology("aws-dl1"), 3);
  std::vector<int64_t> all(24), some = {0, 3, 8, 11};
  std::iota(all.begin(), all.end(), 0);
  net::TrafficRouter router(cluster);
  for (int round = 0; round < 2; ++round) {
    for (const auto& [algorithm, collective, members] :
         {std::tuple{"tree", Collective::kAllReduce, all},
          {"ring", Collective::kAllReduce, all},
          {"ring", Collective::kAllGather, all},
          {"tree", Collective::kAllReduce, all},
          {"tree", Collective::kAllReduce, some},
          {"ring", Collective::kAllReduce, some}}) {
      const net::Traffic traffic = router.Route(algorithm, collective, members);
      const net::Traffic alone = net::RouteCollective(algorithm, collective, cluster, members);
      ASSERT_EQ(traffic.size(), alone.size());
      for (std::size_t phase = 0; phase < alone.size(); ++phase) {
        ASSERT_EQ(traffic[phase].size(), alone[phase].size());
        for (std::size_t c = 0; c < alone[phase].size(); ++c) {
          EXPECT_EQ(traffic[phase][c].uses, alone[phase][c].uses) << algorithm;
          EXPECT_EQ(traffic[phase][c].share, alone[phase][c].share) << algorithm;
        }
      }
    }
  }
}

TEST(Selector, CostsNothingForOneRankOrNoBytes) {
  EXPECT_EQ(Prepare(Collective::kAllReduce, RoundNetwork(1, 1)).Time(1e9), 0.0);
  EXPECT_EQ(Prepare(Collective::kAllReduce, RoundNetwork(8, 8)).Time(0.0), 0.0);
}

TEST(Selector, TakesTheLatencyProtocolForSmallAndBandwidthForLargeMessages) {
  Network network = RoundNetwork(8, 8);
  network.into_switch = BytesPerSecond(0);
  const PreparedCollective reduce = Prepare(Collective::kAllReduce, network);
  EXPECT_EQ(reduce.Choice(64), "ring (LL)");
  EXPECT_EQ(reduce.Choice(1e9), "ring");
}

TEST(Selector, IsNeverSlowerThanTheAlgorithmThatTheUserNames) {
  const Network network = RoundNetwork(64, 8);
  const PreparedCollective best = Prepare(Collective::kAllReduce, network);
  for (const char* name : {"ring", "tree", "nvls-tree"}) {
    const PreparedCollective named = Prepare(Collective::kAllReduce, network, name);
    for (double bytes : {8.0, 1e3, 1e5, 1e7, 1e9})
      EXPECT_LE(best.Time(bytes), named.Time(bytes)) << name << bytes;
  }
}

TEST(Selector, RefusesAnAlgorithmThatCannotRunHere) {
  EXPECT_THROW(Prepare(Collective::kAllGather, RoundNetwork(16, 8), "tree"), InputError);
  try {
    Prepare(Collective::kAllReduce, RoundNetwork(16, 8), "rnig");
    FAIL() << "an unknown algorithm was accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ring"));
  }
}

class EveryCollective : public testing::TestWithParam<int> {};

TEST_P(EveryCollective, IsMonotoneAndAtMostLinearInSize) {
  const auto kind = static_cast<Collective>(GetParam());
  for (int ranks : {2, 3, 4, 7, 8, 16, 64}) {
    const PreparedCollective prepared = Prepare(kind, RoundNetwork(ranks, std::min(ranks, 8)));
    double last = 0;
    for (double bytes = 8; bytes < 1e11; bytes *= 2) {
      const double time = prepared.Time(bytes);
      EXPECT_GT(time, last) << ranks << " ranks, " << bytes << " bytes";
      if (last > 0) {
        EXPECT_LE(time, 2.0 * last * (1 + 1e-12)) << ranks << " ranks, " << bytes << " bytes";
      }
      last = time;
    }
  }
}

TEST_P(EveryCollective, IsNeverSlowerOnABetterNetwork) {
  const auto kind = static_cast<Collective>(GetParam());
  for (int ranks : {2, 8, 16, 64}) {
    const Network base = RoundNetwork(ranks, std::min(ranks, 8));
    std::vector<Network> better(4, base);
    better[0].inside *= 1.5;
    better[1].node_nics *= 1.5, better[1].own_nics *= 1.5;
    better[2].intra_hop *= 0.5, better[2].inter_hop *= 0.5;
    better[3].launch *= 0.5;
    for (double bytes : {8.0, 1e4, 1e6, 1e8, 1e10}) {
      for (std::size_t i = 0; i < better.size(); ++i) {
        EXPECT_LE(Prepare(kind, better[i]).Time(bytes),
                  Prepare(kind, base).Time(bytes) * (1 + 1e-12))
            << "improvement " << i << ", " << ranks << " ranks, " << bytes << " bytes";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryCollective, testing::Range(0, kCollectives),
                         [](const auto& param) {
                           return Name(static_cast<Collective>(param.param));
                         });

TEST(BusBandwidth, FollowsTheBenchmarksRule) {
  EXPECT_DOUBLE_EQ(BusBandwidth(Collective::kAllReduce, 8, Bytes(1e9), Seconds(1)).value, 1.75e9);
  EXPECT_DOUBLE_EQ(BusBandwidth(Collective::kAllGather, 8, Bytes(1e9), Seconds(1)).value, 0.875e9);
  EXPECT_DOUBLE_EQ(BusBandwidth(Collective::kSendRecv, 8, Bytes(1e9), Seconds(1)).value, 1e9);
}

// vtrain-a100: eight GPUs and four NICs on four PCIe switches.
TEST(EndsApart, WhereNoTwoRanksOfANodeShareASwitch) {
  const ClusterSummary cluster = Summarise(LoadTopology("vtrain-a100"), 8);
  ASSERT_EQ(cluster.switch_gpus, 2);
  const auto apart = [&](int ranks, int inner) {
    return EndsApart(cluster, ShapeOfAxis(ranks, inner, cluster.gpus_per_node));
  };
  EXPECT_FALSE(apart(64, 1));  // all eight GPUs of each node
  EXPECT_TRUE(apart(32, 2));   // every second
  EXPECT_TRUE(apart(16, 4));   // GPUs 0 and 4
  EXPECT_FALSE(apart(8, 8));   // one GPU is both ends
  EXPECT_FALSE(apart(4, 2));   // inside one node
  const ClusterSummary few = Summarise(LoadTopology("vtrain-a100"), 8, 1);
  EXPECT_EQ(few.switch_gpus, 1);
  EXPECT_FALSE(EndsApart(few, ShapeOfAxis(8, 1, 1)));
}

TEST(ShapeOfAxis, SharesTheNicsAmongTheGroupsOfANode) {
  EXPECT_EQ(ShapeOfAxis(16, 8, 8).ranks_per_node, 1);
  EXPECT_EQ(ShapeOfAxis(16, 8, 8).sharing, 8);
  EXPECT_EQ(ShapeOfAxis(16, 1, 8).ranks_per_node, 8);
  EXPECT_EQ(ShapeOfAxis(16, 1, 8).sharing, 1);
  EXPECT_EQ(ShapeOfAxis(2, 2, 8).ranks_per_node, 2);
  EXPECT_EQ(ShapeOfAxis(64, 2, 8).nodes(), 16);
}

}  // namespace
}  // namespace orrery
