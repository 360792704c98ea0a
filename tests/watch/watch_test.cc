// SPDX-License-Identifier: Apache-2.0
// A log beside a prediction: what leaves the interval, since when, and what fits.
#include "calib/program/watch/watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

namespace orrery::watch {
namespace {

using testing::HasSubstr;

SourcePtr Made(std::string text) {
  return std::make_shared<const Source>(Source{"made", std::move(text)});
}

constexpr const char* kPlan = R"({"schema": "orrery.predict/1", "prediction": {
  "layout": "tp 1, pp 1, dp 8", "digest": "d1", "gpus": 8, "global_batch": 512, "step_time_s": 1.0,
  "step_time_interval_s": [0.9, 1.1], "tokens_per_s": 80000, "price_per_step_usd": 0.01,
  "breakdown": {"compute_s": 0.8, "data_exposed_s": 0.15, "fixed_s": 0.05, "hidden_s": 0.3},
  "memory": {"total_bytes": 4e10, "allocated_bytes": 3.59e10, "workspaces_bytes": 1e8, "context_bytes": 1e9}}})";

Expectation Plan() { return ReadExpectation(Made(kPlan)); }

std::string Megatron(const std::vector<double>& seconds) {
  std::string text;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    text += fmt::format(
        " iteration {:8}/     100 | consumed samples: 512 | elapsed time per iteration "
        "(ms): {:.1f} | global batch size: 512 | lm loss: 1.0E+00 |\n",
        10 * (i + 1), 1e3 * seconds[i]);
  return text;
}

Verdict Watch(const std::string& log, int patience = 3) {
  return Judge(measured::ReadTrainingLog(Made(log)), Plan(), patience);
}

TEST(Watch, IsQuietInsideTheInterval) {
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.05, 0.95, 1.0})).Inside());  // the first step warms up
}

TEST(Watch, NamesTheStepFromWhichItIsSlower) {
  const Verdict verdict = Watch(Megatron({3.0, 1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 1.5}));
  ASSERT_EQ(verdict.departures.size(), 1u);
  const Departure& one = verdict.departures[0];
  EXPECT_EQ(one.side, Side::kSlower);
  EXPECT_EQ(one.since, 50);
  EXPECT_EQ(one.steps, 4u);
  EXPECT_NEAR(one.measured, 1.5, 1e-9);
  EXPECT_FALSE(one.over);
  // 0.5 s more: compute at 1.6 times is the smallest change, then communication at 4.3 times.
  ASSERT_GE(one.reasons.size(), 2u);
  EXPECT_EQ(one.reasons[0].term, "compute");
  EXPECT_NEAR(one.reasons[0].factor, 1.3 / 0.8, 1e-9);
  EXPECT_NEAR(one.extra_hours, 0.5 * 1000 / 3600, 1e-9);
  EXPECT_NEAR(one.extra_dollars.value(), 5, 1e-9);
}

TEST(Watch, OneSlowStepIsNoDeparture) {
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0})).Inside());
  EXPECT_FALSE(Watch(Megatron({3.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0}), 2).Inside());
}

// One line behind the first is no run of three, however short the log is.
TEST(Watch, AShortLogIsNoDeparture) {
  const Verdict verdict = Watch(Megatron({3.0, 1.7}));
  EXPECT_TRUE(verdict.Inside());
  EXPECT_EQ(verdict.outside, 1u);
  EXPECT_THAT(SummaryText(verdict, Plan()),
              testing::AllOf(HasSubstr("1 step, median 1.70 s"), HasSubstr("within --patience 3")));
  const Verdict impatient = Watch(Megatron({3.0, 1.7}), 1);
  ASSERT_EQ(impatient.departures.size(), 1u);
  EXPECT_THAT(DepartureText(impatient.departures[0], Plan()), HasSubstr(", 1 step\n"));
}

