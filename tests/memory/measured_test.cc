// SPDX-License-Identifier: Apache-2.0
// Predicted memory against what runs printed: BERT-1.5B on 8 Gaudi cards, a Megatron GPT on four V100.
#include <gtest/gtest.h>

#include "model/arch/catalogue.h"
#include "model/framework/presets.h"
#include "model/memory/memory.h"
#include "model/memory/software_memory.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

struct MeasuredRun {
  const char* model;
  const char* gpu;
  const char* framework;
  const char* topology;
  Workload work;
  Strategy strategy;
};

MemoryReport Predict(const MeasuredRun& run) {
  const LoadedModel model = LoadModel(run.model);
  const Strategy strategy = FindFramework(run.framework).Complete(run.strategy, run.work.precision);
  const LowerResult lowered = Lower(model.spec, run.work, strategy);
  const FrameworkProfile framework =
      SelectFrameworkProfile(run.framework, run.topology, strategy.flash_attention);
  return ReportMemory(std::get<ir::Plan>(lowered), LimitsOf(LoadGpuProfile(run.gpu), framework),
                      Communicators(strategy));
}

MeasuredRun MegatronOnV100(int micro_batch) {
  MeasuredRun run{"megatron-s9", "v100-sxm2-16gb", "megatron", "dli-slurm-v100", {}, {}};
  run.work.seq_len = 1024;
  run.work.global_batch = int64_t{4} * micro_batch;
  run.work.precision = Precision::kFp32;
  run.strategy.dp = 4;
  run.strategy.micro_batch = micro_batch;
  run.strategy.flash_attention = false;
  return run;
}

// The DL1 tutorial prints a maximum of 16.35 GB for BERT-1.5B, ZeRO 1, bf16, micro-batch 8, sequence length 128.
TEST(MeasuredMemory, BertOnGaudiIsWithinTenPercent) {
  MeasuredRun run{"bert-1.5b", "gaudi-hl205", "deepspeed", "aws-dl1", {}, {}};
  run.work.seq_len = 128;
  run.work.masked_positions = 20;
  run.work.global_batch = 12288;
  run.work.precision = Precision::kBf16;
  run.work.optimizer = Optimizer::kLamb;
  run.strategy.dp = 8;
  run.strategy.zero = 1;
  run.strategy.micro_batch = 8;
  const MemoryReport report = Predict(run);
  EXPECT_NEAR(report.total.value, 16.35e9, 1.635e9);
  EXPECT_TRUE(report.fits);
}

// The Megatron course shows a peak of about 10 GB in the memory view at micro-batch 2.
TEST(MeasuredMemory, MegatronOnV100IsWithinFifteenPercent) {
  const MemoryReport report = Predict(MegatronOnV100(2));
  EXPECT_NEAR(report.total.value, 10e9, 1.5e9);
  EXPECT_TRUE(report.fits);
}

// ... and CUDA out of memory at micro-batch 32.
TEST(MeasuredMemory, SixteenTimesTheMicroBatchDoesNotFit) {
  const MemoryReport report = Predict(MegatronOnV100(32));
  EXPECT_FALSE(report.fits);
  EXPECT_NE(report.verdict.find("out of memory on stage 0"), std::string::npos) << report.verdict;
  EXPECT_NE(report.verdict.find("asks"), std::string::npos) << report.verdict;
  EXPECT_NE(report.verdict.find("attn"), std::string::npos) << report.verdict;
}

}  // namespace
}  // namespace orrery
