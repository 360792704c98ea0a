// SPDX-License-Identifier: Apache-2.0
// How wrong predictions of unseen sizes, collectives and ranks are on published sweeps.
#include <gtest/gtest.h>

#include <filesystem>

#include "calib/sweeps/fabric_fit.h"
#include "calib/sweeps/machine.h"
#include "calib/sweeps/sibling.h"
#include "calib/sweeps/sweep_holdout.h"
#include "tests/sweeps/made.h"

namespace orrery {
namespace {

struct Bars {
  double below, to, above;  // relative; 1: not asked
};

std::string SharedSweeps() {
  return (std::filesystem::path(ORRERY_SOURCE_DIR) / ".." / "shared" / "truth" /
          "collectives_dev.csv")
      .string();
}

const std::vector<std::string> kTopologies = {"A100 single node, NVLink=vtrain-a100",
                                              "V100 single node, NVLink=dgx1-v100",
                                              "A100-SXM4-40GB (Azure=dgx-a100-40",
                                              "H100-80GB HBM3 (DGX=dgx-h100",
                                              "p4d.24xlarge=aws-p4d",
                                              "p4de.24xlarge=aws-p4de",
                                              "p5.48xlarge=aws-p5",
                                              "H100-80GB HBM3 per node=dgx-h100",
                                              "B200 per node=together-b200",
                                              "GH200=olivia-gh200",
                                              "p3dn=aws-p3dn"};

// The p4d run set NCCL_ALGO=RING: aws-efa-eks@190e0613, examples/simple/nccl-efa-tests.yaml.
std::vector<HeldOutSweep> PublishedErrors(SweepHoldout holdout) {
  std::vector<MeasuredRuns> sweeps = ReadSweeps({SharedSweeps()}).sweeps;
  NameAlgorithm("p4d.24xlarge=ring", &sweeps);
  return HoldOut(holdout, sweeps, MachineTopologies(kTopologies));
}

void ExpectWithin(SweepHoldout holdout, const Bars& bars) {
  if (!std::filesystem::exists(SharedSweeps())) GTEST_SKIP() << SharedSweeps() << " is not here";
  const std::vector<HeldOutSweep> sweeps = PublishedErrors(holdout);
  BandErrors errors;
  for (const HeldOutSweep& sweep : sweeps)
    for (const HeldOutPoint& point : sweep.points) errors.Add(point);
  const double limits[] = {bars.below, bars.to, bars.above};
  for (int band = 0; band < 3; ++band) {
    if (limits[band] >= 1) continue;
    ASSERT_GT(errors.bands[band].points, 0);
    EXPECT_LE(*errors.bands[band].mean(), limits[band]) << NameOf(holdout) << " band " << band;
  }
}

// To 16 MiB: 5.02 % measured (4.98 before collectives over InfiniBand started later); three sweeps of 512 ranks scatter by 5 to 34 % (4.2 without them).
TEST(PublishedSweeps, LeftOutPoints) { ExpectWithin(SweepHoldout::kPoint, {0.03, 0.051, 0.03}); }

// Five sweeps of one node: steps of one are those of the others.
TEST(Siblings, GiveASweepItsSteps) {
  NodeRingForm node;
  node.offset = 20e-6, node.per_step = 3e-6, node.bandwidth = 230e9, node.copy = 560e9;
  std::vector<MeasuredRuns> runs;
  for (const int ranks : {2, 4, 5, 6, 8}) {
    std::vector<SweepPoint> points =
        PointsOf(node.CurveOf(ranks, 1), 0.003, static_cast<unsigned>(ranks));
    // The library changes its protocol at 4 MiB, late: what lies before takes up to 1.5 times as long.
    for (SweepPoint& point : points)
      if (point.bytes >= 1 << 20 && point.bytes < 1 << 22) point.seconds *= 1.5;
    std::erase_if(points, [](const SweepPoint& point) { return point.bytes < 1 << 20; });
    runs.push_back(MadeRuns("all_reduce", ranks, 1, std::move(points)));
  }
  const MachineTopologies topology({"vtrain-a100"});
  const MeasuredRuns& sweep = runs[2];
  const auto base = CurveOfSiblings(sweep, runs, topology);
  ASSERT_TRUE(base.has_value());
  const auto with = LeavePointsOutOnBase(sweep.points, *base);
  const auto without = LeavePointsOut(sweep.points, PriorOf(sweep, topology.Find("")), {});
  EXPECT_TRUE(IsBetter(without, with));
  // On both sides of the step.
  EXPECT_LT(std::max(std::abs(with[1]), std::abs(with[2])), 0.05);
  EXPECT_GT(std::max(std::abs(without[1]), std::abs(without[2])), 0.1);
  EXPECT_FALSE(IsBetter(with, without));
  EXPECT_FALSE(CurveOfSiblings(MadeRuns("all_gather", 5, 1, sweep.points), runs, topology));
  for (const SweepPoint& point : sweep.points)
    EXPECT_NEAR(FitOnBase(sweep.points, *base).curve.Time(point.bytes) / point.seconds, 1, 0.02);
}
TEST(PublishedSweeps, OtherCollectives) {
  ExpectWithin(SweepHoldout::kCollective, {0.05, 0.15, 0.05});
}
TEST(PublishedSweeps, OtherRanks) { ExpectWithin(SweepHoldout::kRanks, {1, 0.08, 0.04}); }
TEST(PublishedSweeps, FourPoints) { ExpectWithin(SweepHoldout::kFourPoints, {0.14, 0.13, 0.22}); }

// By class constants alone, a guess: what is known of NCCL and of the wires, no point of the table.
TEST(PublishedSweeps, NothingMeasured) {
  if (!std::filesystem::exists(SharedSweeps())) GTEST_SKIP() << SharedSweeps() << " is not here";
  const std::pair<const char*, Bars> classes[] = {
      {"p4d_a100", {0.18, 0.20, 0.12}},      // two nodes, a ring
      {"p4de_a100", {0.10, 0.15, 0.10}},     // two nodes, as the library chose: a tree
      {"v100_1node_5gpu", {1, 0.25, 0.25}},  // no ring of links: through a third GPU
      {"vtrain_a100", {1, 0.10, 0.05}},
  };
  const std::vector<HeldOutSweep> sweeps = PublishedErrors(SweepHoldout::kNone);
  for (const auto& [name, bars] : classes) {
    BandErrors errors;
    for (const HeldOutSweep& sweep : sweeps) {
      if (sweep.name.find(name) == std::string::npos) continue;
      for (const HeldOutPoint& point : sweep.points) errors.Add(point);
    }
    const double limits[] = {bars.below, bars.to, bars.above};
    for (int band = 0; band < 3; ++band) {
      if (limits[band] >= 1) continue;
      ASSERT_GT(errors.bands[band].points, 0) << name;
      EXPECT_LE(*errors.bands[band].mean(), limits[band]) << name << " band " << band;
    }
  }
}

// Large messages on 2 to 67 nodes of one B200 cluster: 3.2 % measured, 4.0 % by class constants; its
// send/recv 4.6 % in all.
TEST(PublishedSweeps, OtherNumbersOfNodes) {
  const std::string root = ORRERY_SOURCE_DIR;
  const std::vector<MeasuredRuns> runs =
      ReadSweeps({root + "/calib/data/together-b200.csv"}).sweeps;
  const MachineTopologies topology({"together-b200"});
  BandErrors carried, guessed, messages;
  for (const HeldOutSweep& sweep : HoldOut(SweepHoldout::kNodes, runs, topology)) {
    for (const HeldOutPoint& point : sweep.points)
      (sweep.name.starts_with("sendrecv") ? messages : carried).Add(point);
  }
  for (const HeldOutSweep& sweep : HoldOut(SweepHoldout::kNone, runs, topology)) {
    if (sweep.nodes == 1 || sweep.name.starts_with("sendrecv")) continue;
    for (const HeldOutPoint& point : sweep.points) guessed.Add(point);
  }
  ASSERT_GT(carried.bands[2].points, 100);
  EXPECT_LE(*carried.bands[2].mean(), 0.04);
  EXPECT_LT(*carried.bands[2].mean(), 0.9 * *guessed.bands[2].mean());
  EXPECT_LE(*messages.bands[0].mean(), 0.08);
  EXPECT_LE(*messages.bands[1].mean(), 0.09);
  EXPECT_LE(*messages.bands[2].mean(), 0.14);
}

MeasuredRuns TcpSweep() {
  return ReadSweeps({std::string(ORRERY_SOURCE_DIR) + "/calib/data/aws-g5-tcp.csv"}).sweeps.front();
}

double MeanOf(const std::vector<double>& logs) {
  double sum = 0;
  for (double log : logs) sum += std::abs(std::exp(log) - 1);
  return sum / static_cast<double>(logs.size());
}

TEST(TcpNodes, EachSizeLeftOutIsWithinSixPercent) {
  const MeasuredRuns sweep = TcpSweep();
  ASSERT_EQ(sweep.points.size(), 25u);
  EXPECT_LT(MeanOf(LeavePointsOut(sweep.points, GenericPrior(2), {})), 0.06);
}

TEST(TcpNodes, ClassConstantsFittedThroughTheClosedFormAreWithinSixPercent) {
  ProfileStore store;
  const CollectiveSource source({TcpSweep()}, MachineTopologies({"aws-g5-1gpu"}), "tcp-aws-g5",
                                &store);
  std::vector<FitParameter> parameters =
      MakeParameters(FabricRequests("tcp-aws-g5", store), &store);
  const Evidence evidence({&source}, store);
  const FabricFit fit = FitFabric(evidence, source, std::move(parameters));
  ASSERT_EQ(fit.left_out.size(), 25u);
  EXPECT_LT(MeanOf(fit.left_out), 0.06);
  for (const FittedConstant& constant : fit.result.constants) {
    const std::string& key = constant.parameter.names.front().key;
    if (key == "socket_stream") {  // two of them carry 0.255 of the 25 Gbit/s
      EXPECT_NEAR(constant.after, 0.255 * 25e9 / 8 / 2, 0.015 * 25e9 / 8 / 2);
    }
    if (key == "large_ring_loss" || key == "nic_ring_efficiency") {
      EXPECT_EQ(constant.status, FitStatus::kKept);
    }
  }
  EXPECT_THROW(CollectiveSource({TcpSweep()}, MachineTopologies({"aws-p4d"}), "tcp-aws-g5", &store),
               InputError);
}

TEST(HoldOut, QuestionsThatDoNotApplyHaveNoRows) {
  const std::vector<MeasuredRuns> one = {
      MadeRuns("all_reduce", 8, 1, PointsOf(KnownCurve(), 0, 1))};
  const MachineTopologies nowhere({});
  EXPECT_TRUE(HoldOut(SweepHoldout::kRanks, one, nowhere).empty());
  EXPECT_TRUE(HoldOut(SweepHoldout::kCollective, one, nowhere).empty());
  EXPECT_TRUE(HoldOut(SweepHoldout::kNone, one, nowhere).empty());
  EXPECT_EQ(HoldOut(SweepHoldout::kPoint, one, nowhere).front().points.size(), 31u);
  EXPECT_EQ(HoldOut(SweepHoldout::kFourPoints, one, nowhere).front().points.size(), 27u);
  EXPECT_THROW(ParseSweepHoldout("points"), InputError);
}

}  // namespace
}  // namespace orrery