// A median outside the interval is not said to be inside.
TEST(Watch, StepsOutsideThatAreTooFewForThePatienceAreCounted) {
  std::vector<double> seconds(31, 1.0);
  seconds.resize(61, 1.3);
  const Verdict verdict = Watch(Megatron(seconds), 40);
  EXPECT_TRUE(verdict.Inside());
  const std::string text = SummaryText(verdict, Plan());
  EXPECT_THAT(text, HasSubstr("within --patience 40: 30 of them outside, never 40 in a row"));
  EXPECT_THAT(text, testing::Not(HasSubstr(": inside")));
  EXPECT_EQ(SummaryJson(verdict, Plan())["outside_steps"], 30);
}

// --timing-log-option all: rank 5 is slow since step 40, and the others wait for its gradients.
TEST(Watch, TimersOfRanksNameTheSlowOne) {
  std::string log;
  for (int row = 0; row < 8; ++row) {
    log += fmt::format(
        " iteration {}/ 100 | elapsed time per iteration (ms): {:.1f} | global batch size: 512 |\n"
        "times across ranks (ms):\n",
        row + 1, row < 4 ? 1000.0 : 1200.0);
    for (const bool sync : {false, true}) {
      log += sync ? "  all-grads-sync:\n" : "0:   forward-backward:\n";
      for (int rank = 0; rank < 8; ++rank)
        log += fmt::format("     rank {:2}: {:.2f}\n", rank,
                           row < 4               ? (sync ? 100.0 : 800.0)
                           : (rank == 5) != sync ? (sync ? 300.0 : 1000.0)
                                                 : (sync ? 100.0 : 800.0));
    }
  }
  const Verdict verdict = Watch(log);
  ASSERT_EQ(verdict.departures.size(), 1u);
  const Departure& one = verdict.departures[0];
  ASSERT_FALSE(one.reasons.empty());
  EXPECT_EQ(one.reasons[0].rank, 5);
  EXPECT_NEAR(one.reasons[0].factor, 1.25, 1e-9);
  EXPECT_THAT(DepartureText(one, Plan()),
              HasSubstr("rank 5 takes 1.25 times as long as the others in forward-backward"));
  EXPECT_EQ(DepartureJson(one)["fits"][0]["timer"], "forward-backward");
}

TEST(Watch, MegatronsStragglerLineNamesTheSlowestRank) {
  std::string log = Megatron({3.0, 1.0, 1.5, 1.5, 1.5});
  log +=
      " 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 800.08ms/3 | MxRtt/Rnk: "
      "1200.12ms/21 | MnPwr/Rnk: 601796W/8 | MxPwr/Rnk: 683801W/18\n";
  const Verdict verdict = Watch(log);
  ASSERT_EQ(verdict.departures.size(), 1u);
  EXPECT_EQ(verdict.departures[0].reasons.at(0).rank, 21);
  EXPECT_THAT(DepartureText(verdict.departures[0], Plan()),
              HasSubstr("rank 21 takes 1.50 times as long as the fastest (--log-straggler)"));
  const auto garbled =
      measured::ReadTrainingLog(Made(Megatron({3.0, 1.0}) + "| MxRtt/Rnk: much/21 |\n"));
  EXPECT_EQ(garbled.garbled_lines, 1);
}

TEST(Watch, SlowStepsApartCountByTheirMean) {
  std::vector<double> seconds = {1.0};
  for (int step = 1; step <= 40; ++step) seconds.push_back(step % 10 == 0 ? 3.0 : 1.0);
  const Verdict verdict = Watch(Megatron(seconds));
  ASSERT_EQ(verdict.departures.size(), 1u);
  const Departure& one = verdict.departures[0];
  EXPECT_TRUE(one.mean);
  EXPECT_EQ(one.side, Side::kSlower);
  EXPECT_EQ(one.steps, 4u);
  EXPECT_EQ(one.since, 110);
  EXPECT_NEAR(one.measured, 1.2, 1e-9);
  EXPECT_NEAR(one.extra_hours, 0.2 * 1000 / 3600, 1e-9);
  EXPECT_THAT(DepartureText(one, Plan()), HasSubstr("mean step time outside: 1.20 s (+20.0 %)"));
  // A snapshot now and then leaves the mean inside.
  seconds.resize(21);
  seconds[10] = 1.0;
  EXPECT_TRUE(Watch(Megatron(seconds)).Inside());
}

