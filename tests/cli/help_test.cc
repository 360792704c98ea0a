// SPDX-License-Identifier: Apache-2.0
// The help texts that ./plan shows before anything is built are those that the programs print.
//
// To write them anew: ORRERY_UPDATE_GOLDENS=1 build/tests/cli/cli_test --gtest_filter='*HelpText*'
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/program/common/program.h"
#include "model/program/plan/commands.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

const std::filesystem::path kFolder =
    std::filesystem::path(ORRERY_SOURCE_DIR) / "model/program/help";

// From a file's name to the words that print its text. Names of no command begin with "_", as in ./plan.
std::map<std::string, std::vector<std::string>> HelpTexts() {
  std::map<std::string, std::vector<std::string>> texts = {
      {"_plan", {"--help"}}, {"_bench-kernels", {"bench", "gemm", "--help"}}};
  for (const std::string& name : cli::CommandNames()) texts[name] = {"help", name};
  return texts;
}

class HelpText : public testing::TestWithParam<std::string> {};

TEST_P(HelpText, IsWhatTheProgramPrints) {
  const std::string path = (kFolder / (GetParam() + ".txt")).string();
  const Outcome outcome = RunPlan(HelpTexts().at(GetParam()));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  if (std::getenv("ORRERY_UPDATE_GOLDENS") != nullptr) WriteText(path, outcome.out);
  EXPECT_EQ(ReadText(path), outcome.out) << "run with ORRERY_UPDATE_GOLDENS=1";
}

// `plan NAME --help` is answered by the program of the command, `plan help NAME` by `plan`.
TEST_P(HelpText, IsTheSameFromTheCommand) {
  const std::string name = GetParam();
  if (name.starts_with("_")) return;
  const cli::Command* command = cli::FindCommand(name);
  if (command->run == nullptr && !std::filesystem::exists(ProgramPath("plan-" + name)))
    GTEST_SKIP() << "plan-" << name << " is not built: its libraries are missing";
  EXPECT_EQ(RunPlan({name, "--help"}).out, ReadText((kFolder / (name + ".txt")).string()));
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& [name, words] : HelpTexts()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, HelpText, testing::ValuesIn(Names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return "Of" + name;
});

TEST(HelpTexts, NoFileIsLeftOver) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".txt") files.insert(entry.path().stem().string());
  }
  const std::vector<std::string> names = Names();
  EXPECT_EQ(files, std::set<std::string>(names.begin(), names.end()));
}

}  // namespace
}  // namespace orrery
