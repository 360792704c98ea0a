// SPDX-License-Identifier: Apache-2.0
// A log beside a prediction: what leaves the interval, since when, and what fits.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/watch/testing.h"

namespace orrery::watch {
namespace {

using testing::HasSubstr;

TEST(Watch, IsQuietInsideTheInterval) {
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.05, 0.95, 1.0})).Inside());  // the first step warms up
}

TEST(Watch, NamesTheStepFromWhichItIsSlower) {
  const LogCheck check = Watch(Megatron({3.0, 1.0, 1.0, 1.0, 1.5, 1.5, 1.5, 1.5}));
  ASSERT_EQ(check.departures.size(), 1u);
  const Departure& one = check.departures[0];
  EXPECT_EQ(one.side, Side::kSlower);
  EXPECT_EQ(one.since, 5);
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
  const LogCheck check = Watch(Megatron({3.0, 1.7}));
  EXPECT_TRUE(check.Inside());
  EXPECT_EQ(check.outside, 1u);
  EXPECT_THAT(SummaryText(check, Plan()),
              testing::AllOf(HasSubstr("1 step, median 1.70 s"), HasSubstr("within --patience 3")));
  const LogCheck impatient = Watch(Megatron({3.0, 1.7}), 1);
  ASSERT_EQ(impatient.departures.size(), 1u);
  EXPECT_THAT(DepartureText(impatient.departures[0], Plan()), HasSubstr(", 1 step\n"));
}

TEST(Watch, ALineCountsAsTheStepsThatItIsTheMeanOf) {
  const LogCheck two = Watch(Megatron({3.0, 1.5, 1.5}, 10));
  ASSERT_EQ(two.departures.size(), 1u);
  EXPECT_EQ(two.departures[0].steps, 20u);
  EXPECT_EQ(two.steps, 20u);
  // One line of a few steps may hold a snapshot; one of many is a mean.
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.0, 1.0, 1.5, 1.0, 1.0}, 10)).Inside());
  EXPECT_EQ(Watch(Megatron({3.0, 1.5}, 100)).departures.size(), 1u);
  EXPECT_TRUE(Watch(Megatron({3.0, 1.5, 1.5}, 10), 21).Inside());
  // Lines that are missing between two are none of the second.
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.0, 1.0}) +
                    " iteration 90/ 100 | elapsed time per iteration (ms): 1500 |\n")
                  .Inside());
  // All that the Trainer of HuggingFace prints without its bar.
  const LogCheck whole = Watch(
      "{'loss': 1.2, 'epoch': 0.1}\n{'train_runtime': 700.0, 'train_samples_per_second': 358.4, "
      "'train_steps_per_second': 0.7, 'train_loss': 1.2}\n");
  ASSERT_EQ(whole.departures.size(), 1u);
  EXPECT_EQ(whole.departures[0].steps, 490u);
}

std::string WithLosses(const std::vector<std::string>& losses) {
  std::string log = Megatron(std::vector<double>(losses.size(), 1.0));
  std::size_t at = 0;
  for (const std::string& loss : losses) {
    at = log.find("loss: ", at) + 6;
    log.replace(at, 7, loss);
  }
  return log;
}

TEST(Watch, SaysSinceWhenTheLossIsNoNumber) {
  const LogCheck lost = Watch(WithLosses({"2.0", "nan", "2.0", "nan", "NaN", "-inf"}));
  EXPECT_TRUE(lost.Inside());
  EXPECT_TRUE(lost.LossIsLost());
  EXPECT_THAT(SummaryText(lost, Plan()), HasSubstr("the loss is NaN since step 4 (line 4)\n"));
  EXPECT_EQ(LossJson(*lost.told.loss)["since_step"], 4);
  EXPECT_EQ(LossJson(*lost.told.loss)["lines"], 3);
  EXPECT_EQ(SummaryJson(lost, Plan())["loss_is_number"], false);
  const LogCheck back = Watch(WithLosses({"2.0", "2.0", "inf", "2.0"}));
  EXPECT_FALSE(back.LossIsLost());
  EXPECT_THAT(SummaryText(back, Plan()),
              HasSubstr("the loss was infinite on 1 line, first at step 3 (line 3), and is"));
  const LogCheck fine =
      Watch(WithLosses({"2.0", "1.9"}) + "loss scale: inf nancy loss: nanosecond\n");
  EXPECT_FALSE(fine.told.loss.has_value());
  EXPECT_THAT(Watch("{'loss': nan, 'epoch': 0.1}\n{'train_runtime': 490.0, "
                    "'train_samples_per_second': 512, 'train_steps_per_second': 1.0}\n")
                  .told.loss->line,
              1);
}