TEST(Watch, SaysThatItIsOverAndCountsFasterSteps) {
  const Verdict verdict = Watch(Megatron({3.0, 0.5, 0.5, 0.5, 1.0, 1.0}));
  ASSERT_EQ(verdict.departures.size(), 1u);
  EXPECT_EQ(verdict.departures[0].side, Side::kFaster);
  EXPECT_TRUE(verdict.departures[0].over);
  EXPECT_LT(verdict.departures[0].extra_hours, 0);
}

TEST(Watch, ATimerOfTheLogDecidesWhichTermFits) {
  std::string log = Megatron({3.0, 1.0, 1.5, 1.5, 1.5});
  log += "(min, max) time across ranks (ms):\n";
  log += "    all-grads-sync ...............................: (640.02, 650.00)\n";
  const Verdict verdict = Watch(log);
  ASSERT_EQ(verdict.departures.size(), 1u);
  EXPECT_EQ(verdict.departures[0].reasons[0].term, "data_exposed");
  EXPECT_TRUE(verdict.departures[0].reasons[0].measured);
}

TEST(Watch, ReadsTorchtitanWithTheTokensOfThePlan) {
  // 80,000 tokens a step over 8 GPUs: 10,000 tokens/s of a GPU are 1 s.
  std::string log;
  for (int step = 1; step <= 5; ++step)
    log += fmt::format(
        "step: {:2}  loss: 7.1  memory: {}GiB(57.0%)  tps: {}  tflops: 380.1  mfu: 38.4%\n", step,
        step < 4 ? "30.00" : "45.00", step == 1 ? "1,000" : "5,000");
  const Verdict verdict = Watch(log);
  ASSERT_EQ(verdict.departures.size(), 2u);
  EXPECT_NEAR(verdict.departures[0].measured, 2.0, 1e-9);
  EXPECT_EQ(verdict.departures[0].since, 2);
  EXPECT_TRUE(verdict.departures[1].memory);
  EXPECT_EQ(verdict.departures[1].since, 4);
}

// Megatron-LM prints it once, on the first rank of each replica.
TEST(Watch, ReadsTheMemoryOfMegatron) {
  const auto memory = [](const char* most) {
    return fmt::format(
        "[Rank 0] (after 20 iterations) memory (MB) | allocated: 21000.5 | max allocated: 30000.0 "
        "| "
        "reserved: 39000.0 | max reserved: 39000.0\n"
        "0: [Rank 4] (after 20 iterations) memory (MB) | allocated: 21000.5 | max allocated: {} | "
        "reserved: 39000.0 | max reserved: 39000.0\n",
        most);
  };
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.0, 1.0}) + memory("30001.0")).Inside());
  const Verdict verdict = Watch(Megatron({3.0, 1.0, 1.0, 1.0}) + memory("40000.0"));
  ASSERT_EQ(verdict.departures.size(), 1u);
  EXPECT_TRUE(verdict.departures[0].memory);
  EXPECT_EQ(verdict.departures[0].since, 20);
  EXPECT_DOUBLE_EQ(verdict.departures[0].measured, 40000.0 * 1048576);
  const auto garbled = measured::ReadTrainingLog(Made(Megatron({3.0, 1.0}) + memory("much")));
  EXPECT_EQ(garbled.garbled_lines, 1);
}

