// SPDX-License-Identifier: Apache-2.0
// Scenario files: each in scenarios/ prints the text beside it; flags go before; errors have
// places.
//
// To write the texts anew: ORRERY_UPDATE_GOLDENS=1 build/tests/cli/perturbation_test
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> ScenariosInTree() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/scenarios")) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class EveryScenario : public testing::TestWithParam<std::string> {};

TEST_P(EveryScenario, PrintsTheTextBesideIt) {
  const std::string golden = std::string(ORRERY_SOURCE_DIR) + "/scenarios/" + GetParam() + ".txt";
  const Outcome outcome = RunPlan({"simulate", "--scenario", GetParam()});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string now =
      std::regex_replace(outcome.out, std::regex(", [^,]* of computing\\s+time"), "");
  if (std::getenv("ORRERY_UPDATE_GOLDENS") != nullptr) WriteText(golden, now);
  EXPECT_EQ(ReadText(golden), now);
}

TEST_P(EveryScenario, CostsTime) {
  const Outcome outcome = RunPlan({"simulate", "--scenario", GetParam(), "--json"});
  const json result = json::parse(outcome.out);
  EXPECT_GT(result["step_time_s"].get<double>(), result["undisturbed_step_time_s"].get<double>());
  EXPECT_NE(result["scenario"], "");
}