// A median outside the interval is not said to be inside.
TEST(Watch, StepsOutsideThatAreTooFewForThePatienceAreCounted) {
  std::vector<double> seconds(31, 1.0);
  seconds.resize(61, 1.3);
  const LogCheck check = Watch(Megatron(seconds), 40);
  EXPECT_TRUE(check.Inside());
  const std::string text = SummaryText(check, Plan());
  EXPECT_THAT(text, HasSubstr("within --patience 40: 30 of them outside, never 40 in a row"));
  EXPECT_THAT(text, testing::Not(HasSubstr(": inside")));
  EXPECT_EQ(SummaryJson(check, Plan())["outside_steps"], 30);
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
  const LogCheck check = Watch(log);
  ASSERT_EQ(check.departures.size(), 1u);
  const Departure& one = check.departures[0];
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
  const LogCheck check = Watch(log);
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_EQ(check.departures[0].reasons.at(0).rank, 21);
  EXPECT_THAT(DepartureText(check.departures[0], Plan()),
              HasSubstr("rank 21 takes 1.50 times as long as the fastest (--log-straggler)"));
  const auto garbled =
      measured::ReadTrainingLog(Made(Megatron({3.0, 1.0}) + "| MxRtt/Rnk: much/21 |\n"));
  EXPECT_EQ(garbled.garbled_lines, 1);
}

TEST(Watch, SlowStepsApartCountByTheirMean) {
  std::vector<double> seconds = {1.0};
  for (int step = 1; step <= 40; ++step) seconds.push_back(step % 10 == 0 ? 3.0 : 1.0);
  const LogCheck check = Watch(Megatron(seconds));
  ASSERT_EQ(check.departures.size(), 1u);
  const Departure& one = check.departures[0];
  EXPECT_TRUE(one.mean);
  EXPECT_EQ(one.side, Side::kSlower);
  EXPECT_EQ(one.steps, 4u);
  EXPECT_EQ(one.since, 11);
  EXPECT_NEAR(one.measured, 1.2, 1e-9);
  EXPECT_NEAR(one.extra_hours, 0.2 * 1000 / 3600, 1e-9);
  EXPECT_THAT(DepartureText(one, Plan()), HasSubstr("mean step time outside: 1.20 s (+20.0 %)"));
  // A snapshot now and then leaves the mean inside.
  seconds.resize(21);
  seconds[10] = 1.0;
  EXPECT_TRUE(Watch(Megatron(seconds)).Inside());
}

TEST(Watch, SaysThatItIsOverAndCountsFasterSteps) {
  const LogCheck check = Watch(Megatron({3.0, 0.5, 0.5, 0.5, 1.0, 1.0}));
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_EQ(check.departures[0].side, Side::kFaster);
  EXPECT_TRUE(check.departures[0].over);
  EXPECT_LT(check.departures[0].extra_hours, 0);
}

TEST(Watch, ATimerOfTheLogDecidesWhichTermFits) {
  std::string log = Megatron({3.0, 1.0, 1.5, 1.5, 1.5});
  log += "(min, max) time across ranks (ms):\n";
  log += "    all-grads-sync ...............................: (640.02, 650.00)\n";
  const LogCheck check = Watch(log);
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_EQ(check.departures[0].reasons[0].term, "data_exposed");
  EXPECT_TRUE(check.departures[0].reasons[0].measured);
}

TEST(Watch, ReadsTorchtitanWithTheTokensOfThePlan) {
  // 80,000 tokens a step over 8 GPUs: 10,000 tokens/s of a GPU are 1 s.
  std::string log;
  for (int step = 1; step <= 5; ++step)
    log += fmt::format(
        "step: {:2}  loss: 7.1  memory: {}GiB(57.0%)  tps: {}  tflops: 380.1  mfu: 38.4%\n", step,
        step < 4 ? "30.00" : "45.00", step == 1 ? "1,000" : "5,000");
  const LogCheck check = Watch(log);
  ASSERT_EQ(check.departures.size(), 2u);
  EXPECT_NEAR(check.departures[0].measured, 2.0, 1e-9);
  EXPECT_EQ(check.departures[0].since, 2);
  EXPECT_TRUE(check.departures[1].memory);
  EXPECT_EQ(check.departures[1].since, 4);
}