TEST(Watch, ComparesStepsOfThePlansBatchAlone) {
  const std::string before = Megatron({3.0, 1.0, 1.0, 1.0});
  std::string grown;  // a batch that grows, as Megatron ramps it up
  for (const double seconds : {0.5, 0.5, 0.5, 0.5}) {
    std::string row = Megatron({seconds});
    grown += row.replace(row.find("size: 512"), 9, "size: 256");
  }
  const Verdict verdict = Watch(grown + before);
  EXPECT_TRUE(verdict.Inside());
  EXPECT_EQ(verdict.other_batch, 4u);
  EXPECT_THAT(SummaryText(verdict, Plan()),
              HasSubstr("4 steps not counted: their global batch is 256, the plan's is "));
  EXPECT_EQ(SummaryJson(verdict, Plan())["other_batch_steps"], 4);
  try {
    Watch(grown);
    ADD_FAILURE() << "a log of another job was compared";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the log's global batch is 256, that of the plan 512"));
  }
}

std::string ErrorOf(const std::string& log) {
  try {
    Watch(log);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// What the lines of steps do not say, the rest of the log does.
TEST(Watch, RefusesALogOfOtherGpusOrAnotherBatch) {
  const std::string steps = Megatron({3.0, 1.0, 1.0, 1.0});
  EXPECT_THAT(ErrorOf("using world size: 16, data-parallel size: 16\n" + steps),
              testing::AllOf(HasSubstr("made:1"), HasSubstr("of 16 GPUs, the plan of 8")));
  EXPECT_EQ(ErrorOf("using world size: 8, data-parallel size: 8\n" + steps), "");
  std::string titan;
  for (int step = 1; step <= 2; ++step)
    titan += fmt::format(
        "step: {:2}  loss: 7.1  memory: 30.00GiB(50.0%)  tps: 10,000  tflops: 380.1  mfu: 38.4%\n",
        step);
  EXPECT_THAT(ErrorOf("Building 2-D device mesh with ['dp_shard', 'tp'], [4, 4]\n" + titan),
              testing::AllOf(HasSubstr("made:1"), HasSubstr("of 16 GPUs")));
  EXPECT_THAT(ErrorOf("\nTrainer is initialized with local batch size 8, global batch size 64, "
                      "sequence length 2048\n" +
                      titan),
              testing::AllOf(HasSubstr("made:2"), HasSubstr("batch is 64, that of the plan 512")));
  // Releases of Megatron-LM that print no batch count samples, and its arguments say it, too.
  std::string old;
  for (int step = 1; step <= 4; ++step)
    old += fmt::format(
        " iteration {}/ 100 | consumed samples: {} | elapsed time per iteration (ms): 1000.0 |\n",
        step, 256 * step);
  EXPECT_EQ(Watch(old).other_batch, 3u);  // the first row tells no difference
  EXPECT_THAT(ErrorOf("---- arguments ----\n  global_batch_size ...... 256\n"
                      "---- end of arguments ----\n" +
                      steps.substr(0, steps.find(" | global batch")) + " |\n"),
              testing::AllOf(HasSubstr("made:2"), HasSubstr("batch is 256")));
}

// torch.cuda counts what tensors take, or what the allocator keeps; neither holds the context of the device.
TEST(Watch, ComparesMemoryWithWhatTheLineCounts) {
  const auto titan = [](const char* gib) {
    std::string log;
    for (int step = 1; step <= 4; ++step)
      log += fmt::format(
          "step: {:2}  loss: 7.1  memory: {}GiB(50.0%)  tps: 10,000  tflops: 380.1  mfu: 38.4%\n",
          step, gib);
    return Watch(log);
  };
  EXPECT_TRUE(titan("38.00").Inside());  // 4.08e10 bytes reserved, 3.9e10 predicted
  const Verdict reserved = titan("38.50");
  ASSERT_EQ(reserved.departures.size(), 1u);
  EXPECT_DOUBLE_EQ(reserved.departures[0].predicted, 3.9e10);
  EXPECT_THAT(DepartureText(reserved.departures[0], Plan()), HasSubstr("reserved at most"));
  EXPECT_EQ(DepartureJson(reserved.departures[0])["kind"], "reserved");
  const Verdict allocated =
      Watch(Megatron({3.0, 1.0, 1.0, 1.0}) +
            "[Rank 0] (after 20 iterations) memory (MB) | allocated: 9.5 | max allocated: 36500.0 "
            "| reserved: 39000.0 | max reserved: 39000.0\n");
  ASSERT_EQ(allocated.departures.size(), 1u);  // below the total, above what tensors may take
  EXPECT_DOUBLE_EQ(allocated.departures[0].predicted, 3.6e10);
  EXPECT_EQ(allocated.departures[0].line, 5);  // that says so, not that of the step
  EXPECT_EQ(DepartureJson(allocated.departures[0])["kind"], "allocated");
  // Megatron prints both, and each has its own prediction.
  const Verdict both =
      Watch(Megatron({3.0, 1.0, 1.0, 1.0}) +
            "[Rank 0] (after 20 iterations) memory (MB) | allocated: 9.5 | max allocated: 36500.0 "
            "| reserved: 39000.0 | max reserved: 39500.0\n");
  ASSERT_EQ(both.departures.size(), 2u);
  EXPECT_FALSE(both.departures[0].reserved);
  EXPECT_TRUE(both.departures[1].reserved);
  EXPECT_DOUBLE_EQ(both.departures[1].measured, 39500.0 * 1048576);
  EXPECT_DOUBLE_EQ(both.departures[1].predicted, 3.9e10);
}

// LOG_RANK=0,1,2,3 prints a line of each, one step here in another order.
TEST(Watch, LinesOfTorchtitansRanksAreOneStep) {
  const auto lines = [](int step, const char* tps, const char* of_rank_2 = "30.00") {
    std::string text;
    for (const int rank : {0, 1, step % 2 == 0 ? 3 : 2, step % 2 == 0 ? 2 : 3})
      text += fmt::format(
          "[rank{}]:[titan] 2026-01-01 00:00:00,1 - root - INFO - step: {:2}  loss: 7.1  memory: "
          "{}GiB(50.0%)  tps: {}  tflops: 380.1  mfu: 38.4%\n",
          rank, step, rank == 2 ? of_rank_2 : "30.00", rank == 1 ? tps : "10,000");
    return text;
  };
  std::string log;
  for (int step = 1; step <= 10; ++step) log += lines(step, step == 5 ? "6,000" : "10,000");
  const Verdict one_slow = Watch(log);
  EXPECT_TRUE(one_slow.Inside());  // it is one, however many ranks print it
  EXPECT_EQ(one_slow.steps, 9u);
  EXPECT_EQ(one_slow.outside, 1u);
  // Steps after a restart, which counts from an earlier one, are steps of their own.
  EXPECT_EQ(Watch(log + lines(6, "10,000") + lines(7, "10,000")).steps, 11u);
  log.clear();
  for (int step = 1; step <= 4; ++step) log += lines(step, "10,000", step >= 3 ? "45.00" : "30.00");
  const Verdict memory = Watch(log);
  ASSERT_EQ(memory.departures.size(), 1u);
  const Departure& one = memory.departures[0];
  EXPECT_EQ(one.since, 3);
  EXPECT_EQ(one.line, 11);  // of rank 2
  EXPECT_THAT(DepartureText(one, Plan()), HasSubstr("45.0 GiB reserved at most on rank 2,"));
  EXPECT_EQ(DepartureJson(one)["ranks"], nlohmann::json::array({2}));
}

// torchrun counts the ranks of its node alone, and srun --label says whose node that is.
TEST(Watch, RanksOfSeveralNodesAreLocal) {
  const auto lines = [](int step, const std::vector<const char*>& labels, const char* full) {
    std::string text;
    for (const char* label : labels)
      text += fmt::format(
          "{}[titan] 2026-01-01 00:00:00,1 - root - INFO - step: {:2}  loss: 7.1  memory: "
          "{}GiB(50.0%)  tps: 10,000  tflops: 380.1  mfu: 38.4%\n",
          label, step, label == full ? "45.00" : "30.00");
    return text;
  };
  const auto watch = [&](const std::vector<const char*>& labels, const char* full, double nodes) {
    std::string log;
    for (int step = 1; step <= 4; ++step) log += lines(step, labels, full);
    Expectation plan = Plan();
    plan.nodes = nodes;
    const auto verdict = Judge(
        measured::ReadTrainingLog(std::make_shared<const Source>(Source{"l.log", log})), plan, 3);
    EXPECT_EQ(verdict.departures.size(), 1u);
    return verdict.departures.at(0);
  };
  const char *const plain = "[rank2]:", *const task = " 3: [rank2]:";
  EXPECT_THAT(DepartureText(watch({"[rank0]:", plain}, plain, 1), Plan()),
              HasSubstr(" on rank 2,"));
  const Departure local = watch({"[rank0]:", plain}, plain, 4);
  EXPECT_THAT(DepartureText(local, Plan()), HasSubstr(" on local rank 2 of a node,"));
  EXPECT_EQ(DepartureJson(local)["local_ranks"], nlohmann::json::array({2}));
  EXPECT_FALSE(DepartureJson(local).contains("ranks"));
  const Departure named = watch({"12: [rank2]:", " 3: [rank0]:", task}, task, 4);
  EXPECT_THAT(DepartureText(named, Plan()), HasSubstr(" on local rank 2 of task 3,"));
  EXPECT_EQ(DepartureJson(named)["tasks"], nlohmann::json::array({3}));
  EXPECT_EQ(named.of_ranks, 3u);
}

// Two nodes under srun without --label: "[rank0]:" is a rank of either, and the lines of one come late.
TEST(Watch, LinesThatComeLateAreNoRestart) {
  const auto line = [](const char* label, int step, int second, const char* tps = "10,000") {
    return fmt::format(
        "{}[titan] 2026-01-31 23:59:{:02},{:03} - root - INFO - step: {:2}  loss: 7.1  memory: "
        "30.00GiB(50.0%)  tps: {}  tflops: 380.1  mfu: 38.4%\n",
        label, second, second % 7, step, tps);
  };
  for (const char* label : {"[rank0]:", ""}) {
    std::string log = line(label, 1, 1);
    for (int step = 2; step <= 10; ++step) {
      // The other node's line of the step before, and now and then three at once.
      log += line(label, step, step);
      if (step % 4 == 0)
        for (int late = step - 3; late < step; ++late) log += line(label, late, late, "9,900");
    }
    const measured::TrainingLog read = measured::ReadTrainingLog(Made(log));
    std::vector<int64_t> steps;
    for (const auto& sample : read.steps) steps.push_back(sample.step);
    EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})) << label;
    EXPECT_EQ(read.steps[1].tokens_per_s_of_gpu, 9900.0);  // a step is as fast as its slowest rank
    // A restart prints its steps when all of them are over.
    EXPECT_EQ(Watch(log + line(label, 6, 50) + line(label, 7, 51)).steps, 11U) << label;
  }
}

