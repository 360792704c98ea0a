// SPDX-License-Identifier: Apache-2.0
// A predicted step beside a measured one: the term that was changed is the one that is named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "calib/compare/governing.h"
#include "calib/program/compare/compare_report.h"
#include "model/framework/profile.h"
#include "tests/compare/testing.h"

namespace orrery::compare {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Play {
  const char* op;
  const char* phase;
  int stream;
  double us;
};

constexpr Play kStep[] = {{"mm", "forward", 0, 400},        {"attn", "forward", 0, 100},
                          {"ln", "forward", 0, 50},         {"mm", "backward", 0, 800},
                          {"attn_bwd", "backward", 0, 250}, {"all_reduce", "grad_reduce", 1, 300},
                          {"adam", "optimizer", 0, 60}};

// Two ranks that play the step one operation after another; those of `op` and `phase` take `factor`
// times as long.
std::string Trace(const std::string& digest, const std::string& op = "",
                  const std::string& phase = "", double factor = 1) {
  std::string events;
  for (int rank = 0; rank < 2; ++rank) {
    double now = 5;
    for (const Play& play : kStep) {
      const double us = play.us * (play.op == op && play.phase == phase ? factor : 1);
      events += fmt::format(
          R"({}{{"ph": "X", "cat": "kernel", "name": "{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"phase": "{}"}}}})",
          events.empty() ? "" : ",\n", play.op, rank, play.stream, now, us, play.phase);
      now += us;
    }
  }
  const std::string named = digest.empty() ? "" : fmt::format(R"("digest": "{}", )", digest);
  return "{" + named + "\"traceEvents\": [" + events + "]}";
}

