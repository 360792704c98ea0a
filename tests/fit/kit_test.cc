// SPDX-License-Identifier: Apache-2.0
// The calibration kit: logs that describe themselves, checks, a site's factor, updates and drift.
#include "tests/fit/kit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "calib/fit/calibration_record.h"
#include "calib/fit/fit.h"
#include "calib/fit/job.h"
#include "calib/fit/rewrite.h"
#include "calib/program/calibrate/fit_report.h"
#include "calib/program/calibrate/inputs.h"
#include "calib/program/calibrate/update_command.h"
#include "calib/validate/validate.h"
#include "model/base/diagnostics.h"
#include "model/framework/profile.h"
#include "model/twin/nearest.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(Kit, ALogDescribesItsRunByItsArguments) {
  const std::string log = Write("train.log", DumpText({}) + Steps(0.5));
  const FitInputs inputs = LoadInputs({log}, place_);
  ASSERT_EQ(inputs.rows.size(), 1U);
  const CaseRow& row = inputs.rows[0];
  EXPECT_EQ(row.model.layers, 24);
  EXPECT_EQ(row.model.vocab, 50304);
  EXPECT_EQ(row.strategy.tp, 2);
  EXPECT_EQ(row.strategy.dp, 4);
  EXPECT_EQ(row.strategy.zero, 1);
  EXPECT_EQ(row.strategy.micro_batch, 4);
  EXPECT_EQ(row.work.precision, Precision::kBf16);
  EXPECT_TRUE(row.strategy.flash_attention);
  EXPECT_EQ(row.nodes, 1);
  EXPECT_NEAR(row.measured_step_s, 0.5, 1e-9);
  EXPECT_THAT(RenderChecks(inputs.checks), HasSubstr("used"));
}

TEST_F(Kit, ALogOfAnotherGpuOrLayoutIsRefused) {
  const std::string good = DumpText({}) + Steps(0.5);
  for (const char* said : {"0: NVIDIA A100-SXM4-80GB\n", "0: device: A100-SXM4-40GB\n",
                           "| device | NVIDIA B200 |\n", "| 0  Tesla V100-SXM2-16GB  On |\n",
                           "NVIDIA H100 PCIe\n", "| N/A 30C P0 | 40MiB / 16160MiB |\n",
                           "CUDA out of memory (GPU 0; 39.59 GiB total capacity; 1 GiB free)\n",
                           "Peak FLOPS used for computing MFU: 3.120e+14\n"})
    EXPECT_THAT(Why(said + good), HasSubstr("mismatched")) << said;
  EXPECT_THAT(Why("0: NVIDIA A100-SXM4-80GB\n" + good),
              AllOf(HasSubstr("A100-SXM4-80GB"), HasSubstr("h100-sxm5-80gb")));
  std::string fast = good;
  fast.replace(fast.rfind("| lm loss"), 1, "| throughput per GPU (TFLOP/s/GPU): 1400.0 |");
  EXPECT_THAT(Why(fast), AllOf(HasSubstr("mismatched"), HasSubstr("above the peak")));
  for (const char* said :
       {"NVIDIA H100 80GB HBM3\n", "NVIDIA-SMI 550.54.15 Driver Version: 550.54.15\n",
        "| 0 | 1MiB / 81559MiB |\n", "== NVIDIA Release 24.07 ==\n"})
    EXPECT_THAT(Why(said + good), Not(HasSubstr("mismatched"))) << said;
}

