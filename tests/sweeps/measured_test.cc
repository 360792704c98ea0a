// SPDX-License-Identifier: Apache-2.0
// The twin follows sweeps of its machine: closed form, simulation, transfer rules.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "calib/sweeps/section.h"
#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "model/hardware/measured_collectives.h"
#include "runtime/program/bench/bench_sweep.h"
#include "tests/sweeps/made.h"

namespace orrery {
namespace {

// A slow A100 node: nothing of it is in the profiles.
NodeRingForm SlowNode() {
  NodeRingForm form;
  form.offset = 60e-6;
  form.per_step = 5e-6;
  form.bandwidth = 100e9;
  form.copy = 500e9;
  return form;
}

std::shared_ptr<const MeasuredCollectives> Measured(const std::vector<MeasuredRuns>& runs,
                                                    const char* topology) {
  const MachineTopologies topologies({topology});
  const auto machines = FitMachines(runs, topologies);
  return std::make_shared<const MeasuredCollectives>(ReadMeasuredCollectives(
      std::make_shared<Source>(Source{"measured.yaml", SectionText(machines.front())})));
}

struct Twin {
  Twin(const char* topology, int nodes, int gpus,
       std::shared_ptr<const MeasuredCollectives> measured)
      : cluster(Summarise(LoadTopology(topology), nodes, gpus)),
        gpu(LoadGpuProfile(cluster.gpu)),
        fabric(LoadFabricProfile(cluster.fabric_profile)),
        built(BuildCluster(LoadTopology(topology), nodes, gpus)) {
    fabric.measured = std::move(measured);
  }
  PreparedCollective Of(Collective collective, int ranks, int per_node, int sharing = 1,
                        const BandwidthUse& use = {}) const {
    return Prepare(collective, ViewNetwork(cluster, gpu, fabric, {ranks, per_node, sharing}, use));
  }
  // All ranks of all nodes.
  Network Whole() const {
    return ViewNetwork(cluster, gpu, fabric, {8 * static_cast<int>(cluster.nodes), 8, 1});
  }
  ClusterSummary cluster;
  GpuProfile gpu;
  FabricProfile fabric;
  Cluster built;
};

TEST(MeasuredTwin, FollowsTheSweepOfItsGroupOnly) {
  const std::vector<SweepPoint> points = PointsOf(SlowNode().CurveOf(8, 1), 0.005, 1);
  const Twin with("vtrain-a100", 1, 8,
                  Measured({MadeRuns("all_reduce", 8, 1, points)}, "vtrain-a100"));
  const Twin without("vtrain-a100", 1, 8, nullptr);
  for (const SweepPoint& point : points) {
    EXPECT_NEAR(with.Of(Collective::kAllReduce, 8, 8).Time(point.bytes) / point.seconds, 1, 0.02);
    EXPECT_LT(without.Of(Collective::kAllReduce, 8, 8).Time(point.bytes) / point.seconds, 0.8);
  }
  EXPECT_EQ(with.Of(Collective::kAllReduce, 8, 8).Choice(1e9), "ring (measured)");
  // All-to-all is no ring: nothing of the sweep applies.
  EXPECT_EQ(with.Of(Collective::kAllToAll, 8, 8).Time(1e8),
            without.Of(Collective::kAllToAll, 8, 8).Time(1e8));
}

TEST(MeasuredTwin, OtherCollectivesByWireVolumeOtherRanksByTheForm) {
  const auto points = PointsOf(SlowNode().CurveOf(8, 1), 0, 1);
  const Twin twin("vtrain-a100", 1, 8,
                  Measured({MadeRuns("all_reduce", 8, 1, points),
                            MadeRuns("all_reduce", 2, 1, PointsOf(SlowNode().CurveOf(2, 1), 0, 1))},
                           "vtrain-a100"));
  const double bytes = 1 << 30;
  // Half the volume of an all-reduce.
  EXPECT_NEAR(twin.Of(Collective::kAllGather, 8, 8).Time(bytes) /
                  twin.Of(Collective::kAllReduce, 8, 8).Time(bytes / 2),
              1, 0.02);
  EXPECT_EQ(twin.Of(Collective::kAllGather, 8, 8).Choice(bytes), "ring (by wire volume)");
  EXPECT_NEAR(
      twin.Of(Collective::kAllReduce, 4, 4).Time(bytes) / SlowNode().CurveOf(4, 1).Time(bytes), 1,
      0.04);
  EXPECT_EQ(twin.Of(Collective::kAllReduce, 4, 4).Choice(bytes), "ring (by ranks)");
  // A software that gets half of the bandwidth takes twice as long for large messages.
  EXPECT_NEAR(twin.Of(Collective::kAllReduce, 8, 8, 1, {0.5, 1}).Time(bytes) /
                  twin.Of(Collective::kAllReduce, 8, 8).Time(bytes),
              2, 0.05);
}

TEST(MeasuredTwin, SharedNicsAndOtherNodesKeepTheClosedForm) {
  const std::vector<SweepPoint> points = PointsOf(KnownCurve(), 0, 1);
  const Twin with("aws-p4d", 4, 8, Measured({MadeRuns("all_reduce", 16, 2, points)}, "aws-p4d"));
  const Twin without("aws-p4d", 4, 8, nullptr);
  EXPECT_NEAR(with.Of(Collective::kAllReduce, 16, 8).Time(1e9) / KnownCurve().Time(1e9), 1, 0.03);
  EXPECT_EQ(with.Of(Collective::kAllReduce, 2, 1, 8).Time(1e9),
            without.Of(Collective::kAllReduce, 2, 1, 8).Time(1e9));
  EXPECT_EQ(with.Of(Collective::kAllReduce, 32, 8).Time(1e9),
            without.Of(Collective::kAllReduce, 32, 8).Time(1e9));
}

// A machine that takes 1.3 times as long as class constants say, on 2, 4 and 16 nodes.
std::shared_ptr<const MeasuredCollectives> SlowerThanItsClass(const char* algorithm) {
  std::vector<MeasuredRuns> runs;
  for (const int nodes : {2, 4, 16}) {
    const Twin twin("together-b200", nodes, 8, nullptr);
    for (const Collective collective : {Collective::kAllReduce, Collective::kSendRecv}) {
      const bool message = collective == Collective::kSendRecv;
      const PreparedCollective model =
          Prepare(collective, ViewNetwork(twin.cluster, twin.gpu, twin.fabric, {8 * nodes, 8, 1}),
                  message ? "" : algorithm);
      MeasuredRuns one = MadeRuns(Name(collective), 8 * nodes, nodes, PointsOf(KnownCurve(), 0, 1));
      for (SweepPoint& point : one.points) point.seconds = 1.3 * model.Time(point.bytes);
      if (!message) one.algorithm = algorithm;
      runs.push_back(one);
    }
  }
  return Measured(runs, "together-b200");
}

TEST(MeasuredTwin, OtherNumbersOfNodesByTheClosedForm) {
  const auto measured = SlowerThanItsClass("ring");
  for (const int nodes : {3, 8, 32}) {
    const Twin with("together-b200", nodes, 8, measured),
        without("together-b200", nodes, 8, nullptr);
    for (const double bytes : {1e4, 1e6, 1e8, 4e9}) {
      const auto ratio = [&](Collective collective, int ranks, int per_node, int sharing) {
        const auto time = [&](const Twin& twin) {
          return Prepare(
                     collective,
                     ViewNetwork(twin.cluster, twin.gpu, twin.fabric, {ranks, per_node, sharing}),
                     collective == Collective::kSendRecv ? "" : "ring")
              .Time(bytes);
        };
        return time(with) / time(without);
      };
      EXPECT_NEAR(ratio(Collective::kAllReduce, 8 * nodes, 8, 1), 1.3, 0.08)
          << nodes << " " << bytes;
      EXPECT_NEAR(ratio(Collective::kAllGather, 8 * nodes, 8, 1), 1.3, 0.08)
          << nodes << " " << bytes;
      // Groups side by side share their node's NICs.
      EXPECT_EQ(ratio(Collective::kAllReduce, nodes, 1, 8), 1.0);
    }
  }
  EXPECT_EQ(Prepare(Collective::kAllReduce, Twin("together-b200", 8, 8, measured).Whole(), "ring")
                .Choice(1e9),
            "ring (by nodes)");
}

TEST(MeasuredTwin, MessagesBetweenStagesFollowSendrecv) {
  const auto measured = SlowerThanItsClass("ring");
  const Twin with("together-b200", 8, 8, measured), without("together-b200", 8, 8, nullptr);
  for (const double bytes : {1e5, 1e7, 1e9}) {
    // Each of eight pipelines has a NIC of its own.
    EXPECT_NEAR(with.Of(Collective::kSendRecv, 4, 1, 8).Time(bytes) /
                    without.Of(Collective::kSendRecv, 4, 1, 8).Time(bytes),
                1.3, 0.08);
    // Within a node nothing was measured.
    EXPECT_EQ(with.Of(Collective::kSendRecv, 4, 4).Time(bytes),
              without.Of(Collective::kSendRecv, 4, 4).Time(bytes));
  }
  const BandwidthUse half{1, 0.5};
  EXPECT_NEAR(with.Of(Collective::kSendRecv, 4, 1, 8, half).Time(1e9) /
                  with.Of(Collective::kSendRecv, 4, 1, 8).Time(1e9),
              2, 0.05);
}

TEST(MeasuredTwin, AnAlgorithmThatNobodyNamesStaysOnItsNodes) {
  const auto unnamed = std::make_shared<MeasuredCollectives>(*SlowerThanItsClass("ring"));
  for (GroupCurve& group : unnamed->groups) group.algorithm.clear();
  std::erase_if(unnamed->groups, [](const GroupCurve& group) { return group.nodes > 2; });
  const Twin with("together-b200", 8, 8, unnamed), without("together-b200", 8, 8, nullptr);
  EXPECT_EQ(with.Of(Collective::kAllReduce, 64, 8).Time(1e9),
            without.Of(Collective::kAllReduce, 64, 8).Time(1e9));
}

TEST(MeasuredTwin, SimulationAloneTakesTheMeasuredTime) {
  const std::vector<SweepPoint> points = PointsOf(SlowNode().CurveOf(8, 1), 0, 1);
  for (const auto& [topology, ranks, nodes] :
       {std::tuple{"vtrain-a100", 8, 1}, std::tuple{"aws-p4d", 16, 2}}) {
    const Twin twin(topology, nodes, 8,
                    Measured({MadeRuns("all_reduce", ranks, nodes, points)}, topology));
    cli::BenchSimulation simulation(twin.built, twin.gpu, twin.fabric, net::Backend::kFluid);
    for (const SweepPoint& point : points) {
      const double time = simulation.Time(Collective::kAllReduce, Bytes(point.bytes)).time.value;
      EXPECT_NEAR(time / point.seconds, 1, 0.04) << topology << " " << point.bytes;
    }
  }
}

TEST(MeasuredTwin, AnotherChipIsRefused) {
  const MachineTopologies topologies({"vtrain-a100"});
  const auto machines =
      FitMachines({MadeRuns("all_reduce", 8, 1, PointsOf(KnownCurve(), 0, 1))}, topologies);
  const std::string path = testing::TempDir() + "/measured-collectives.yaml";
  std::ofstream(path) << SectionText(machines.front());
  const std::string gpu = LoadTopology("vtrain-a100").gpu;
  EXPECT_EQ(LoadMeasuredCollectives(path, gpu)->groups.size(), 1u);
  EXPECT_THROW(LoadMeasuredCollectives(path, "h100-sxm5-80gb"), InputError);
  EXPECT_THROW(LoadMeasuredCollectives("no-such-id", gpu), InputError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace orrery