std::string Unfolded(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

TEST(Compare, EqualStepsDifferInNothing) {
  const Comparison c = Beside(Trace("d"), Trace("d"));
  EXPECT_NEAR(c.error(), 0, 1e-12);
  EXPECT_NEAR(c.predicted_step, 1960e-6, 1e-12);
  EXPECT_THAT(ComparisonText(c), HasSubstr("No term differs by more than 0.1 % of the step."));
}

TEST(Compare, TheTermThatWasScaledIsNamedAsTheCulprit) {
  for (const Play& play : kStep) {
    const Comparison c = Beside(Trace("d"), Trace("d", play.op, play.phase, 1.2));
    ASSERT_NE(c.Culprit(), nullptr);
    EXPECT_EQ(c.Culprit()->phase, play.phase) << play.op;
    EXPECT_NEAR(c.Culprit()->difference(), 0.2 * play.us * 1e-6, 1e-12) << play.op;
    EXPECT_NEAR(c.Culprit()->share, 1, 1e-9) << play.op;
    EXPECT_NEAR(c.measured_step - c.predicted_step, 0.2 * play.us * 1e-6, 1e-12);
    EXPECT_LT(c.error(), 0);
  }
}

TEST(Compare, TablesAddUpAndNameConstants) {
  const Comparison c = Beside(Trace("d"), Trace("d", "mm", "backward", 1.2));
  ASSERT_EQ(c.by_stream.size(), 2u);
  EXPECT_NEAR(c.by_stream[0].predicted, 1660e-6, 1e-12);
  EXPECT_NEAR(c.by_stream[1].predicted, 300e-6, 1e-12);
  double phases = 0;
  for (const Term& term : c.by_phase) phases += term.measured;
  EXPECT_NEAR(phases, c.measured_step, 1e-12);
  EXPECT_EQ(c.by_work[0].work, "product");
  const std::string text = Unfolded(ComparisonText(c));
  EXPECT_THAT(text, HasSubstr("7.5 % too short"));
  EXPECT_THAT(text, HasSubstr("Largest term: product, 1.20 ms predicted, 1.36 ms measured"));
  EXPECT_THAT(text, HasSubstr("most of it in phase backward: 800 us predicted, 960 us"));
  EXPECT_THAT(text, HasSubstr("gemm_efficiency_bf16"));
  const auto json = ComparisonJson(c);
  EXPECT_EQ(json["schema"], "orrery.compare/1");
  EXPECT_EQ(json["largest"]["work"], "product");
  EXPECT_THAT(json["largest"]["constants"], Contains("gemm_k_overhead"));
}

TEST(Compare, WaitingIsIdleTime) {
  std::string late = Trace("d");
  const std::size_t last = late.rfind("\"dur\": 60");
  late.replace(late.rfind("\"ts\": 1905", last), 10,
               "\"ts\": 2905");  // one rank updates 1 ms later
  const Comparison c = Beside(Trace("d"), late);
  for (const Term& term : c.by_work) {
    const bool idle = term.work == "idle";
    EXPECT_NEAR(term.difference(), idle ? 1e-3 : 0, 1e-9) << term.work;
  }
  EXPECT_EQ(c.by_work[0].work, "idle");
}

TEST(Compare, AnotherPlanIsAnErrorThatNamesBoth) {
  const std::string error = ErrorOf(Trace("aaaa"), Trace("bbbb"));
  EXPECT_THAT(error, HasSubstr("predicted.json is of plan aaaa, measured.json of plan bbbb"));
  EXPECT_THAT(ErrorOf(Trace("aaaa"), Trace("")), HasSubstr("does not say which plan"));
  EXPECT_THAT(ErrorOf(Trace(""), Trace("aaaa")), HasSubstr("does not say which plan"));
}

constexpr const char* kMegatron =
    " iteration 1/ 9 | elapsed time per iteration (ms): 2.450 | lm loss: 2 |\n";

TEST(Compare, LogsOfOtherProgramsAreTakenOnTrust) {
  const Comparison c = Beside(Trace("d"), kMegatron);
  EXPECT_TRUE(c.OnTrust());
  EXPECT_NEAR(c.error(), 1.96 / 2.45 - 1, 1e-9);
  EXPECT_EQ(c.Culprit(), nullptr);
  EXPECT_THAT(ComparisonText(c), HasSubstr("assumed to be the same"));
  EXPECT_THAT(ComparisonText(c), HasSubstr("tells how long a step takes"));
  EXPECT_THAT(ErrorOf(kMegatron, Trace("d")), HasSubstr("no prediction of this program"));
  EXPECT_THAT(ErrorOf(Trace("d"), "nothing\n"), HasSubstr("known are the logs"));
}

TEST(Compare, RecordsCompareStepsAndPartsOfTheSameName) {
  const std::string predicted =
      R"({"schema": "orrery.simulate/1", "digest": "d", "prediction": {"step_time_s": 1.0,
"breakdown": {"compute_s": 0.75, "bubble_s": 0.25}}})";
  const std::string measured =
      R"({"schema": "orrery.run/1", "digest": "d", "steps": [{"step": 1, "seconds": 9},
{"step": 2, "seconds": 1.25}], "per_rank": [{"rank": 0, "compute_s": 1.0}, {"rank": 1, "compute_s": 0.9}]})";
  const Comparison c = Beside(predicted, measured);
  EXPECT_NEAR(c.error(), -0.2, 1e-12);
  ASSERT_EQ(c.by_part.size(), 1u);
  EXPECT_NEAR(c.by_part[0].difference(), 0.2, 1e-12);
}

// Swapped, a run was "8.25 s predicted, 625 ms measured".
TEST(Compare, ARunIsNoPrediction) {
  const std::string run =
      R"({"schema": "orrery.run/1", "digest": "d", "steps": [{"step": 1, "seconds": 9}]})";
  const std::string predicted =
      R"({"schema": "orrery.predict/1", "digest": "d", "prediction": {"step_time_s": 8.0}})";
  EXPECT_THAT(ErrorOf(run, predicted), HasSubstr("the first file is what plan run measured"));
  EXPECT_NEAR(Beside(predicted, run).error(), 8.0 / 9 - 1, 1e-12);
}

TEST(Compare, RecordsOfTwoPlansSayWhereTheirStepsDiffer) {
  const std::string predicted =
      R"({"schema": "orrery.predict/1", "digest": "d", "prediction": {"step_time_s": 8.0, "gpus": 8,
"global_batch": 8, "tokens_per_s": 64}})";
  const auto error = [&](const char* ranks, const char* samples) {
    return ErrorOf(predicted, fmt::format(R"({{"schema": "orrery.run/1", "digest": "e", "ranks": {},
"samples_per_step": {}, "tokens_per_step": 512, "steps": [{{"step": 1, "seconds": 9}}]}})",
                                          ranks, samples));
  };
  EXPECT_THAT(error("2", "4"), HasSubstr("of plan e; GPUs: 8 and 2; samples of a step: 8 and 4\n"));
  EXPECT_THAT(error("8", "8"), HasSubstr("of plan e\n"));
}

