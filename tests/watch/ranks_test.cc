// SPDX-License-Identifier: Apache-2.0
// Lines that several ranks print: one step of all, and which rank is slow or full.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/watch/testing.h"

namespace orrery::watch {
namespace {

using testing::HasSubstr;

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
  const LogCheck one_slow = Watch(log);
  EXPECT_TRUE(one_slow.Inside());  // it is one, however many ranks print it
  EXPECT_EQ(one_slow.steps, 9u);
  EXPECT_EQ(one_slow.outside, 1u);
  // Steps after a restart, which counts from an earlier one, are steps of their own; its first one warms up.
  EXPECT_EQ(Watch(log + lines(6, "10,000") + lines(7, "10,000")).steps, 10u);
  log.clear();
  for (int step = 1; step <= 4; ++step) log += lines(step, "10,000", step >= 3 ? "45.00" : "30.00");
  const LogCheck memory = Watch(log);
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
    const auto check = CheckLog(
        measured::ReadTrainingLog(std::make_shared<const Source>(Source{"l.log", log})), plan, 3);
    EXPECT_EQ(check.departures.size(), 1u);
    return check.departures.at(0);
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
    // A restart prints its steps when all of them are over; its first one warms up.
    EXPECT_EQ(Watch(log + line(label, 6, 50) + line(label, 7, 51)).steps, 10U) << label;
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
    const LogCheck check = Watch(log);
    EXPECT_EQ(check.steps, 7u) << label;
    ASSERT_EQ(check.departures.size(), 1u) << label;
    const Departure& one = check.departures[0];
    EXPECT_EQ(one.since, 4) << label;
    EXPECT_THAT(DepartureText(one, Plan()),
                HasSubstr("fits    rank 2 takes 1.50 times as long as the others\n"))
        << label;
    EXPECT_EQ(DepartureJson(one)["fits"][0]["rank"], 2) << label;
  }
}

// `grep -n` puts numbers in front, too: no two of them are on one step.
TEST(Watch, NumbersOfLinesAreNoRanks) {
  std::string log;
  for (int step = 1; step <= 8; ++step)
    log += fmt::format(
        "{}: iteration {}/ 100 | elapsed time per iteration (ms): {} | global batch "
        "size: 512 |\n",
        100 + step, step, step >= 4 ? 1500 + 200 * (step % 2) : 1000);
  const LogCheck check = Watch(log);
  EXPECT_EQ(check.steps, 7u);
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_EQ(check.departures[0].reasons.at(0).term, "compute");
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
  const LogCheck check = Watch(log);
  EXPECT_EQ(check.steps, 7u);
  ASSERT_EQ(check.departures.size(), 1u);
  EXPECT_THAT(DepartureText(check.departures[0], Plan()),
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
  const LogCheck of_csv = Watch(csv);
  ASSERT_EQ(of_csv.departures.size(), 1u);
  EXPECT_EQ(of_csv.departures[0].since, 8);
  EXPECT_THAT(DepartureText(of_csv.departures[0], Plan()),
              HasSubstr("fits    rank 3 takes 1.67 times as long as the others\n"));
  Expectation nodes = Plan();
  nodes.nodes = 2;
  const LogCheck of_titan = CheckLog(measured::ReadTrainingLog(Made(titan)), nodes, 3);
  ASSERT_EQ(of_titan.departures.size(), 1u);
  EXPECT_THAT(DepartureText(of_titan.departures[0], nodes),
              HasSubstr("fits    local rank 3 of task 2 takes 2.00 times as long as the others\n"));
  const nlohmann::ordered_json json = DepartureJson(of_titan.departures[0]);
  EXPECT_EQ(json["fits"][0]["local_rank"], 3);
  EXPECT_EQ(json["fits"][0]["tasks"], nlohmann::json::array({2}));
  // All ranks of a node of two.
  std::string node;
  for (int step = 1; step <= 12; ++step)
    for (int rank = 0; rank < 4; ++rank)
      node += fmt::format(
          "{}: [rank{}]:[titan] 2026-01-01 00:00:{:02},000 - root - INFO - step: {:2}  loss: 7.1  "
          "memory: 30.00GiB(50.0%)  tps: {}  tflops: 380.1  mfu: 38.4%\n",
          rank / 2, rank % 2, step, step, step >= 8 && rank >= 2 ? "5,000" : "10,000");
  const LogCheck of_node = CheckLog(measured::ReadTrainingLog(Made(node)), nodes, 3);
  ASSERT_EQ(of_node.departures.size(), 1u);
  EXPECT_THAT(DepartureText(of_node.departures[0], nodes),
              HasSubstr("local ranks 0 of task 1, 1 of task 1 take 2.00 times as long as the "
                        "others\n"));
  // Where all are slow together, none is named.
  std::string even = "step,step_time [ms],rank\n";
  for (int step = 1; step <= 12; ++step)
    for (int rank = 0; rank < 4; ++rank)
      even += fmt::format("{},{},{}\n", step, step >= 8 ? 2000 + rank : 1000, rank);
  const LogCheck together = Watch(even);
  ASSERT_EQ(together.departures.size(), 1u);
  EXPECT_EQ(together.departures[0].reasons.at(0).rank, -1);
}

}  // namespace
}  // namespace orrery::watch
