// SPDX-License-Identifier: Apache-2.0
// The jobs of the systems that this project started from (scenarios/seeds): each is predicted and
// exported, and run as far as a rank can be a CPU process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/run_plan.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string PathOf(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/scenarios/seeds/" + name + ".yaml";
}

// How each was started, for which framework, and what its document printed: seconds of a step, within a
// share of that. 0: nothing that a step could be compared with.
struct Seed {
  const char* name;
  const char* target;
  const char* launcher;
  double seconds = 0, within = 0;
};
constexpr Seed kSeeds[] = {
    {"s2", "deepspeed", "torchrun", 0.4444, 0.33},
    {"s3", "deepspeed", "aws-batch"},
    // Their logs time windows without an optimizer step, and the queue of the host rather than the device.
    {"s4", "deepspeed", "torchrun"},
    {"s5", "deepspeed", "torchrun"},
    {"s6", "deepspeed", "torchrun"},
    {"s7", "deepspeed", "aws-batch"},
    {"s7-256", "deepspeed", "aws-batch"},
    {"s8", "ddp", "torchrun"},
    {"s8-nodes", "ddp", "pbs"},
    {"s9", "megatron", "slurm", 0.5373, 0.15},
    {"s11", "megatron", "slurm"},
    {"s12", "deepspeed", "mpirun"},
};
// Those that are not a step that fits.
constexpr const char* kBenchmark = "s1";
constexpr const char* kDoesNotFit = "s10";
// Several gigabytes and half a minute each.
const std::set<std::string> kLarge = {"s9", "s11"};

TEST(SeedScenarios, EveryFileIsTested) {
  std::set<std::string> files, tested = {kBenchmark, kDoesNotFit};
  for (const Seed& seed : kSeeds) tested.insert(seed.name);
  for (const auto& entry : fs::directory_iterator(fs::path(PathOf("s1")).parent_path()))
    files.insert(entry.path().stem());
  EXPECT_EQ(files, tested);
}

// `plan predict` of a scenario, asked once.
const Outcome& Predicted(const std::string& name) {
  static std::map<std::string, Outcome> known;
  const auto [at, fresh] = known.try_emplace(name);
  if (fresh) at->second = RunPlan({"predict", "--from", PathOf(name), "--json"});
  return at->second;
}

class EverySeed : public testing::TestWithParam<Seed> {};

TEST_P(EverySeed, IsPredicted) {
  const Seed& seed = GetParam();
  const Outcome& outcome = Predicted(seed.name);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const double seconds = json::parse(outcome.out)["prediction"]["step_time_s"];
  EXPECT_GT(seconds, 0);
  if (seed.seconds > 0) {
    EXPECT_NEAR(seconds / seed.seconds, 1, seed.within);
  }
}