constexpr const char* kPredicted =
    R"({"schema": "orrery.simulate/1", "digest": "d", "prediction": {"step_time_s": 1.0,
"breakdown": {"compute_s": 0.5, "data_exposed_s": 0.3, "host_s": 0.2, "hidden_s": 0.9}}})";

std::string Measured(double step, double data, double hidden) {
  return fmt::format(
      R"({{"schema": "orrery.run/1", "digest": "d", "steps": [{{"step": 1, "seconds": {}}}],
"breakdown": {{"compute_s": 0.5, "data_exposed_s": {}, "host_s": 0.2, "hidden_s": {}}},
"per_rank": [{{"rank": 0, "compute_s": 0.1}}]}})",
      step, data, hidden);
}

TEST(Compare, RecordsCompareTermsOfTheBreakdown) {
  const Comparison c = Beside(kPredicted, Measured(1.4, 0.7, 0.1));
  ASSERT_EQ(c.by_part.size(), 3u);
  EXPECT_EQ(c.by_part[0].work, "data-parallel communication");
  double predicted = 0, measured = 0;
  for (const Term& term : c.by_part) predicted += term.predicted, measured += term.measured;
  EXPECT_NEAR(predicted, c.predicted_step, 1e-12);  // what is hidden does not count
  EXPECT_NEAR(measured, c.measured_step, 1e-12);
  const std::string text = ComparisonText(c);
  EXPECT_THAT(text, HasSubstr("Largest term: data-parallel communication, 300 ms predicted"));
  EXPECT_THAT(text, HasSubstr("data_nic_use"));
}

// As `plan run` counts them: without the first step and without those in which other programs took a core.
TEST(Compare, TheStepAndTokensPerSecondAreThoseOfTheRun) {
  const std::string predicted =
      R"({"schema": "orrery.simulate/1", "digest": "d", "prediction": {"step_time_s": 2.0,
"global_batch": 10, "samples_per_s": 5, "tokens_per_s": 500, "breakdown": {"compute_s": 2.0}}})";
  const auto run = [](const std::string& disturbed) {
    return R"({"schema": "orrery.run/1", "digest": "d", "samples_per_step": 10,
"tokens_per_step": 1000, "steps": [{"step": 1, "seconds": 9.0, "disturbed": false},
{"step": 2, "seconds": 2.0, "disturbed": )" +
           disturbed + R"(}, {"step": 3, "seconds": 5.0, "disturbed": true},
{"step": 4, "seconds": 2.2, "disturbed": )" +
           disturbed + R"(}], "per_rank": [{"rank": 0, "compute_s": 2.0}]})";
  };
  const auto calm = ComparisonJson(Beside(predicted, run("false")));
  EXPECT_NEAR(calm["measured_step_s"].get<double>(), 2.1, 1e-12);
  EXPECT_NEAR(calm["measured_tokens_per_s"].get<double>(), 1000 / 2.1, 1e-9);
  const auto disturbed = ComparisonJson(Beside(predicted, run("true")));
  EXPECT_NEAR(disturbed["measured_step_s"].get<double>(), 2.2, 1e-12);
  EXPECT_NEAR(disturbed["measured_tokens_per_s"].get<double>(), 1000 / 2.2, 1e-9);
}

// plan watch took it; it is a prediction like that of plan predict.
TEST(Compare, TheRecordOfAnExportIsAPrediction) {
  const std::string record =
      R"({"schema": "orrery.export/1", "target": "megatron", "digest": "d", "prediction": {
"step_time_s": 2.0, "step_time_interval_s": [1.8, 2.4], "global_batch": 8}, "files": []})";
  const Comparison c = Beside(
      record, " iteration 1/ 9 | elapsed time per iteration (ms): 2300 | global batch size: 8 |\n");
  EXPECT_EQ(c.predicted_step, 2.0);
  EXPECT_TRUE(c.InInterval());
}