TEST_F(Kit, EveryFileIsCheckedByItself) {
  const std::string used = WriteRun("used.log", {}, 1);
  const std::string plain = Write("plain.log", Steps(1));
  const std::string experts =
      Write("experts.log", DumpText({.more = "0:   num_experts ............... 8\n"}) + Steps(1));
  const std::string silent = Write("silent.log", DumpText({}));
  const FitInputs inputs = LoadInputs({used, plain, experts, silent}, place_);
  ASSERT_EQ(inputs.checks.size(), 4U);
  const auto text = [&](int i) { return RenderChecks({inputs.checks[i]}); };
  EXPECT_THAT(text(0), Not(HasSubstr("not used")));
  EXPECT_THAT(text(1), AllOf(HasSubstr("not used"), HasSubstr("plain.log.yaml")));
  EXPECT_THAT(text(2), AllOf(HasSubstr("not used"), HasSubstr("mixtures of experts")));
  EXPECT_THAT(text(3), AllOf(HasSubstr("not used"), HasSubstr("a measurement")));
  EXPECT_THROW((void)LoadInputs({plain, experts}, place_), InputError);
  // Degrees that do not make its ranks.
  EXPECT_THAT(Why(DumpText({.world = "7"}) + Steps(1)),
              AllOf(HasSubstr("mismatched"), HasSubstr("7 ranks"), HasSubstr("make 8")));
  EXPECT_THAT(Why(DumpText({.world = "16"}) + Steps(1)),
              AllOf(HasSubstr("mismatched"), HasSubstr("16 ranks"), HasSubstr("make 8")));
  EXPECT_THROW((void)LoadInputs({used}, {}), InputError);  // where did it run?
  EXPECT_EQ(FilesOf({used, plain, experts, silent}, inputs.checks), std::vector<std::string>{used});
}

TEST_F(Kit, ASheetThatContradictsTheArgumentsIsAMismatch) {
  const std::string log = Write("sheet.log", DumpText({}) + Steps(0.5));
  const auto sheet = [&](const std::string& layout) {
    Write("sheet.log.yaml",
          "runs:\n  - name: one\n    job: {model: gpt2-small, topology: dgx-h100, nodes: 1, "
          "global_batch: 64, framework: megatron}\n    layout: {" +
              layout + "}\n");
    const FitInputs inputs = LoadInputs({log, WriteRun("good.log", {}, 1)}, place_);
    return RenderChecks({inputs.checks[0]});
  };
  EXPECT_THAT(sheet("tp: 2, micro_batch: 4"),
              AllOf(HasSubstr("mismatched"), HasSubstr("num_layers 24")));
}

// DeepSpeed's dump of its configuration and rates: the batch makes the time.
TEST_F(Kit, ASheetThatContradictsDeepSpeedsConfigurationIsAMismatch) {
  const std::string log = Write(
      "ds.log",
      "[INFO] [config.py:996:print]   train_batch_size ............. 64\n"
      "[INFO] [config.py:996:print]   train_micro_batch_size_per_gpu  2\n"
      "[INFO] [config.py:996:print]   bfloat16_enabled ............. True\n"
      "[INFO] [config.py:996:print]   zero_optimization_stage ...... 3\n"
      "[timer.py:258:stop] 0/10, SamplesPerSec=88.0, MemAllocated=1GB, MaxMemAllocated=2GB\n"
      "[timer.py:258:stop] 0/20, SamplesPerSec=88.0, MemAllocated=1GB, MaxMemAllocated=2GB\n");
  const auto said = [&](const std::string& batch, const std::string& micro, const std::string& zero,
                        const std::string& precision) {
    Write("ds.log.yaml",
          fmt::format(
              "runs:\n  - name: one\n    job: {{model: gpt2-xl, topology: dgx-h100, nodes: 1, "
              "global_batch: {}, precision: {}, framework: deepspeed}}\n    layout: {{zero: {}, "
              "micro_batch: {}}}\n",
              batch, precision, zero, micro));
    return RenderChecks({LoadInputs({log, WriteRun("good.log", {}, 1)}, place_).checks[0]});
  };
  EXPECT_THAT(said("64", "2", "3", "bf16"), AllOf(HasSubstr("used"), Not(HasSubstr("mismatched"))));
  EXPECT_THAT(said("128", "2", "3", "bf16"), AllOf(HasSubstr("mismatched"), HasSubstr("line 1: "),
                                                   HasSubstr("64"), HasSubstr("128")));
  EXPECT_THAT(said("64", "4", "3", "bf16"),
              HasSubstr("line 2: its arguments say train_micro_batch_size_per_gpu 2, the run's "
                        "description 4"));
  EXPECT_THAT(
      said("64", "2", "3", "fp16"),
      HasSubstr("line 3: its arguments say bfloat16_enabled True, the run's description fp16"));
  for (const auto& [line, words] :
       {std::pair{"  world_size .......... 16", "world_size 16, the run's description 8 ranks"},
        {"  gradient_accumulation_steps .......... 2",
         "gradient_accumulation_steps 2, the run's description 4 micro-batches"}}) {
    const std::string before = ReadSource(log)->text;
    Write("ds.log", "[INFO] [config.py:996:print] " + std::string(line) + "\n" + before);
    EXPECT_THAT(said("64", "2", "3", "bf16"), AllOf(HasSubstr("mismatched"), HasSubstr(words)));
    Write("ds.log", before);
  }
  EXPECT_THAT(
      said("64", "2", "2", "bf16"),
      HasSubstr("line 4: its arguments say zero_optimization_stage 3, the run's description "
                "zero 2"));
}

