// SPDX-License-Identifier: Apache-2.0
// Logs and traces as measurements: windows, sheets, and a chip fitted on one log.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "calib/fit/fit.h"
#include "calib/fit/job.h"
#include "calib/fit/log_measure.h"
#include "calib/fit/work_source.h"
#include "calib/program/calibrate/fit_report.h"
#include "calib/program/calibrate/inputs.h"
#include "model/arch/parameters.h"
#include "model/base/diagnostics.h"
#include "model/hardware/catalog.h"
#include "model/hardware/summary.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

measured::TrainingLog Log(const std::string& text) {
  return measured::ReadTrainingLog(std::make_shared<Source>(Source{"log", text}));
}

std::string Folder(const std::string& name) {
  const fs::path folder = fs::path(testing::TempDir()) / ("orrery_logs_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string MessageOf(const std::string& sheet) {
  const std::string folder = Folder("sheet");
  Write(folder + "/steps.csv", "step,step_time [s]\n1,9\n2,1\n3,1.2\n4,1.1\n");
  Write(folder + "/steps.csv.yaml", sheet);
  try {
    (void)LoadInputs({folder + "/steps.csv"});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kSheet =
    "runs:\n"
    "  - name: one\n"
    "    job: {model: gpt2-small, topology: aws-p4d, nodes: 1, global_batch: 64}\n"
    "    layout: {micro_batch: 2}\n";

TEST(LogMeasure, StepsAreTheirMedianWithoutTheFirst) {
  const auto log = Log("step,step_time [s]\n1,9\n2,1\n3,1.2\n4,1.1\n");
  EXPECT_NEAR(MeasureLog(log, {}).seconds, 1.1, 1e-12);
  LogWindow window;
  window.steps = {3, 3};
  EXPECT_NEAR(MeasureLog(log, window).seconds, 1.2, 1e-12);
  window.steps = {7, 9};
  EXPECT_THROW((void)MeasureLog(log, window), InputError);
}

TEST(LogMeasure, AMeanSinceTheStartIsReadAtItsLastStep) {
  const auto log =
      Log("[timer.py:191:stop] 0/10, SamplesPerSec=200.0, MemAllocated=1GB, MaxMemAllocated=1GB\n"
          "[timer.py:191:stop] 0/20, SamplesPerSec=250.0, MemAllocated=1GB, MaxMemAllocated=1GB\n"
          "[timer.py:191:stop] 0/30, SamplesPerSec=100.0, MemAllocated=1GB, MaxMemAllocated=1GB\n");
  LogWindow window{true, {.samples = 50}, std::pair<int64_t, int64_t>{1, 20}};
  EXPECT_NEAR(MeasureLog(log, window).seconds, 0.2, 1e-12);
  window.steps.reset();
  EXPECT_NEAR(MeasureLog(log, window).seconds, 0.5, 1e-12);
  // Steps 11 to 30 are what the mean gains after step 10: (30 x 0.5 - 10 x 0.25) / 20 s.
  window.steps = {11, 30};
  EXPECT_NEAR(MeasureLog(log, window).seconds, 0.625, 1e-12);
}

TEST(LogMeasure, AChangeInTheMiddleOfALogIsFound) {
  std::string steady = "step,step_time [s]\n", broken = steady;
  for (int step = 1; step <= 20; ++step) {
    const double jitter = step % 2 == 0 ? 0.02 : -0.02;
    steady += fmt::format("{},{}\n", step, 1 + jitter);
    broken += fmt::format("{},{}\n", step, (step < 14 ? 1.0 : 1.5) + jitter);
  }
  EXPECT_FALSE(ChangeOf(Log(steady), {}));
  const std::optional<LogChange> change = ChangeOf(Log(broken), {});
  ASSERT_TRUE(change);
  EXPECT_EQ(change->step, 14);
  EXPECT_NEAR(change->before, 1, 0.01);
  EXPECT_NEAR(change->after, 1.5, 0.01);
  EXPECT_FALSE(ChangeOf(Log("step,step_time [s]\n1,9\n2,1\n3,1\n"), {}));
}

TEST(LogMeasure, ASlowStartIsNoChange) {
  std::string once = "step,step_time [s]\n", several = once, late = once;
  for (int step = 1; step <= 20; ++step) {
    const double jitter = step % 2 == 0 ? 0.02 : -0.02;
    once += fmt::format("{},{}\n", step, (step == 1 ? 46.0 : 5.8) + jitter);
    several += fmt::format("{},{}\n", step, (step == 1 ? 46.0 : step < 4 ? 9.0 : 5.8) + jitter);
    late += fmt::format("{},{}\n", step, (step == 1 ? 46.0 : step < 10 ? 9.0 : 5.8) + jitter);
  }
  EXPECT_FALSE(ChangeOf(Log(once), {}));
  EXPECT_FALSE(ChangeOf(Log(several), {}));
  const std::optional<LogChange> change = ChangeOf(Log(late), {});
  ASSERT_TRUE(change);
  EXPECT_EQ(change->step, 10);
}

TEST(LogMeasure, AMicroStepMayComeFromTimers) {
  const auto log =
      Log("[timer.py:191:stop] 0/10, SamplesPerSec=200.0, MemAllocated=1GB, MaxMemAllocated=1GB\n"
          "rank=0 time (ms) | forward_microstep: 12.0 | backward_microstep: 30.0 | "
          "backward_inner_microstep: 20.0 | step_microstep: 3.0\n");
  EXPECT_NEAR(MeasureLog(log, {true, 8, 0, {}}).seconds, 0.042, 1e-12);
}

TEST(RunSheet, ALogFindsItsSheetBesideIt) {
  const std::string folder = Folder("beside");
  Write(folder + "/steps.csv", "step,step_time [s]\n1,9\n2,1\n3,1.2\n4,1.1\n");
  Write(folder + "/steps.csv.yaml", kSheet);
  const FitInputs inputs = LoadInputs({folder + "/steps.csv"});
  ASSERT_EQ(inputs.rows.size(), 1U);
  EXPECT_NEAR(inputs.rows[0].measured_step_s, 1.1, 1e-12);
  EXPECT_EQ(inputs.rows[0].strategy.dp, 8);
  EXPECT_EQ(inputs.rows[0].strategy.micro_batch, 2);
  EXPECT_THAT(RenderChecks(inputs.checks), HasSubstr("1.10 s per step (CSV: median of 3 lines)"));
  EXPECT_THROW((void)LoadInputs({folder + "/other.log"}), InputError);
}

TEST(RunSheet, TheLaunchScriptSaysWhatRan) {
  const std::string folder = Folder("script");
  Write(folder + "/steps.csv", "step,step_time [s]\n1,9\n2,1\n3,1.2\n4,1.1\n");
  Write(folder + "/run.sh",
        "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 48 --hidden-size 1600 "
        "--num-attention-heads 25 --seq-length 1024 --max-position-embeddings 1024 --bf16 "
        "--vocab-size 50257 --micro-batch-size 4 --global-batch-size 64 --overlap-grad-reduce "
        "--use-distributed-optimizer --overlap-param-gather\n");
  Write(folder + "/steps.csv.yaml",
        "runs:\n  - name: one\n    from: run.sh\n    job: {topology: aws-p4d}\n");
  const FitInputs inputs = LoadInputs({folder + "/steps.csv"});
  ASSERT_EQ(inputs.rows.size(), 1U);
  EXPECT_EQ(inputs.rows[0].model.name, "gpt2-xl");
  EXPECT_EQ(inputs.rows[0].strategy.dp, 16);
  EXPECT_EQ(inputs.rows[0].strategy.zero, 1);
  EXPECT_EQ(inputs.rows[0].strategy.micro_batch, 4);
}

TEST(RunSheet, MistakesAreNamedWithTheirPlace) {
  const std::string sheet = kSheet;
  EXPECT_EQ(MessageOf(sheet), "");
  EXPECT_THAT(MessageOf(sheet + "    steps: 5..2\n"),
              AllOf(HasSubstr("steps.csv.yaml:5"), HasSubstr("range of steps")));
  EXPECT_THAT(MessageOf(sheet + "    stepz: 5..2\n"), HasSubstr("steps"));
  EXPECT_THAT(MessageOf(sheet + "    log: nothing.txt\n"), HasSubstr("nothing.txt"));
  EXPECT_THAT(MessageOf(sheet + "    steps: 50..60\n"), HasSubstr("steps that are asked for"));
  EXPECT_THAT(MessageOf("runs:\n  - name: one\n    job: {model: gpt2-smal}\n"),
              HasSubstr("gpt2-small"));
  EXPECT_THAT(MessageOf("runs: []\n"), HasSubstr("names no run"));
}

// What the timers print, and what they would print if they waited for the device: samples/dl1. S7's
// issuing thread is 16 % slower than S5's although nothing is sent in its window; hosts of several
// nodes are 5 % slower elsewhere. No term of the model covers the rest: its bar is the error as it is.
TEST(Logs, TwoRunsOnGaudiPredictOtherModels) {
  const std::string root = ORRERY_SOURCE_DIR;
  FitInputs inputs = LoadInputs({root + "/calib/fit/samples/dl1/runs.yaml"});
  ASSERT_EQ(inputs.rows.size(), 2U);
  ASSERT_EQ(inputs.predicted.size(), 4U);
  EXPECT_THAT(RenderLogs(inputs.runs), HasSubstr("up to step 90, 197 ms"));  // its queue is full
  EXPECT_NEAR(inputs.rows[0].measured_step_s, 0.1027, 1e-4);
  EXPECT_NEAR(inputs.rows[1].measured_step_s, 0.197, 1e-3);
  ProfileStore store;
  const FitJob job = ReadFitJob(ReadSource(root + "/calib/fit/jobs/dl1.yaml"));
  const CaseSource cases(inputs.rows, job.filter, &store);
  const CaseSource kept(inputs.predicted, {}, &store);
  std::vector<FitParameter> parameters = MakeParameters(job.requests, &store);
  const Evidence evidence({&cases}, store);
  Fitter fitter(evidence, parameters, {});
  const FitResult result = fitter.Fit();
  for (const double error : result.error) EXPECT_LT(std::abs(error), 0.02);
  for (const FittedConstant& constant : result.constants)
    constant.parameter.Apply(constant.after, &store);
  std::vector<double> values;
  kept.Predict(store, {0, 1, 2, 3}, &values);
  constexpr double kLimits[] = {0.08, 0.12, 0.2, 0.1};  // S6, S7, BERT-tiny printed and sustained
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_LT(std::abs(values[i] / kept.observations()[i].measured - 1), kLimits[i])
        << kept.observations()[i].name;
  }
  const std::vector<Confidence> confidences = kept.Confidences(store, LoadTrust());
  ASSERT_EQ(confidences.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_LT(confidences[i].low, values[i]);
    EXPECT_GT(confidences[i].high, values[i]);
    EXPECT_LT(confidences[i].high, 3 * values[i]);
  }
  const std::string text = RenderKept(kept, result, LoadTrust(), store);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("80 % interval"), HasSubstr(" to ")));
}