// Every rank prints Megatron's line, and the launcher says whose it is; rank 2 is slow since step 4.
TEST(Watch, LabelledLinesOfMegatronsRanksAreOneStep) {
  for (const char* label : {"{}: ", " {}: ", "[rank{}]: ", "[default{}]:", "[1,{}]<stdout>:"}) {
    std::string log;
    for (int step = 1; step <= 8; ++step) {
      for (int rank = 0; rank < 4; ++rank)
        log += fmt::format(fmt::runtime(label), rank) +
               fmt::format(
                   " [2026-01-01 00:00:{:02}] iteration {:8}/ 100 | consumed samples: {} | elapsed "
                   "time per iteration (ms): {:.1f} | global batch size: 512 |\n",
                   step, step, 512 * step, step >= 4 && rank == 2 ? 1500.0 : 1000.0);
    }
    const Verdict verdict = Watch(log);
    EXPECT_EQ(verdict.steps, 7u) << label;
    ASSERT_EQ(verdict.departures.size(), 1u) << label;
    const Departure& one = verdict.departures[0];
    EXPECT_EQ(one.since, 4) << label;
    EXPECT_THAT(DepartureText(one, Plan()),
                HasSubstr("fits    rank 2 takes 1.50 times as long as the others\n"))
        << label;
    EXPECT_EQ(DepartureJson(one)["fits"][0]["rank"], 2) << label;
  }
}