INSTANTIATE_TEST_SUITE_P(Tree, EveryScenario, testing::ValuesIn(ScenariosInTree()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

const char* const kScenario =
    "description: d\n"
    "job: {model: gpt2-small, topology: dgx-h100, nodes: 2, global_batch: 64}\n"
    "layout: {micro_batch: 4}\n"
    "perturbations:\n"
    "  jitter: 2%\n"
    "  seed: 3\n"
    "  slow_gpus: [{rank: 3, factor: 1.5}]\n"
    "  degraded_links: [{link: n0.nic0 -> leaf0, share: 0.5}]\n"
    "  failed_nics: [n0.nic1]\n";

Outcome RunScenario(const std::string& text, std::vector<std::string> more = {}) {
  const std::string path = ScratchFolder() + "/mine.yaml";
  WriteText(path, text);
  std::vector<std::string> words = {"simulate", "--scenario", path};
  words.insert(words.end(), more.begin(), more.end());
  return RunPlan(words);
}

std::string Perturbation(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out)["perturbation"].get<std::string>() : "";
}

TEST(Scenario, SaysTheSameAsFlags) {
  const json of_file = json::parse(RunScenario(kScenario, {"--json"}).out);
  const Outcome flags = RunPlan({"simulate",
                                 "--model",
                                 "gpt2-small",
                                 "--topology",
                                 "dgx-h100",
                                 "--nodes",
                                 "2",
                                 "--global-batch",
                                 "64",
                                 "--micro-batch",
                                 "4",
                                 "--jitter",
                                 "2%",
                                 "--seed",
                                 "3",
                                 "--slow-gpu",
                                 "3:1.5",
                                 "--degraded-link",
                                 "n0.nic0 -> leaf0:0.5",
                                 "--failed-nic",
                                 "n0.nic1",
                                 "--json"});
  const json of_flags = json::parse(flags.out);
  EXPECT_EQ(of_file["step_time_s"], of_flags["step_time_s"]);
  EXPECT_EQ(of_file["perturbation"], of_flags["perturbation"]);
}

TEST(Scenario, FlagsGoBefore) {
  const Outcome outcome =
      RunScenario(kScenario, {"--jitter", "1%", "--slow-gpu", "5:2", "--failed-nic", "1:nic2",
                              "--degraded-link", "n1.nic0 -> leaf0:10%", "--nodes", "4",
                              "--micro-batch", "2", "--json"});
  EXPECT_EQ(
      Perturbation(outcome),
      "jitter 1 % (seed 3), rank 5 2 times as slow, n1.nic0 -> leaf0 at 10 %, n1.nic2 failed");
  EXPECT_EQ(json::parse(outcome.out)["plan_ranks"], 32);
}

TEST(Scenario, JobAndLayoutMayComeFromFlagsAlone) {
  const Outcome outcome = RunScenario("description: d\nperturbations: {failed_nics: [n0.nic1]}\n",
                                      {"--model", "gpt2-small", "--topology", "dgx-h100", "--nodes",
                                       "2", "--global-batch", "64", "--json"});
  EXPECT_EQ(Perturbation(outcome), "n0.nic1 failed");
}

TEST(Scenario, NamesThePlaceOfWhatIsWrong) {
  const struct {
    const char* from;
    const char* to;
    const char* place;
    const char* message;
  } kWrong[] = {
      {"gpt2-small", "gpt2-smal", ":2:14", "gpt2-small"},
      {"dgx-h100", "dgx-h10", ":2:36", "dgx-h100"},
      {"nodes: 2", "nodes: 0", ":2:53", "0 is too small"},
      {"nodes: 2", "node: 2", ":2:46", "'nodes'"},
      {"micro_batch: 4", "micro_batch: ''", ":3:23", "is empty"},
      {"micro_batch: 4", "tp: 3", ":3:14", "do not divide"},
      {"jitter: 2%", "jitter: lots", ":5:11", "write 2% or 0.02"},
      {"seed: 3", "seed: -3", ":6:9", "out of range"},
      {"rank: 3", "rank: 9..3", ":7:22", "write 3, or 8..15"},
      {"rank: 3", "rank: 16", ":7:22", "ranks are 0 to 15"},
      {"factor: 1.5", "factor: 0", ":7:33", "out of range"},
      {"factor: 1.5", "fector: 1.5", ":7:25", "did you mean 'factor'"},
      {"n0.nic0 -> leaf0", "n0.nic0 -> laef0", ":8:27", "did you mean 'n0.nic0 -> leaf0'"},
      {"share: 0.5", "share: 0", ":8:52", "n0.nic0 -> leaf0 would have no bandwidth"},
      {"[n0.nic1]", "[n0.nic8]", ":9:17", "NICs are 0 to 7"},
      {"[n0.nic1]", "[nic1]", ":9:17", "write NODE:NIC"},
      {"[n0.nic1]", "n0.nic1", ":9:16", "expected a list"},
      {"perturbations:", "perturbation:", ":4:1", "did you mean 'perturbations'"},
      {"description: d\n", "", "", "'description' is missing"},
      {"slow_gpus: [{", "slow_gpus: [", ":7:", "error"},
  };
  for (const auto& wrong : kWrong) {
    SCOPED_TRACE(wrong.to);
    std::string text = kScenario;
    text.replace(text.find(wrong.from), std::string(wrong.from).size(), wrong.to);
    const Outcome outcome = RunScenario(text);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(std::string("mine.yaml") + wrong.place));
    EXPECT_THAT(outcome.err, HasSubstr(wrong.message));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

TEST(Scenario, ThatIsNotThereIsRefused) {
  const Outcome name = RunPlan({"simulate", "--scenario", "failed-nik"});
  EXPECT_EQ(name.code, 2);
  EXPECT_THAT(name.err, HasSubstr("did you mean 'failed-nic'"));
  const Outcome path = RunPlan({"simulate", "--scenario", "nowhere/my.yaml"});
  EXPECT_EQ(path.code, 2);
  EXPECT_THAT(path.err, HasSubstr("nowhere/my.yaml"));
}

// Of a plan text, which says what is trained and how, a scenario perturbs the step.
TEST(ScenarioFiles, PerturbAPlanText) {
  const Outcome plan = RunPlan({"show", "--model", "gpt2-micro", "--topology", "aws-p4d", "--nodes",
                                "1", "--micro-batch", "1", "--ir"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const std::string file = testing::TempDir() + "orrery-scenario-plan.txt";
  std::ofstream(file) << plan.out;
  const Outcome outcome = RunPlan(
      {"simulate", file, "--topology", "aws-p4d", "--nodes", "1", "--scenario", "failed-nic"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("n0.nic3 failed"));
}

}  // namespace
}  // namespace orrery
