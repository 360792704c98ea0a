// SPDX-License-Identifier: Apache-2.0
// Physics of the simulated sweep.
#include <gtest/gtest.h>

#include "model/collectives/select.h"
#include "runtime/program/bench/bench_report.h"
#include "runtime/program/bench/bench_sweep.h"

namespace orrery::cli {
namespace {

constexpr Collective kAll[] = {Collective::kAllReduce,     Collective::kAllGather,
                               Collective::kReduceScatter, Collective::kBroadcast,
                               Collective::kAllToAll,      Collective::kSendRecv};

std::unique_ptr<BenchSimulation> Simulation(const char* topology, int64_t nodes, int gpus = 0,
                                            net::Backend backend = net::Backend::kFluid) {
  Cluster cluster = BuildCluster(LoadTopology(topology), nodes, gpus);
  GpuProfile gpu = LoadGpuProfile(cluster.summary.gpu);
  FabricProfile fabric = LoadFabricProfile(cluster.summary.fabric_profile);
  return std::make_unique<BenchSimulation>(std::move(cluster), std::move(gpu), std::move(fabric),
                                           backend);
}

double TimeOf(BenchSimulation& simulation, Collective collective, double bytes) {
  return simulation.Time(collective, Bytes(bytes)).time.value;
}

TEST(Sweep, IsMonotoneAndNeverFasterThanTheLines) {
  for (const auto& [topology, nodes] :
       {std::pair{"aws-g5-1gpu", 2}, {"aws-g5-1gpu", 5}, {"dgx-h100", 2}, {"dgx1-v100", 1}}) {
    const auto simulation = Simulation(topology, nodes);
    const ClusterSummary& cluster = simulation->cluster().summary;
    for (const Collective collective : kAll) {
      double last = 0;
      for (double bytes = 0; bytes < 5e9; bytes = bytes == 0 ? 8 : 3 * bytes + 1) {
        const double time = TimeOf(*simulation, collective, bytes);
        EXPECT_GE(time, last) << topology << " " << Name(collective) << " " << bytes;
        EXPECT_GT(time, 0);
        last = time;
      }
      const double busbw = BusBandwidth(collective, simulation->ranks(), Bytes(4e9),
                                        Seconds(TimeOf(*simulation, collective, 4e9)))
                               .value;
      if (cluster.gpus_per_node == 1) {
        EXPECT_LE(busbw, cluster.node_rate().value);
      }
    }
  }
}

TEST(Sweep, AloneOnIdleLinksFollowsTheClosedForm) {
  const auto simulation = Simulation("aws-g5-1gpu", 4);
  const GroupShape shape{4, 1, 1};
  const Network network =
      ViewNetwork(simulation->cluster().summary, simulation->gpu(), simulation->fabric(), shape);
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast}) {
    const PreparedCollective closed = Prepare(collective, network);
    for (const double bytes : {8.0, 4096.0, 1e6, 1e9})
      EXPECT_NEAR(TimeOf(*simulation, collective, bytes), closed.Time(bytes),
                  0.02 * closed.Time(bytes))
          << Name(collective) << " " << bytes;
  }
}

TEST(Sweep, InSwitchTreesAreNotHeldUpInsideTheNode) {
  const auto simulation = Simulation("dgx-h100", 2);
  const GroupShape shape{16, 8, 1};
  const PreparedCollective closed = Prepare(
      Collective::kAllReduce,
      ViewNetwork(simulation->cluster().summary, simulation->gpu(), simulation->fabric(), shape));
  EXPECT_EQ(simulation->Time(Collective::kAllReduce, Bytes(4e9)).algorithm, "nvls-tree");
  EXPECT_NEAR(TimeOf(*simulation, Collective::kAllReduce, 4e9), closed.Time(4e9),
              0.02 * closed.Time(4e9));
}

TEST(Sweep, OneRankCopies) {
  const auto simulation = Simulation("aws-g5-1gpu", 1);
  const BenchTime time = simulation->Time(Collective::kAllReduce, Bytes(1 << 27));
  EXPECT_EQ(time.algorithm, "copy");
  // 552.1 us measured on an A10G: read and write of 128 MiB.
  EXPECT_NEAR(1e6 * time.time.value, 552.1, 0.1 * 552.1);
}

TEST(Sweep, SendReceiveGoesBothWaysAtOnce) {
  const auto two = Simulation("aws-g5-1gpu", 2), eight = Simulation("aws-g5-1gpu", 8);
  EXPECT_NEAR(TimeOf(*two, Collective::kSendRecv, 1e8), TimeOf(*eight, Collective::kSendRecv, 1e8),
              1e-9);
}

TEST(Sweep, BothBackendsAgree) {
  if (!net::HasSimGrid()) GTEST_SKIP() << "libsimgrid was not found when this was built";
  const auto fluid = Simulation("aws-g5-1gpu", 3);
  const auto simgrid = Simulation("aws-g5-1gpu", 3, 0, net::Backend::kSimGrid);
  for (const Collective collective : kAll) {
    for (const double bytes : {8.0, 1e5, 1e8}) {
      const double time = TimeOf(*fluid, collective, bytes);
      EXPECT_NEAR(TimeOf(*simgrid, collective, bytes), time, 1e-3 * time) << Name(collective);
    }
  }
}

TEST(FloatText, HasTheBenchmarksDigits) {
  EXPECT_EQ(FloatText(172.7, 7), " 172.70");
  EXPECT_EQ(FloatText(12668, 7), "12668.0");
  EXPECT_EQ(FloatText(183560, 7), " 183560");
  EXPECT_EQ(FloatText(12345678, 7), "1.2e+07");
  EXPECT_EQ(FloatText(0.004, 6), "  0.00");
}

}  // namespace
}  // namespace orrery::cli