TEST_P(EverySeed, IsSimulated) {
  const Outcome outcome = RunPlan({"simulate", "--from", PathOf(GetParam().name), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

TEST_P(EverySeed, IsExportedForItsLauncher) {
  const Seed& seed = GetParam();
  const std::string folder = ScratchFolder() + "/" + seed.name;
  const Outcome outcome = RunPlan({"export", "--from", PathOf(seed.name), "--to", seed.target,
                                   "--launcher", seed.launcher, "--out", folder});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json plan = json::parse(ReadText(folder + "/plan.json"));
  const json predicted = json::parse(Predicted(seed.name).out);
  // The layout of the file, not another one that would be faster.
  EXPECT_EQ(plan["prediction"]["strategy"]["dp"], predicted["prediction"]["strategy"]["dp"]);
  EXPECT_EQ(plan["prediction"]["strategy"]["tp"], predicted["prediction"]["strategy"]["tp"]);
  EXPECT_EQ(plan["prediction"]["strategy"]["zero"], predicted["prediction"]["strategy"]["zero"]);
}

// Rows of calib/data/seed_systems.csv and their scenarios describe the same run.
TEST(SeedScenarios, ArePredictedAsTheirRows) {
  const Outcome validated = RunPlan(
      {"validate", std::string(ORRERY_SOURCE_DIR) + "/calib/data/seed_systems.csv", "--json"});
  ASSERT_EQ(validated.code, 0) << validated.err;
  const json rows = json::parse(validated.out)["cases"];
  for (const auto& [scenario, row] :
       {std::pair{"s2", "s2-t5-small"}, {"s9", "s9-megatron-gpt"}, {"s12", "s12-gpt2-small"}}) {
    const auto found = std::ranges::find(
        rows, row, [](const json& one) { return one["case"].get<std::string>(); });
    ASSERT_NE(found, rows.end()) << row;
    const double seconds = json::parse(Predicted(scenario).out)["prediction"]["step_time_s"];
    EXPECT_NEAR(seconds / (*found)["predicted_step_s"].get<double>(), 1, 0.005) << scenario;
  }
}

std::vector<double> LossesOf(const std::string& name) {
  const Outcome outcome = RunPlan({"run", "--from", PathOf(name), "--comm", "local", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<double> losses;
  if (outcome.code != 0) return losses;
  const json record = json::parse(outcome.out);
  for (const json& step : record["steps"]) losses.push_back(step["loss"]);
  return losses;
}

TEST_P(EverySeed, RunsOnCpuRanksWhereItsFileSaysHow) {
  const std::string name = GetParam().name;
  if (ReadText(PathOf(name)).find("\nrun:") == std::string::npos)
    GTEST_SKIP() << "too large for CPU ranks";
  if (kLarge.contains(name) && FromEnvironment("ORRERY_LARGE_SEEDS", 0) == 0)
    GTEST_SKIP() << "in the slow tests";
  const std::vector<double> losses = LossesOf(name);
  ASSERT_FALSE(losses.empty());
  EXPECT_TRUE(std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); }));
}

INSTANTIATE_TEST_SUITE_P(Tree, EverySeed, testing::ValuesIn(kSeeds), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// S11 is S9 in another layout: the same losses.
TEST(SeedScenarios, TheSameModelInAnotherLayoutHasTheSameLosses) {
  if (FromEnvironment("ORRERY_LARGE_SEEDS", 0) == 0) GTEST_SKIP() << "in the slow tests";
  const std::vector<double> data = LossesOf("s9"), both = LossesOf("s11");
  ASSERT_EQ(data.size(), both.size());
  for (std::size_t i = 0; i < data.size(); ++i) EXPECT_NEAR(data[i] / both[i], 1, 1e-5);
}

TEST(SeedScenarios, AToyTrainsFor64Steps) {
  const std::vector<double> losses = LossesOf("s8");
  ASSERT_EQ(losses.size(), 64u);
  EXPECT_LT(losses.back(), losses.front());
}

TEST(SeedScenarios, WhatDoesNotFitIsRefusedWithItsMoment) {
  const Outcome outcome = RunPlan({"predict", "--from", PathOf(kDoesNotFit)});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("out of memory"));
  // An export finds another layout, and says so on the screen and in its files; of axes that flags fix, there is none.
  const fs::path folder = fs::path(testing::TempDir()) / "does-not-fit";
  const std::vector<std::string> words = {"export", "--from",       PathOf(kDoesNotFit),
                                          "--to",   "megatron",     "--force",
                                          "--out",  folder.string()};
  const Outcome exported = RunPlan(words);
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, AllOf(HasSubstr("recompute full"), HasSubstr("does not fit")));
  EXPECT_THAT(ReadText((folder / "train.sh").string()),
              HasSubstr("# Chosen by the search, as the files leave it open: recompute full"));
}

TEST(SeedScenarios, ABenchmarkIsOfPlanBench) {
  const Outcome wrong = RunPlan({"predict", "--from", PathOf(kBenchmark)});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("plan bench"));
  EXPECT_THAT(wrong.err, HasSubstr("plan bench --simulate --from"));
  const Outcome predicted = RunPlan({"bench", "--simulate", "--from", PathOf(kBenchmark)});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  const Outcome typed = RunPlan({"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu",
                                 "--nodes", "2", "-b", "8", "-e", "128M", "-f", "4"});
  EXPECT_EQ(predicted.out, typed.out);
  const Outcome run = RunPlan({"bench", "--from", PathOf(kBenchmark), "--comm", "local"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Out of bounds values : 0 OK"));
  const Outcome shorter =
      RunPlan({"bench", "--from", PathOf(kBenchmark), "--comm", "local", "-e", "8"});
  EXPECT_EQ(shorter.code, 0) << shorter.err;
  EXPECT_EQ(RunPlan({"bench", "--from", PathOf("s9")}).code, 2);
}

TEST(SeedScenarios, FlagsGoBeforeAndWrongKeysAreNamed) {
  const Outcome wider =
      RunPlan({"predict", "--from", PathOf("s9"), "--global-batch", "16", "--json"});
  ASSERT_EQ(wider.code, 0) << wider.err;
  EXPECT_EQ(json::parse(wider.out)["prediction"]["micro_batches"], 2);
  const std::string mine = ScratchFolder() + "/mine.yaml";
  WriteText(mine, "description: d\njob: {model: gpt2-small, topologie: dgx-h100}\n");
  const Outcome wrong = RunPlan({"predict", "--from", mine});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("mine.yaml:2:26"));
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'topology'"));
}

}  // namespace
}  // namespace orrery
