// SPDX-License-Identifier: Apache-2.0
// Commands and the exact text that they print, one file each in golden/.
//
// The first line of a file is the command, the rest its standard output, or its standard error when
// it fails. To write them anew: ORRERY_UPDATE_GOLDENS=1 build/tests/cli/cli_test
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

std::vector<std::string> GoldenFiles() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/tests/cli/golden")) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, PrintsTheSame) {
  const std::string golden = ReadText(GetParam());
  const std::string first = golden.substr(0, golden.find('\n'));
  std::istringstream words(first);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  ASSERT_GE(arguments.size(), 2u) << GetParam();
  ASSERT_EQ(arguments[1], "plan");
  arguments.erase(arguments.begin(), arguments.begin() + 2);
  const Outcome outcome = RunPlan(arguments);
  const std::string now =
      first + "\n" + (outcome.code == 0 || outcome.code == 3 ? outcome.out : outcome.err);
  if (std::getenv("ORRERY_UPDATE_GOLDENS") != nullptr) WriteText(GetParam(), now);
  EXPECT_EQ(ReadText(GetParam()), now);
}

INSTANTIATE_TEST_SUITE_P(Commands, GoldenTest, testing::ValuesIn(GoldenFiles()),
                         [](const auto& test) {
                           std::string name = std::filesystem::path(test.param).stem().string();
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace orrery