// A timer of a labelled line is of that rank.
TEST(Watch, LabelledTimersOfMegatronAreOfARank) {
  std::string log;
  for (int step = 1; step <= 8; ++step) {
    for (int rank = 0; rank < 4; ++rank)
      log += fmt::format(
          "{0}: iteration {1}/ 100 | elapsed time per iteration (ms): {2:.1f} | global batch size: "
          "512 |\n{0}: time (ms) | forward-compute: {3:.1f} | backward-compute: 400.0\n",
          rank, step, step >= 4 ? 1500.0 : 1000.0, step >= 4 && rank == 1 ? 700.0 : 300.0);
  }
  const Verdict verdict = Watch(log);
  EXPECT_EQ(verdict.steps, 7u);
  ASSERT_EQ(verdict.departures.size(), 1u);
  EXPECT_THAT(DepartureText(verdict.departures[0], Plan()),
              HasSubstr("rank 1 takes 2.33 times as long as the others in forward-compute\n"));
}

// Rows of ranks differ: the rank whose steps take longest fits, in the steps outside alone.
TEST(Watch, LinesOfRanksNameTheSlowOne) {
  std::string csv = "step,step_time [ms],rank\n";
  std::string titan;
  for (int step = 1; step <= 12; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const bool slow = step >= 8 && rank == 3;
      csv += fmt::format("{},{},{}\n", step, slow ? 2000 : step >= 8 ? 1200 : 1000, rank);
      titan += fmt::format(
          "2: [rank{}]:[titan] 2026-01-01 00:00:{:02},000 - root - INFO - step: {:2}  loss: 7.1  "
          "memory: 30.00GiB(50.0%)  tps: {}  tflops: 380.1  mfu: 38.4%\n",
          rank, step, step, slow ? "5,000" : "10,000");
    }
  }
  const Verdict of_csv = Watch(csv);
  ASSERT_EQ(of_csv.departures.size(), 1u);
  EXPECT_EQ(of_csv.departures[0].since, 8);
  EXPECT_THAT(DepartureText(of_csv.departures[0], Plan()),
              HasSubstr("fits    rank 3 takes 1.67 times as long as the others\n"));
  Expectation nodes = Plan();
  nodes.nodes = 2;
  const Verdict of_titan = Judge(measured::ReadTrainingLog(Made(titan)), nodes, 3);
  ASSERT_EQ(of_titan.departures.size(), 1u);
  EXPECT_THAT(DepartureText(of_titan.departures[0], nodes),
              HasSubstr("fits    local rank 3 of task 2 takes 2.00 times as long as the others\n"));
  const nlohmann::ordered_json json = DepartureJson(of_titan.departures[0]);
  EXPECT_EQ(json["fits"][0]["local_rank"], 3);
  EXPECT_EQ(json["fits"][0]["task"], 2);
  // Where all are slow together, none is named.
  std::string even = "step,step_time [ms],rank\n";
  for (int step = 1; step <= 12; ++step)
    for (int rank = 0; rank < 4; ++rank)
      even += fmt::format("{},{},{}\n", step, step >= 8 ? 2000 + rank : 1000, rank);
  const Verdict together = Watch(even);
  ASSERT_EQ(together.departures.size(), 1u);
  EXPECT_EQ(together.departures[0].reasons.at(0).rank, -1);
}

