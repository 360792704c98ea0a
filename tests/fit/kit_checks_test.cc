// SPDX-License-Identifier: Apache-2.0
// Logs and kernels that the calibration kit does not take, each with its reason.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "calib/fit/job.h"
#include "calib/program/calibrate/fit_report.h"
#include "model/base/diagnostics.h"
#include "tests/fit/kit.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Its file does not name the GPU, but its products are faster than an H100 can be.
TEST_F(Kit, KernelsAboveThePeakAreOfAnotherGpu) {
  const std::string fast = Write("fast.csv",
                                 "source,op,shape,peak_tflops,efficiency,tflops\n"
                                 "b200.json,matmul,\"b=1, m=4096, k=8192, n=10240, layout=TN, "
                                 "accumulate=False, out_dtype=bf16\",2250.0,0.64516,1451.6\n");
  FitInputs inputs = LoadInputs({fast});
  try {
    CheckKernels("h100-sxm5-80gb", &inputs);
    ADD_FAILURE() << "taken for an H100";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("mismatched"), HasSubstr("line 2 takes 0.68")));
  }
  FitInputs own = LoadInputs({fast});
  CheckKernels("b200-sxm-180gb", &own);
  EXPECT_EQ(own.kernels.size(), 1U);
}

TEST_F(Kit, ACopyOfALogIsNoSecondRun) {
  const std::string log = WriteRun("one.log", {}, 1);
  const std::string copy = Write("copy.log", ReadSource(log)->text);
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{log, log}, std::vector<std::string>{log, copy}}) {
    const FitInputs inputs = LoadInputs(files, place_);
    EXPECT_EQ(inputs.rows.size(), 1U);
    EXPECT_EQ(inputs.runs.size(), 1U);
    EXPECT_THAT(RenderChecks({inputs.checks[1]}),
                AllOf(HasSubstr("not used"), HasSubstr("the same run as"), HasSubstr("one.log")));
  }
}

TEST_F(Kit, ALogOfItsFirstStepOrOfNoneTeachesNothing) {
  const std::string step =
      "0: iteration        1/     100 | consumed samples: 64 | elapsed time per iteration (ms): "
      "9000.0 | global batch size:    64 | lm loss: 1.0E+01 |\n";
  EXPECT_THAT(Why(DumpText({}) + step),
              AllOf(HasSubstr("not used"), HasSubstr("its only step is the first")));
  EXPECT_THAT(Why("NCCL version 2.18.3+cuda12.2\n" + DumpText({})),
              AllOf(HasSubstr("not used"), HasSubstr("no line behind them is a measurement")));
}

TEST_F(Kit, ALogThatContradictsItselfIsAMismatch) {
  EXPECT_THAT(
      Why(DumpText({.more = "0:   world_size .......... 16\n"}) + Steps(1)),
      AllOf(HasSubstr("mismatched"), HasSubstr("world_size 16"), HasSubstr("make 8 ranks")));
  EXPECT_THAT(Why(DumpText({.global = "128"}) + Steps(1)),
              AllOf(HasSubstr("mismatched"), HasSubstr("its global batch is 64")));
}

// The Trainer prints samples and steps per second.
TEST_F(Kit, RatesOfTheTrainerSayItsBatch) {
  const std::string log = Write("hf.log",
                                " 10%|#         | 50/500 [04:10<37:30,  5.00s/it]\n"
                                " 20%|##        | 100/500 [08:20<33:20,  5.00s/it]\n"
                                "{'train_runtime': 2500.0, 'train_samples_per_second': 25.6, "
                                "'train_steps_per_second': 0.2, 'train_loss': 2.1}\n");
  const auto said = [&](int batch) {
    Write("hf.log.yaml",
          fmt::format("runs:\n  - name: one\n    job: {{model: gpt2-small, topology: "
                      "dgx-h100, nodes: 1, global_batch: {}, framework: fsdp}}\n"
                      "    layout: {{zero: 3, micro_batch: 4}}\n",
                      batch));
    return RenderChecks({LoadInputs({log, WriteRun("good.log", {}, 1)}, place_).checks[0]});
  };
  EXPECT_THAT(said(128), AllOf(HasSubstr("used"), Not(HasSubstr("mismatched"))));
  EXPECT_THAT(said(256), AllOf(HasSubstr("mismatched"), HasSubstr("its global batch is 128")));
}

TEST_F(Kit, RunsOfSeveralSitesAreNamed) {
  FitInputs inputs = LoadInputs({WriteRun("one.log", {}, 1)}, place_);
  EXPECT_EQ(SitesOf(inputs), std::set<std::string>{"megatron@dgx-h100"});
  inputs.runs.push_back(inputs.runs[0]);
  inputs.runs[1].row.topology = "dgx-a100-80";
  EXPECT_EQ(SitesOf(inputs), (std::set<std::string>{"megatron@dgx-a100-80", "megatron@dgx-h100"}));
}

// The same arguments that model/exchange reads.
TEST_F(Kit, ArgumentsSayWhetherAttentionIsFused) {
  const auto fused = [&](std::string dump, const std::string& engine) {
    constexpr std::string_view kEngine = "transformer_engine\n";
    const std::size_t at = dump.find(kEngine);
    dump.replace(at, kEngine.size(), engine + "\n");
    return LoadInputs({Write("a.log", dump + Steps(1))}, place_).rows[0].strategy.flash_attention;
  };
  const auto with = [](const std::string& said) {
    return DumpText({.more = "0:   " + said + "\n"});
  };
  EXPECT_TRUE(fused(with("attention_backend ..... AttnBackend.auto"), "transformer_engine"));
  EXPECT_FALSE(fused(with("attention_backend ..... AttnBackend.unfused"), "transformer_engine"));
  EXPECT_FALSE(fused(with("use_flash_attn ..... False"), "local"));
  EXPECT_TRUE(fused(with("use_flash_attn ..... True"), "local"));
}

// tp over two nodes in 0.1 s: no factor of kernels makes that of a step that waits for messages.
TEST_F(Kit, ARunThatNoFactorExplainsIsSaid) {
  const FitInputs inputs = LoadInputs({WriteRun("far.log", {}, 0.05)}, place_);
  ProfileStore store;
  FitFlags flags;
  flags.frameworks = {"megatron@dgx-h100"};
  const FitJob job = JobOf(flags, &store);
  const CaseSource cases(inputs.rows, job.filter, &store);
  const Evidence evidence({&cases}, store);
  FitOptions options;
  options.TrustFewRows(inputs.rows.size());
  const FitResult result = Fitter(evidence, MakeParameters(job.requests, &store), options).Fit();
  EXPECT_THAT(RenderUnexplained(evidence, result),
              AllOf(HasSubstr("far.log"), HasSubstr("does not explain this run")));
}

}  // namespace
}  // namespace orrery
