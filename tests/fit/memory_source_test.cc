// SPDX-License-Identifier: Apache-2.0
// Fits of memory constants on figures that the model itself made.
#include "calib/fit/memory_source.h"

#include <gtest/gtest.h>

#include "calib/fit/fit.h"
#include "calib/validate/validate.h"

namespace orrery {
namespace {

constexpr double kGib = 1073741824.0;
constexpr const char* kFragmentation =
    "framework/megatron-deepspeed@vtrain-a100:memory_fragmentation";
constexpr const char* kBuffers = "framework/megatron-deepspeed@vtrain-a100:memory_buffers";

// The sample runs with memory as these constants make it.
std::vector<CaseRow> RowsWithMemory(double fragmentation, double buffers, MemoryKind kind) {
  std::vector<CaseRow> rows =
      LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/fit/samples/runs.csv");
  MemoryPredictor predictor;
  const GpuProfile gpu = LoadGpuProfile("a100-sxm4-80gb");
  FrameworkProfile framework = LoadFrameworkProfile("megatron-deepspeed@vtrain-a100");
  framework.memory_fragmentation = fragmentation;
  framework.memory_buffers = Bytes(buffers);
  for (CaseRow& row : rows) {
    Strategy as_read = row.strategy;
    FollowFramework(framework, &row.strategy);
    const auto memory = predictor.Predict(row, gpu, framework);
    row.strategy = as_read;
    EXPECT_TRUE(memory.has_value()) << row.name;
    row.measured_mem_gib =
        kind == MemoryKind::kAllocator ? memory->allocator_gib : memory->device_gib;
    row.memory_kind = kind;
  }
  return rows;
}

TEST(MemorySource, AFitRecoversPlantedConstants) {
  ProfileStore store;
  const MemorySource source(RowsWithMemory(0.3, 5e9, MemoryKind::kDevice), {}, {}, &store);
  ASSERT_GT(source.observations().size(), 10U);
  auto parameters = MakeParameters({{{ParseConstantName(kFragmentation)}, std::nullopt, 1.0},
                                    {{ParseConstantName(kBuffers)}, std::nullopt, 2.0}},
                                   &store);
  const Evidence evidence({&source}, store);
  const FitResult result = Fitter(evidence, std::move(parameters), FitOptions{}).Fit();
  EXPECT_NEAR(result.constants[0].after, 0.3, 0.015);
  EXPECT_NEAR(result.constants[1].after, 5e9, 0.25e9);
  for (const double error : result.error) EXPECT_NEAR(error, 0, 0.01);
}

TEST(MemorySource, AllocatorFiguresDoNotHangOnTheDevicesTerms) {
  ProfileStore store;
  const MemorySource source(RowsWithMemory(0.3, 5e9, MemoryKind::kAllocator), {}, {}, &store);
  std::vector<double> values;
  source.Predict(store, {0, 1}, &values);
  EXPECT_NEAR(values[0], source.observations()[0].measured, 1.0);
  EXPECT_NEAR(values[1], source.observations()[1].measured, 1.0);
  EXPECT_FALSE(source.observations()[0].step_time);
}

TEST(MemorySource, FiguresThatNobodySignedAreLeftOutUnlessTheJobSaysWho) {
  std::vector<CaseRow> rows = RowsWithMemory(0.1, 1e9, MemoryKind::kDevice);
  for (CaseRow& row : rows) row.memory_kind = MemoryKind::kNotSaid;
  ProfileStore store;
  const MemorySource unsaid(rows, {}, {}, &store);
  EXPECT_TRUE(unsaid.observations().empty());
  ASSERT_EQ(unsaid.left_out().size(), 1U);
  EXPECT_NE(unsaid.left_out().begin()->first.find("who printed it"), std::string::npos);
  const MemorySource said(rows, {{rows.front().source, MemoryKind::kDevice}}, {}, &store);
  EXPECT_EQ(said.observations().size(), rows.size());
  const MemorySource other(rows, {}, {{"elsewhere"}, {}, {}, {}}, &store);
  EXPECT_TRUE(other.observations().empty());
}

TEST(MemorySource, OnlyJobsThatFreeAConstantOfMemoryNeedIt) {
  const auto request = [](const char* name) {
    return ParameterRequest{{ParseConstantName(name)}, {}, {}};
  };
  const Needs memory = NeedsOf({request(kBuffers), request("gpu/family-ampere:memory_context")});
  EXPECT_TRUE(memory.memory);
  EXPECT_FALSE(memory.time);
  const Needs time = NeedsOf({request("gpu/family-ampere:memory_efficiency")});
  EXPECT_FALSE(time.memory);
  EXPECT_TRUE(time.time);
}

}  // namespace
}  // namespace orrery