TEST(Watch, ReadsDeepSpeedsThroughput) {
  std::string log;
  for (int step = 1; step <= 5; ++step)
    log += fmt::format(
        "[INFO] [timer.py:264:stop] epoch=0/micro_step={0}/global_step={0}, "
        "RunningAvgSamplesPerSec=500, CurrSamplesPerSec=256.0, MemAllocated=3.1GB, "
        "MaxMemAllocated=21.5GB\n",
        step);
  const Verdict verdict = Watch(log);
  ASSERT_EQ(verdict.departures.size(), 1u);
  EXPECT_NEAR(verdict.departures[0].measured, 2.0, 1e-9);
}

TEST(Watch, StepsAboveThePeakAreNamed) {
  std::string plan = kPlan;
  plan.insert(plan.find("\"step_time_s\""), "\"mfu_without_masked\": 0.4, ");
  const auto judged = [&](double seconds) {
    return Judge(measured::ReadTrainingLog(Made(Megatron({3.0, seconds, seconds, seconds}))),
                 ReadExpectation(Made(plan)), 3);
  };
  EXPECT_THAT(SummaryText(judged(0.3), Plan()),
              HasSubstr("no GPU does that: the median step would come to 133 % of the peak rate"));
  EXPECT_NEAR(SummaryJson(judged(0.3), Plan())["share_of_peak"].get<double>(), 4 / 3.0, 1e-9);
  EXPECT_THAT(SummaryText(judged(0.5), Plan()), testing::Not(HasSubstr("no GPU")));
  EXPECT_THAT(SummaryText(Watch(Megatron({3.0, 0.1, 0.1})), Plan()),
              testing::Not(HasSubstr("no GPU")));  // the prediction does not say
}