// Megatron-LM prints it once, on the first rank of each replica.
TEST(Watch, ReadsTheMemoryOfMegatron) {
  const auto memory = [](const char* most) {
    return fmt::format(
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 21000.5 | max allocated: 30000.0 "
        "| "
        "reserved: 39000.0 | max reserved: 39000.0\n"
        "0: [Rank 4] (after 2 iterations) memory (MB) | allocated: 21000.5 | max allocated: {} | "
        "reserved: 39000.0 | max reserved: 39000.0\n",
        most);
  };
  EXPECT_TRUE(Watch(Megatron({3.0, 1.0, 1.0, 1.0}) + memory("30001.0")).Inside());
  const LogCheck check = Watch(Megatron({3.0, 1.0, 1.0, 1.0}) + memory("40000.0"));
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_TRUE(check.departures[0].memory);
  EXPECT_EQ(check.departures[0].since, 2);
  EXPECT_DOUBLE_EQ(check.departures[0].measured, 40000.0 * 1048576);
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
  const LogCheck check = Watch(grown + before);
  EXPECT_TRUE(check.Inside());
  EXPECT_EQ(check.told.other_batch, 4u);
  EXPECT_THAT(SummaryText(check, Plan()),
              HasSubstr("4 steps are not counted: the global batch is 256 there"));
  EXPECT_EQ(SummaryJson(check, Plan())["other_batch_steps"], 4);
  std::string half = grown;
  half.replace(half.find("size: 256"), 9, "size: 128");
  EXPECT_THAT(
      SummaryText(Watch(half + before), Plan()),
      HasSubstr(
          "4 steps are not counted: the global batch is 128 to 256 there: 1 of 128, 3 of 256\n"));
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
  EXPECT_EQ(Watch(old).told.other_batch, 3u);  // the first row tells no difference
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
  const LogCheck reserved = titan("38.50");
  ASSERT_EQ(reserved.departures.size(), 1u);
  EXPECT_DOUBLE_EQ(reserved.departures[0].predicted, 3.9e10);
  EXPECT_THAT(DepartureText(reserved.departures[0], Plan()), HasSubstr("reserved at most"));
  EXPECT_EQ(DepartureJson(reserved.departures[0])["kind"], "reserved");
  const LogCheck allocated =
      Watch(Megatron({3.0, 1.0, 1.0, 1.0}) +
            "[Rank 0] (after 2 iterations) memory (MB) | allocated: 9.5 | max allocated: 36500.0 "
            "| reserved: 39000.0 | max reserved: 39000.0\n");
  ASSERT_EQ(allocated.departures.size(), 1u);  // below the total, above what tensors may take
  EXPECT_DOUBLE_EQ(allocated.departures[0].predicted, 3.6e10);
  EXPECT_EQ(allocated.departures[0].line, 5);  // that says so, not that of the step
  EXPECT_EQ(DepartureJson(allocated.departures[0])["kind"], "allocated");
  // Megatron prints both, and each has its own prediction.
  const LogCheck both =
      Watch(Megatron({3.0, 1.0, 1.0, 1.0}) +
            "[Rank 0] (after 2 iterations) memory (MB) | allocated: 9.5 | max allocated: 36500.0 "
            "| reserved: 39000.0 | max reserved: 39500.0\n");
  ASSERT_EQ(both.departures.size(), 2u);
  EXPECT_FALSE(both.departures[0].reserved);
  EXPECT_TRUE(both.departures[1].reserved);
  EXPECT_DOUBLE_EQ(both.departures[1].measured, 39500.0 * 1048576);
  EXPECT_DOUBLE_EQ(both.departures[1].predicted, 3.9e10);
}

TEST(Watch, ReadsDeepSpeedsThroughput) {
  std::string log;
  for (int step = 1; step <= 5; ++step)
    log += fmt::format(
        "[INFO] [timer.py:264:stop] epoch=0/micro_step={0}/global_step={0}, "
        "RunningAvgSamplesPerSec=500, CurrSamplesPerSec=256.0, MemAllocated=3.1GB, "
        "MaxMemAllocated=21.5GB\n",
        step);
  const LogCheck check = Watch(log);
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_NEAR(check.departures[0].measured, 2.0, 1e-9);
}

TEST(Watch, StepsAboveThePeakAreNamed) {
  std::string plan = kPlan;
  plan.insert(plan.find("\"step_time_s\""), "\"mfu_without_masked\": 0.4, ");
  const auto checked = [&](double seconds) {
    return CheckLog(measured::ReadTrainingLog(Made(Megatron({3.0, seconds, seconds, seconds}))),
                    ReadExpectation(Made(plan)), 3);
  };
  EXPECT_THAT(SummaryText(checked(0.3), Plan()),
              HasSubstr("no GPU does that: the median step would come to 133 % of the peak rate"));
  EXPECT_NEAR(SummaryJson(checked(0.3), Plan())["share_of_peak"].get<double>(), 4 / 3.0, 1e-9);
  EXPECT_THAT(SummaryText(checked(0.5), Plan()), testing::Not(HasSubstr("no GPU")));
  EXPECT_THAT(SummaryText(Watch(Megatron({3.0, 0.1, 0.1})), Plan()),
              testing::Not(HasSubstr("no GPU")));  // the prediction does not say
}

TEST(Watch, TextAndJsonSayTheSame) {
  const LogCheck check = Watch(Megatron({3.0, 1.5, 1.5, 1.5}));
  EXPECT_THAT(DepartureText(check.departures[0], Plan()),
              testing::AllOf(HasSubstr("since step 2 "), HasSubstr("+50.0 %"), HasSubstr("USD")));
  EXPECT_EQ(DepartureJson(check.departures[0])["since_step"], 2);
  EXPECT_EQ(SummaryJson(check, Plan())["inside"], false);
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
