// SPDX-License-Identifier: Apache-2.0
// The files of a measured machine: what was measured is what predictions take.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "runtime/machine/machine_files.h"
#include "runtime/machine/sweep_models.h"

namespace orrery::machine {
namespace {

Measured Sample() {
  Measured m;
  m.cores = 3;
  m.memory_bytes = 24e9;
  m.kernels.peak = 111e9;
  m.kernels.kernels = {{{"gelu", {65536, 1, 1, 1}}, 20e-6},
                       {{"gelu", {131072, 1, 1, 1}}, 44e-6},
                       {{"mm", {128, 1, 64, 1}}, 7e-6},
                       {{"mm", {128, 256, 64, 1}}, 50e-6}};
  m.kernels.left_out = {{"gpt", 0.051, 0.050}};
  m.collectives = {{"all_reduce", 2, 1024, 5e-6, 0.1},
                   {"all_reduce", 4, 1024, 20e-6, 0.1},
                   {"all_gather", 2, 1024, 3e-6, 0.1}};
  return m;
}

TEST(MachineFiles, SayWhatWasMeasured) {
  const std::string folder = testing::TempDir() + "/machine";
  WriteMachine(Sample(), folder);
  const TopologySpec spec = LoadTopology(folder + "/" + kTopologyFile);
  EXPECT_EQ(spec.cores, 3);
  EXPECT_EQ(spec.node.gpus, 12);
  const GpuProfile cpu = LoadGpuProfile(spec.gpu);
  EXPECT_NEAR(cpu.peak_fp32.value, 111e9, 1e6);
  const KernelTable& fp32 = cpu.kernels[static_cast<std::size_t>(Precision::kFp32)];
  EXPECT_NEAR(*fp32.Seconds("gelu", {131072, 1, 1, 1}), 44e-6, 1e-9);
  EXPECT_NEAR(*fp32.Seconds("mm", {128, 1, 64, 1}), 7e-6, 1e-9);
  EXPECT_NEAR(*fp32.Seconds("mm", {128, 256, 64, 1}), 50e-6, 1e-9);
  EXPECT_TRUE(cpu.kernels[static_cast<std::size_t>(Precision::kBf16)].empty());
  EXPECT_EQ(LoadFrameworkProfile(spec.framework_profiles.at("orrery")).header.id, "orrery-cpu");
}

TEST(MachineFiles, CollectivesAreThoseThatWereMeasured) {
  const std::string folder = testing::TempDir() + "/machine2";
  WriteMachine(Sample(), folder);
  const TopologySpec spec = LoadTopology(folder + "/" + kTopologyFile);
  const GpuProfile cpu = LoadGpuProfile(spec.gpu);
  const FabricProfile fabric = LoadFabricProfile(spec.fabric_profile);
  const auto time = [&](Collective collective, int ranks) {
    const ClusterSummary cluster = Summarise(spec, 1, ranks);
    const GroupShape shape = ShapeOfAxis(ranks, 1, ranks);
    return Prepare(collective, ViewNetwork(cluster, cpu, fabric, shape)).Time(1024.0);
  };
  EXPECT_NEAR(time(Collective::kAllReduce, 2), 5e-6, 1e-10);
  EXPECT_NEAR(time(Collective::kAllReduce, 4), 20e-6, 1e-10);
  EXPECT_NEAR(time(Collective::kAllReduce, 3), 5e-6 * std::pow(4, std::log2(1.5)), 1e-10);
  EXPECT_NEAR(time(Collective::kAllReduce, 8), 20e-6, 1e-10);
  EXPECT_GT(time(Collective::kBroadcast, 2), 0);  // by the formulas
}

TEST(SweepModels, AreLoweredAndLeaveTheJudgesOut) {
  std::set<std::string> names;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    std::vector<SweepModel> models = SweepModels(precision);
    const std::vector<SweepModel> left_out = LeftOutModels(precision);
    for (const SweepModel& judge : left_out) {
      for (const SweepModel& model : models) EXPECT_NE(model.spec.hidden, judge.spec.hidden);
    }
    models.insert(models.end(), left_out.begin(), left_out.end());
    for (const SweepModel& model : models) {
      Strategy strategy;
      strategy.dp = 2;
      strategy.micro_batch = static_cast<int>(model.work.global_batch);
      strategy.flash_attention = model.flash;
      Workload work = model.work;
      work.global_batch *= 2;
      const LowerResult lowered = Lower(model.spec, work, strategy, {});
      EXPECT_FALSE(std::holds_alternative<Refusal>(lowered)) << model.name;
    }
  }
}

}  // namespace
}  // namespace orrery::machine