TEST_F(Kit, ASheetThatContradictsMegatronsArgumentsIsAMismatch) {
  Write("own.yaml",
        "name: own\nfamily: decoder\nlayers: 24\nhidden: 2048\nheads: 16\nffn: 8192\n"
        "vocab: 50304\nmax_positions: 2048\n");
  const std::string log =
      Write("mega.log", DumpText({.more = "0:   fp16 ............ False\n"
                                          "0:   recompute_granularity ......... None\n"}) +
                            Steps(0.5));
  const auto said = [&](const std::string& job, const std::string& layout) {
    Write("mega.log.yaml",
          "runs:\n  - name: one\n    job: {model: " + (folder_ / "own.yaml").string() +
              ", topology: dgx-h100, nodes: 1, seq_len: 2048, framework: megatron, " + job +
              "}\n    layout: {tp: 2, micro_batch: 4, " + layout + "}\n");
    return RenderChecks({LoadInputs({log, WriteRun("good.log", {}, 1)}, place_).checks[0]});
  };
  EXPECT_THAT(said("global_batch: 64", "zero: 1"),
              AllOf(HasSubstr("used"), Not(HasSubstr("mismatched"))));
  EXPECT_THAT(
      said("global_batch: 128", "zero: 1"),
      AllOf(HasSubstr("mismatched"), HasSubstr("its global batch is 64"), HasSubstr("128")));
  EXPECT_THAT(said("global_batch: 64", "zero: 0"),
              HasSubstr("use_distributed_optimizer True, the run's description zero 0"));
  EXPECT_THAT(said("global_batch: 64, precision: fp16", "zero: 1"),
              HasSubstr("bf16 True, the run's description fp16"));
  EXPECT_THAT(said("global_batch: 64", "zero: 1, recompute: full"),
              HasSubstr("recompute_granularity none, the run's description recompute full"));
}

TEST_F(Kit, KernelsOfAnotherGpuAreRefused) {
  const std::string data = std::string(ORRERY_SOURCE_DIR) + "/calib/data/";
  FitInputs inputs = LoadInputs({data + "h100-kernels.csv"});
  const std::size_t all = inputs.kernels.size();
  CheckKernels("h100-sxm5-80gb", &inputs);
  EXPECT_EQ(inputs.kernels.size(), all);
  EXPECT_THROW(CheckKernels("a100-sxm4-80gb", &inputs), InputError);
  FitInputs both = LoadInputs({data + "h100-kernels.csv", data + "b200-kernels.csv"});
  CheckKernels("h100-sxm5-80gb", &both);
  EXPECT_EQ(both.kernels.size(), all);
  EXPECT_THAT(RenderChecks({both.checks[1]}),
              AllOf(HasSubstr("mismatched"), HasSubstr("'B200'"), HasSubstr("h100-sxm5-80gb")));
}

FitResult FitSite(const FitInputs& inputs, const std::string& site = "megatron@dgx-h100") {
  ProfileStore store;
  FitFlags flags;
  flags.frameworks = {site};
  const FitJob job = JobOf(flags, &store);
  const CaseSource cases(inputs.rows, job.filter, &store);
  std::vector<FitParameter> parameters = MakeParameters(job.requests, &store);
  const Evidence evidence({&cases}, store);
  FitOptions options;
  options.TrustFewRows(inputs.rows.size());
  return Fitter(evidence, std::move(parameters), options).Fit();
}

