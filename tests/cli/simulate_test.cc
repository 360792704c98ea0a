// SPDX-License-Identifier: Apache-2.0
// `plan simulate`: text, JSON, trace, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Outcome Simulate(std::vector<std::string> more) {
  std::vector<std::string> words = {"simulate", "--model",        "gpt2-small", "--topology",
                                    "dgx-h100", "--nodes",        "2",          "--pp",
                                    "2",        "--micro-batch",  "4",          "--seq-len",
                                    "512",      "--global-batch", "64"};
  words.insert(words.end(), more.begin(), more.end());
  return RunPlan(words);
}

json SimulatedJson(std::vector<std::string> more) {
  more.push_back("--json");
  const Outcome outcome = Simulate(more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

TEST(SimulateCommand, PutsTheClosedFormBeside) {
  const Outcome outcome = Simulate({});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("closed form"));
  EXPECT_THAT(outcome.out, HasSubstr("Busiest links"));
  EXPECT_THAT(outcome.out, HasSubstr("Simulated 2 of 16 ranks"));
}

// Groups of tensors over two nodes of four GPUs share NICs with each other, in the closed form, too.
TEST(SimulateCommand, WithoutContentionBothEnginesAreWithoutIt) {
  const Outcome outcome = RunPlan({"simulate",
                                   "--model",
                                   "llama2-70b",
                                   "--topology",
                                   "kempner-h200",
                                   "--nodes",
                                   "4",
                                   "--framework",
                                   "torchtitan",
                                   "--tp",
                                   "8",
                                   "--pp",
                                   "1",
                                   "--zero",
                                   "2",
                                   "--micro-batch",
                                   "1",
                                   "--global-batch",
                                   "96",
                                   "--contention",
                                   "off",
                                   "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  const double step = result["step_time_s"], closed = result["closed_form_step_time_s"];
  EXPECT_NEAR(closed, step, 0.01 * step);  // 7 % apart before
  EXPECT_EQ(result["closed_form"]["step_time_s"], closed);
  EXPECT_EQ(result["closed_form"]["breakdown"]["contention_s"], 0.0);
}

TEST(SimulateCommand, RanksTimesAddUpToTheStep) {
  const json result = SimulatedJson({});
  EXPECT_EQ(result["schema"], "orrery.simulate/1");
  const double step = result["played_s"];
  EXPECT_NEAR(result["step_time_s"].get<double>(), step + result["fixed_s"].get<double>(), 1e-12);
  ASSERT_EQ(result["ranks"].size(), 2u);
  for (const json& rank : result["ranks"]) {
    double total = 0;
    for (const auto& [key, seconds] : rank["breakdown"].items())
      total += key == "hidden_s" ? 0 : seconds.get<double>();
    EXPECT_NEAR(total, result["step_time_s"].get<double>(), 1e-9 * step);
  }
}

TEST(SimulateCommand, MergedReplicasChangeNoTime) {
  const json merged = SimulatedJson({}), all = SimulatedJson({"--all-ranks"});
  EXPECT_EQ(all["executed_ranks"], 16);
  EXPECT_EQ(merged["step_time_s"], all["step_time_s"]);
}

// What is reported of a step of many micro-batches, of which some are simulated, is that of all of them.
struct ManyCase {
  const char* name;
  std::vector<std::string> flags;
  bool repeats;
};

class ManyMicroBatches : public testing::TestWithParam<ManyCase> {};

void ExpectSame(const json& found, const json& expected, double step, const std::string& where) {
  if (expected.is_number_float()) {
    EXPECT_NEAR(found.get<double>(), expected.get<double>(), 1e-10 * std::max(step, 1.0)) << where;
  } else if (expected.is_structured()) {
    ASSERT_EQ(found.size(), expected.size()) << where;
    for (const auto& [key, value] : expected.items()) {
      const json& other = expected.is_array() ? found[std::stoul(key)] : found[key];
      ExpectSame(other, value, step, where + "/" + key);
    }
  } else {
    EXPECT_EQ(found, expected) << where;
  }
}

json Reported(std::vector<std::string> flags) {
  std::vector<std::string> words = {"simulate", "--model",   "gpt2-small", "--topology",
                                    "dgx-h100", "--nodes",   "2",          "--pp",
                                    "2",        "--seq-len", "512",        "--json"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Outcome outcome = RunPlan(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

TEST_P(ManyMicroBatches, AreReportedAsIfAllWereSimulated) {
  const json some = Reported(GetParam().flags);
  std::vector<std::string> flags = GetParam().flags;
  flags.push_back("--all-ranks");
  const json all = Reported(flags);
  EXPECT_EQ(all["simulated_micro_batches"], all["prediction"]["micro_batches"]);
  EXPECT_EQ(some["simulated_micro_batches"] < all["simulated_micro_batches"], GetParam().repeats);
  const double step = all["step_time_s"];
  EXPECT_NEAR(some["step_time_s"].get<double>(), step, 1e-12 * step);
  for (const char* key : {"ranks", "contention_on_links"})
    ExpectSame(some[key], all[key], step, key);
  const json &path = some["critical_path"], &whole_path = all["critical_path"];
  for (const char* key : {"seconds_by_class", "tasks", "rank_changes"})
    ExpectSame(path[key], whole_path[key], step, key);
  ExpectSame(path["longest_stretches"][0], whole_path["longest_stretches"][0], step, "stretch");
  ASSERT_EQ(some["links"].size(), all["links"].size());
  for (std::size_t i = 0; i < some["links"].size(); ++i)
    EXPECT_NEAR(some["links"][i]["busy"].get<double>(), all["links"][i]["busy"].get<double>(),
                1e-12);
}

const ManyCase kMany[] = {
    {"one_f_one_b", {"--global-batch", "1992"}, true},
    {"interleaved",
     {"--global-batch", "2048", "--schedule", "interleaved", "--vpp", "3", "--micro-batch", "2"},
     true},
    {"zero_bubble",
     {"--global-batch", "2016", "--schedule", "zero-bubble", "--framework", "orrery"},
     true},
    {"zero_bubble_v",
     {"--global-batch", "1024", "--schedule", "zero-bubble-v", "--framework", "orrery"},
     false},
    {"gpipe", {"--global-batch", "1024", "--schedule", "gpipe", "--framework", "orrery"}, false},
    {"tensor", {"--tp", "4", "--zero", "1", "--global-batch", "500"}, true},
    {"prices", {"--global-batch", "1992", "--contention", "off"}, true},
    {"every_gpu_slow", {"--global-batch", "1992", "--slow-gpu", "0..15:1.2"}, true},
    {"one_gpu_slow", {"--tp", "4", "--global-batch", "500", "--slow-gpu", "3:1.3"}, true},
};
INSTANTIATE_TEST_SUITE_P(Layouts, ManyMicroBatches, testing::ValuesIn(kMany),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(SimulateCommand, ASlowGpuSlowsTheStep) {
  const double plain = SimulatedJson({})["step_time_s"];
  const double slow = SimulatedJson({"--slow-gpu", "3:4"})["step_time_s"];
  EXPECT_GT(slow, 1.1 * plain);
}

TEST(SimulateCommand, JitterFollowsItsSeed) {
  const auto step = [](const char* seed) {
    return SimulatedJson({"--jitter", "5%", "--seed", seed})["step_time_s"].get<double>();
  };
  EXPECT_EQ(step("1"), step("1"));
  EXPECT_NE(step("1"), step("2"));
}

TEST(SimulateCommand, WritesATraceAndNothingElse) {
  const std::string folder = ScratchFolder(), path = folder + "/step.json";
  const Outcome outcome = Simulate({"--trace", path});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(json::parse(ReadText(path))["traceEvents"].size(), 500u);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST(SimulateCommand, ATraceThatCannotBeWrittenIsAnError) {
  const Outcome outcome = Simulate({"--trace", "/nowhere/step.json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("cannot write '/nowhere/step.json': there is no folder '/nowhere'"));
}

TEST(SimulateCommand, NamesTheFlagThatIsWrong) {
  const std::pair<std::vector<std::string>, const char*> kWrong[] = {
      {{"--network", "fluit"}, "did you mean 'fluid'"},
      {{"--jitter", "lots"}, "write 2% or 0.02"},
      {{"--jitter", "101%"}, "out of range"},
      {{"--slow-gpu", "3"}, "no rank and factor"},
      {{"--slow-gpu", "3:0"}, "no rank and factor"},
      {{"--slow-gpu", "16:2"}, "ranks are 0 to 15"},
      {{"--tp", "7"}, "7"},
      {{"--seed", "-1"}, "too small"},
  };
  for (const auto& [words, message] : kWrong) {
    const Outcome outcome = Simulate(words);
    EXPECT_EQ(outcome.code, 2) << words[0] << " " << words[1];
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(SimulateCommand, RefusesWhatWouldTakeForever) {
  const Outcome outcome = Simulate({"--global-batch", "1e12"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
}

}  // namespace
}  // namespace orrery