// A prediction with interval, tokens and memory beside a log with its batch and memory.
TEST(Compare, ALogIsHeldAgainstTheIntervalTheTokensAndTheBatch) {
  const std::string predicted =
      R"({"schema": "orrery.predict/1", "digest": "d", "prediction": {"step_time_s": 2.0,
"step_time_interval_s": [1.8, 2.4], "global_batch": 8, "samples_per_s": 4, "tokens_per_s": 4096,
"gpus": 1, "memory": {"allocated_bytes": 2147483648, "total_bytes": 4294967296, "context_bytes": 1073741824},
"breakdown": {"compute_s": 2.0}}})";
  const auto log = [](double ms, int batch) {
    return fmt::format(
        " iteration 1/ 9 | elapsed time per iteration (ms): {} | global batch size: {} |\n", ms,
        batch);
  };
  const Comparison inside = Beside(predicted, log(2300, 8));
  const std::string text = Unfolded(ComparisonText(inside));
  EXPECT_THAT(text, HasSubstr("13.0 % too short, inside the 80 % interval (1.80 s to 2.40 s)"));
  EXPECT_THAT(text, HasSubstr("Tokens per second: 4.10 k predicted, 3.56 k measured."));
  EXPECT_NEAR(ComparisonJson(inside)["measured_tokens_per_s"].get<double>(), 8 * 1024 / 2.3, 1e-6);
  EXPECT_TRUE(ComparisonJson(inside)["measured_allocated_bytes"].is_null());
  // Another batch is another job, but steps before it has grown to the plan's.
  EXPECT_THAT(
      ErrorOf(predicted, log(2500, 16)),
      HasSubstr("measured.json:1:1: error: the log's global batch is 16, that of the plan 8"));
  const Comparison grown = Beside(predicted, log(900, 4) + log(2300, 8) + log(2300, 8));
  EXPECT_NEAR(grown.measured_step, 2.3, 1e-9);
  EXPECT_THAT(ComparisonText(grown),
              HasSubstr("1 step is not counted: the global batch is 4 there"));
  const std::string csv = "step,step_time [ms],memory [GiB]\n1,2000,2.5\n";
  EXPECT_THAT(ComparisonText(Beside(predicted, csv)),
              AllOf(HasSubstr("Peak memory allocated: 2.00 GiB predicted, 2.50 GiB measured."),
                    Not(HasSubstr("memory reserved"))));
  // What torchtitan prints was compared with what is allocated; Megatron prints both.
  const std::string titan =
      "step: 1  loss: 7.1  memory: 3.50GiB(50.0%)  tps: 2,048  tflops: 3.1  mfu: 38.4%\n";
  EXPECT_THAT(Unfolded(ComparisonText(Beside(predicted, titan))),
              AllOf(HasSubstr("Peak memory reserved: 3.00 GiB predicted, 3.50 GiB measured."),
                    Not(HasSubstr("memory allocated"))));
  EXPECT_THAT(
      Unfolded(ComparisonText(Beside(
          predicted,
          log(2300, 8) +
              "[Rank 0] (after 1 iterations) memory (MB) | allocated: 9.5 | max allocated: 2560.0 "
              "| reserved: 39.0 | max reserved: 3584.0\n"))),
      AllOf(HasSubstr("Peak memory allocated: 2.00 GiB predicted, 2.50 GiB measured."),
            HasSubstr("Peak memory reserved: 3.00 GiB predicted, 3.50 GiB measured.")));
  EXPECT_THAT(ComparisonText(Beside(predicted, csv)), HasSubstr("equal within 0.1 %"));
}

// What torchtitan prints: tokens per second of one GPU, and no time.
// MFU of 40 % in 2 s: less than 0.8 s are above the peak.
TEST(Compare, AStepAboveThePeakIsNamed) {
  const auto predicted = [](const char* more) {
    return fmt::format(
        R"({{"schema": "orrery.predict/1", "workload": {{"precision": "bf16"{}}}, "prediction":
{{"step_time_s": 2.0, "global_batch": 8, "samples_per_s": 4, "tokens_per_s": 4096, "mfu": 0.5,
"mfu_without_masked": 0.4, "breakdown": {{"compute_s": 2.0}}}}}})",
        more);
  };
  const auto log = [](double ms, int batch) {
    return fmt::format(
        " iteration 1/ 9 | elapsed time per iteration (ms): {} | global batch size: {} |\n", ms,
        batch);
  };
  const auto said = HasSubstr("would come to 133 % of the peak rate");
  const Comparison fast = Beside(predicted(""), log(600, 8));
  EXPECT_THAT(Unfolded(ComparisonText(fast)), said);
  EXPECT_EQ(ComparisonJson(fast)["above_peak"], true);
  const Comparison slower = Beside(predicted(""), log(900, 8));
  EXPECT_THAT(Unfolded(ComparisonText(slower)), Not(HasSubstr("peak rate")));
  EXPECT_EQ(ComparisonJson(slower)["above_peak"], false);
  // Products in 8 bits have another peak.
  EXPECT_THAT(Unfolded(ComparisonText(Beside(predicted(", \"fp8\": \"current\""), log(600, 8)))),
              Not(HasSubstr("peak rate")));
  std::string titan;
  for (int step = 1; step <= 3; ++step)
    titan +=
        fmt::format("step: {} loss: 7.1 memory: 1.50GiB(2%) tps: 500 tflops: 1 mfu: 131%\n", step);
  const std::string one =
      predicted("").replace(predicted("").find("\"step_time_s\""), 0, "\"gpus\": 8, ");
  EXPECT_THAT(Unfolded(ComparisonText(Beside(one, titan))),
              HasSubstr("The log prints an MFU of 131 %"));
}