TEST_F(Kit, OneLogTeachesTheFactorOfItsSite) {
  for (const double factor : {1.0, 1.15, 0.9}) {
    const FitResult result = FitSite(LoadInputs({WriteRun("one.log", {}, factor)}, place_));
    ASSERT_EQ(result.constants.size(), 1U);
    EXPECT_NE(result.constants[0].status, FitStatus::kKept);
    // Kernels and host are most of this step; its prior draws a tenth of the way back to 1.
    EXPECT_NEAR(std::log(result.constants[0].after) / 1.15, std::log(factor), 0.03) << factor;
    EXPECT_LT(result.constants[0].spread, 0.1);
    EXPECT_THAT(RenderSites(result), HasSubstr("80 % interval"));
  }
}

TEST_F(Kit, ASheetThatNamesTopologyAndFrameworkNamesTheSite) {
  const std::string log = Write("tt.csv", "step,step_time [s]\n1,9\n2,1\n3,1\n4,1\n");
  const auto sheet = [&](const std::string& more, const std::string& second) {
    const std::string run =
        "  - name: one\n    log: tt.csv\n    job: {model: llama2-7b, topology: dgx-h100, nodes: 1, "
        "global_batch: 64, framework: torchtitan" +
        more + "}\n    layout: {zero: 3, micro_batch: 2}\n";
    Write("tt.csv.yaml", "runs:\n" + run + second);
    return LoadInputs({log});
  };
  const std::string own = "compile=on";
  const FitInputs inputs = sheet(", fact: " + own, "");
  EXPECT_EQ(SiteOf(inputs, "", ""), "torchtitan@dgx-h100");
  EXPECT_EQ(SiteOf(inputs, "dgx-a100-80", "megatron+tp_overlap=on"), "megatron@dgx-a100-80");
  EXPECT_EQ(inputs.rows[0].framework, "torchtitan+compile=on");
  // What the fact says is priced, and the site learns from the row.
  EXPECT_NE(PredictCases(inputs.rows)[0].time->total,
            PredictCases(sheet("", "").rows)[0].time->total);
  const FitResult result = FitSite(inputs, SiteOf(inputs, "", ""));
  ASSERT_EQ(result.constants.size(), 1U);
  EXPECT_NE(result.constants[0].status, FitStatus::kKept);
  const FitInputs two =
      sheet("",
            "  - name: two\n    log: tt.csv\n    job: {model: gpt2-xl, topology: "
            "dgx-a100-80, nodes: 1, global_batch: 64, framework: torchtitan}\n    "
            "layout: {zero: 3, micro_batch: 2}\n");
  EXPECT_EQ(SiteOf(two, "", ""), "");  // of two clusters
}

TEST_F(Kit, ASheetMaySayAllFlagsOfAPrediction) {
  const std::string log = Write("lora.csv", "step,step_time [s]\n1,9\n2,1\n3,1\n4,1\n");
  Write("lora.csv.yaml",
        "runs:\n  - name: one\n    job: {model: llama2-7b, topology: dgx-h100, nodes: 1, "
        "global_batch: 64, framework: nemo, fp8: current, lora_rank: 8}\n    layout: {tp: 2, "
        "micro_batch: 1}\n");
  const FitInputs inputs = LoadInputs({log});
  EXPECT_EQ(inputs.rows[0].work.lora.rank, 8);
  EXPECT_EQ(inputs.rows[0].work.fp8, Fp8::kCurrent);
}