TEST(Watch, TextAndJsonSayTheSame) {
  const Verdict verdict = Watch(Megatron({3.0, 1.5, 1.5, 1.5}));
  EXPECT_THAT(DepartureText(verdict.departures[0], Plan()),
              testing::AllOf(HasSubstr("since step 20"), HasSubstr("+50.0 %"), HasSubstr("USD")));
  EXPECT_EQ(DepartureJson(verdict.departures[0])["since_step"], 20);
  EXPECT_EQ(SummaryJson(verdict, Plan())["inside"], false);
}

TEST(Watch, TakesTheFirstLayoutOfASearch) {
  const std::string plan = R"({"schema": "orrery.plan/1", "ranked": [{"step_time_s": 2,
    "step_time_interval_s": [1.8, 2.2]}, {"step_time_s": 3}]})";
  EXPECT_DOUBLE_EQ(ReadExpectation(Made(plan)).step, 2);
}

// It holds the prediction, "so a later log can be matched".
TEST(Watch, TakesTheRecordOfAnExport) {
  std::string plan = kPlan;
  const std::size_t at = plan.find("orrery.");
  ASSERT_NE(at, std::string::npos);
  plan.replace(at, plan.find('"', at) - at, "orrery.export/1");
  EXPECT_DOUBLE_EQ(ReadExpectation(Made(plan)).step, Plan().step);
}

TEST(Watch, RefusesAnIntervalFromHighToLow) {
  std::string plan = kPlan;
  plan.replace(plan.find("[0.9, 1.1]"), 10, "[9, 1]");
  EXPECT_THROW(ReadExpectation(Made(plan)), InputError);
}

TEST(Watch, RefusesWhatIsNoPrediction) {
  for (const char* text :
       {"", "[]", "{}", "{\"prediction\": {}}", "{\"ranked\": []}", "{\"prediction\": 3}",
        "{\"prediction\": {\"step_time_s\": 1}}",
        "{\"prediction\": {\"step_time_s\": 1, \"step_time_interval_s\": [\"a\", 2]}}"})
    EXPECT_THROW(ReadExpectation(Made(text)), InputError) << text;
}

}  // namespace
}  // namespace orrery::watch