TEST(Compare, ThroughputIsATimeByTheBatchOfThePrediction) {
  const std::string predicted =
      R"({"schema": "orrery.predict/1", "digest": "d", "prediction": {"step_time_s": 2.0, "gpus": 4,
"step_time_interval_s": [1.8, 2.4], "global_batch": 8, "samples_per_s": 4, "tokens_per_s": 4096}})";
  const auto line = [](int step, const char* tps) {
    return fmt::format("step: {} loss: 7.1 memory: 1.50GiB(2%) tps: {} tflops: 1 mfu: 1%\n", step,
                       tps);
  };
  const std::string log = line(1, "30") + line(2, "1,000") + line(3, "800") + line(4, "1,000");
  const Comparison c = Beside(predicted, log);
  EXPECT_TRUE(c.by_throughput);
  EXPECT_NEAR(c.measured_step, 8192.0 / (4 * 1000), 1e-12);
  EXPECT_NEAR(*c.tokens_per_s.measured, 4000, 1e-9);
  EXPECT_THAT(ComparisonText(c), HasSubstr("the log prints throughput only"));
  EXPECT_EQ(ComparisonJson(c)["by_throughput"], true);
  EXPECT_THAT(ErrorOf(Trace("d"), log), HasSubstr("no step time"));  // a trace knows no batch
  EXPECT_FALSE(Beside(predicted, kMegatron).by_throughput);
}

TEST(Compare, ATraceThatBreaksOffHasNoStep) {
  const std::string whole = Trace("d");
  EXPECT_THAT(ErrorOf(whole, whole.substr(0, whole.size() / 2)),
              HasSubstr("breaks off before its step ends"));
}

// One timer has the name of a term: what it leaves is no difference of that term.
TEST(Compare, TimersOfALogLeaveTheRestOfTheStep) {
  const std::string log =
      " iteration 1/ 9 | elapsed time per iteration (ms): 2000 |\n"
      " time (ms) | optimizer: 200 | forward-compute: 700 |\n";
  const std::string predicted =
      R"({"schema": "orrery.predict/1", "digest": "d", "prediction": {"step_time_s": 1.0,
"breakdown": {"compute_s": 0.9, "optimizer_s": 0.1}}})";
  const Comparison c = Beside(predicted, log);
  ASSERT_EQ(c.by_part.size(), 2u);
  EXPECT_EQ(c.CulpritWork()->work, kRest);
  EXPECT_NEAR(c.by_part[0].difference(), 0.9, 1e-12);
  EXPECT_NEAR(c.by_part[0].share, 0.9, 1e-12);
  EXPECT_THAT(ComparisonText(c), HasSubstr("tells how long a step takes"));
}

// Four ranks that compute and meet; `slow` computes `factor` times as long, and the others wait.
std::string Met(int slow, double factor) {
  std::string events;
  for (int rank = 0; rank < 4; ++rank) {
    const double us = 1000 * (rank == slow ? factor : 1), end = 1000 * factor + 100;
    for (const auto& [op, phase, from, to] :
         {std::tuple{"mm", "forward", 0.0, us}, std::tuple{"all_reduce", "grad_reduce", us, end},
          std::tuple{"adam", "optimizer", end, end + 50}})
      events += fmt::format(
          R"({}{{"ph": "X", "name": "{}", "pid": {}, "tid": 0, "ts": {}, "dur": {}, "args": {{"phase": "{}"}}}})",
          events.empty() ? "" : ",\n", op, rank, from, to - from, phase);
  }
  return R"({"digest": "d", "precision": "bf16", "traceEvents": [)" + events + "]}";
}