// The kinds of work add up to the compute of the closed form, gaps and fixed times aside.
TEST(Traces, KindsOfWorkAddUpToTheCompute) {
  LoggedRun run;
  const std::string folder = Folder("trace");
  Write(folder + "/steps.csv", "step,step_time [s]\n1,1\n2,1\n");
  Write(folder + "/steps.csv.yaml", kSheet);
  run = LoadInputs({folder + "/steps.csv"}).runs[0];
  const measured::Work works[] = {measured::Work::kProduct, measured::Work::kAttention,
                                  measured::Work::kElementwise};
  for (const measured::Work work : works) {
    measured::SpanSample span;
    span.work = work;
    span.seconds = 0.1;
    run.read.spans.push_back(span);
  }
  ProfileStore store;
  const WorkSource kernels({&run}, {}, &store);
  ASSERT_EQ(kernels.observations().size(), 3U);
  EXPECT_EQ(kernels.observations()[0].name, "one, product");
  const Observation& seen = kernels.observations()[0];
  for (const char* key : {"kernel_gap", "head_fixed", "embedding_fixed"})
    store.Set(ProfileLayer::kFramework, seen.framework, key, 0);
  std::vector<double> values;
  kernels.Predict(store, {0, 1, 2}, &values);
  const ClusterSummary cluster = Summarise(LoadTopology("aws-p4d"), 1, 8);
  StepPredictor whole({run.row.model,
                       run.row.work,
                       {&store.gpu(seen.gpu), &store.fabric(seen.fabric),
                        &store.framework(seen.framework), &cluster}});
  const auto time = std::get<StepTime>(whole.Predict(run.row.strategy));
  // Kernels of the passes; the step also clears its gradients once.
  const double clears = OpPrices({&store.gpu(seen.gpu), &store.fabric(seen.fabric),
                                  &store.framework(seen.framework), &cluster},
                                 run.row.work.precision)
                            .Stream("zero")
                            .Of((run.row.strategy.fp32_grads ? 4.0 : 2.0) *
                                static_cast<double>(CountParameters(run.row.model).total) /
                                (run.row.strategy.zero >= 2 ? run.row.strategy.dp : 1));
  EXPECT_NEAR(values[0] + values[1] + values[2] + clears, time.compute, 1e-6 * time.compute);
}

}  // namespace
}  // namespace orrery