TEST_F(Kit, ALogSaysWhenAndOnWhatItRan) {
  const std::string said =
      "0: NVIDIA H100 80GB HBM3\nDriver Version: 550.54.15  CUDA Version: 12.4\n"
      "node:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\nusing Megatron-Core version 0.8.0\n";
  const FitInputs inputs = LoadInputs({WriteRun("said.log", {}, 1, said)}, place_);
  CalibrationRecord record;
  record.site = "megatron@dgx-h100";
  record.topology = "dgx-h100";
  record.logs = {(folder_ / "said.log").string()};
  record.runs = {"what,case", "step_time,\"said\""};
  record.Add(inputs.runs[0].facts);
  EXPECT_EQ(record.date, "2025-11-01");
  const std::string path = (folder_ / "site.yaml").string();
  const std::string text = WithRecord("inherits: megatron\nconstants:\n", record, path);
  WriteText(path, WithRecord(text, record, path));  // twice: the old block goes
  const CalibrationRecord read = ReadCalibrationRecord(path);
  EXPECT_EQ(read.driver, "550.54.15");
  EXPECT_EQ(read.nccl, "2.20.5");
  EXPECT_EQ(read.release, "Megatron-Core 0.8.0");
  EXPECT_EQ(read.device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(read.logs, record.logs);
  EXPECT_EQ(read.runs, record.runs);
  EXPECT_EQ(ReadSource(path)->text.find("calibration:"),
            ReadSource(path)->text.rfind("calibration:"));
}

class Update : public Kit {
 protected:
  // A profile that one log at 1.1 times its prediction calibrated.
  std::string Calibrated() const {
    const std::string log = WriteRun("first.log", {}, 1.1);
    const FitResult result = FitSite(LoadInputs({log}, place_));
    CalibrationRecord record;
    record.site = "megatron@dgx-h100";
    record.topology = "dgx-h100";
    record.logs = {log};
    ProfileStore store;
    store.AddSite(record.site, "megatron");
    const std::string path = (folder_ / "site.yaml").string();
    const auto lines = LinesOf(result, {}, "", store);
    WriteText(path,
              WithRecord(NewProfile("site", "megatron", lines.begin()->second), record, path));
    return path;
  }
  std::string Said(const std::string& profile, const std::string& log) const {
    testing::internal::CaptureStdout();
    try {
      UpdateCalibration(profile, {log}, {}, "");
    } catch (const InputError&) {
      (void)testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }
  const Dump other_{.layers = "32", .hidden = "4096", .heads = "32", .micro = "2"};
};

TEST_F(Update, AgreeingLogsNarrowTheFactorAndImproveHeldBackRows) {
  const std::string profile = Calibrated();
  const std::string said = Said(profile, WriteRun("second.log", other_, 1.1));
  EXPECT_THAT(said, AllOf(HasSubstr("agrees"), HasSubstr("improved"), Not(HasSubstr("Drift"))));
  EXPECT_EQ(ReadCalibrationRecord(profile).logs.size(), 2U);
  const std::vector<NearRun> runs = CalibrationOf(LoadFrameworkProfile(profile)).runs;
  ASSERT_EQ(runs.size(), 2U);
  for (const NearRun& run : runs) {
    EXPECT_EQ(run.framework, "megatron");
    EXPECT_EQ(run.topology, "dgx-h100");
    EXPECT_NEAR(run.predicted / run.measured, 1, 0.1);
  }
  EXPECT_THROW((void)Said(profile, (folder_ / "second.log").string()),
               InputError);  // known already
}

TEST_F(Update, AContradictionIsDriftAndChangesNothing) {
  const std::string profile = Calibrated(), before = ReadSource(profile)->text;
  const std::string late = WriteRun("late.log", other_, 1.5);
  testing::internal::CaptureStdout();
  try {
    UpdateCalibration(profile, {late}, {}, "");
    ADD_FAILURE() << "mixed in";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("1 of 1 new runs contradict"),
                                    HasSubstr("calibrate from its new logs alone")));
  }
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("drift, outside"), HasSubstr("worse")));
  EXPECT_EQ(ReadSource(profile)->text, before);
}

TEST_F(Update, ACopyOfAnEarlierLogIsNoNewRun) {
  const std::string profile = Calibrated(), before = ReadSource(profile)->text;
  const std::string copy = Write("copy.log", ReadSource((folder_ / "first.log").string())->text);
  try {
    (void)Said(profile, copy);
    ADD_FAILURE() << "taken as a run";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the same run as"), HasSubstr("first.log")));
  }
  EXPECT_EQ(ReadSource(profile)->text, before);
}

TEST_F(Update, AnEarlierLogThatHasChangedIsNamed) {
  const std::string profile = Calibrated();
  (void)Said(profile, WriteRun("second.log", other_, 1.1));
  WriteRun("second.log", other_, 1.3);
  try {
    (void)Said(profile, WriteRun("third.log", {.micro = "2"}, 1.1));
    ADD_FAILURE() << "the log that changed went unnoticed";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("second.log has changed"), HasSubstr(" when ")));
  }
}

TEST_F(Update, AProfileWithoutItsLogsCannotBeUpdated) {
  const std::string plain = Write("plain.yaml", "inherits: megatron\nconstants:\n");
  EXPECT_THROW((void)Said(plain, WriteRun("x.log", {}, 1)), InputError);
}

}  // namespace
}  // namespace orrery