TEST(Compare, AStragglerIsNamedInsteadOfConstants) {
  const Comparison c = Beside(Met(-1, 1), Met(3, 1.5));
  ASSERT_TRUE(c.straggler.has_value());
  EXPECT_EQ(c.straggler->rank, 3);
  EXPECT_NEAR(c.straggler->slowdown, 1 + 0.5 * 1000 / 1050, 1e-9);  // the update is as fast
  ASSERT_NE(c.CulpritWork(), nullptr);
  EXPECT_EQ(c.CulpritWork()->work, "collective");
  EXPECT_THAT(c.Constants(*c.CulpritWork()), IsEmpty());
  const std::string text = ComparisonText(c);
  EXPECT_THAT(text, HasSubstr("Rank 3 is slow: it computes 1.48 times as long"));
  EXPECT_THAT(text, HasSubstr("waits for rank 3"));
  for (const Term& term : c.by_work)
    EXPECT_EQ(c.WaitsForStraggler(term), term.work == "collective" || term.work == "idle");
  EXPECT_THAT(text, Not(HasSubstr("data_nic_use")));
  EXPECT_FALSE(Beside(Met(-1, 1), Met(-1, 1.5)).straggler.has_value());  // all alike
  EXPECT_FALSE(Beside(Met(3, 1.5), Met(3, 1.5)).straggler.has_value());  // as predicted
}

TEST(Compare, ConstantsAreThoseOfTheJob) {
  const Comparison c = Beside(Met(-1, 1), Met(-1, 1.5));
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(c.optimizer, "adam");
  const std::string text = ComparisonText(c);
  EXPECT_THAT(text, HasSubstr("gemm_efficiency_bf16"));
  for (const char* other : {"gemm_efficiency_fp16", "gemm_efficiency_tf32", "lamb", "sgd"})
    EXPECT_THAT(text, Not(HasSubstr(other)));
  EXPECT_THAT(GoverningConstants("optimizer", "", "bf16", "adamw"),
              ElementsAre("adam_traffic", "memory_efficiency"));
  EXPECT_THAT(GoverningConstants("optimizer", "", "bf16", "muon"),
              ElementsAre("adam_traffic", "memory_efficiency"));
  EXPECT_THAT(GoverningConstants("compute", "", "fp8", ""), Contains("gemm_efficiency_fp16"));
}

TEST(Compare, JsonNamesTheTermThatTheTextNames) {
  const auto json = ComparisonJson(Beside(Trace("d"), Trace("d", "mm", "backward", 1.2)));
  EXPECT_FALSE(json["largest"].contains("phase"));
  EXPECT_EQ(json["largest_phase"]["phase"], "backward");
  EXPECT_THAT(json["words"].dump(), HasSubstr("Largest term: product, 1.20 ms predicted"));
}

TEST(Compare, EqualTermsAreNotBlamed) {
  const Comparison c = Beside(kPredicted, Measured(1.0003, 0.3003, 5));
  EXPECT_EQ(c.Culprit(), nullptr);
  EXPECT_THAT(ComparisonText(c), HasSubstr("No term differs by more than 0.1 % of the step."));
}

TEST(Compare, ColumnsStayApart) {
  const std::string text = ComparisonText(Beside(kPredicted, Measured(1.4, 0.7, 0.1)));
  EXPECT_THAT(text, HasSubstr("data-parallel communication  "));
}

TEST(Governing, EveryConstantStandsInTheProfiles) {
  const GpuProfile gpu = LoadGpuProfile("h100-sxm5-80gb");
  const FabricProfile fabric = LoadFabricProfile("infiniband");
  const FrameworkProfile framework = LoadFrameworkProfile("megatron");
  const FrameworkProfile hooks = LoadFrameworkProfile("deepspeed");  // host_module
  EXPECT_GT(AllGoverning().size(), 20u);
  for (const std::string& name : AllGoverning()) {
    EXPECT_TRUE(gpu.header.constants.contains(name) || fabric.header.constants.contains(name) ||
                framework.header.constants.contains(name) || hooks.header.constants.contains(name))
        << name;
  }
  for (const auto& [name, work] : measured::WorkNames()) {
    EXPECT_EQ(GoverningConstants(name, "").empty(), work == measured::Work::kOther) << name;
  }
}

}  // namespace
}  // namespace orrery::compare
