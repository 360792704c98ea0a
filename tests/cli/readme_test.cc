// SPDX-License-Identifier: Apache-2.0
// The output in README.md is what the program prints today.
//
// The block after "$ ./plan ..." holds the first lines of the output, then "...". To write it anew:
// ORRERY_UPDATE_GOLDENS=1 build/tests/cli/cli_test
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

TEST(Readme, ShowsTheRealOutput) {
  const std::string path = std::string(ORRERY_SOURCE_DIR) + "/README.md";
  const std::string readme = ReadText(path);
  const std::string command = "$ ./plan --nodes 32 --model bert-1.5b\n", end = "...\n```";
  const std::size_t begin = readme.find(command);
  ASSERT_NE(begin, std::string::npos);
  const std::size_t first = begin + command.size(), last = readme.find(end, first);
  ASSERT_NE(last, std::string::npos);
  const std::string shown = readme.substr(first, last - first);

  const std::string out = RunPlan({"--nodes", "32", "--model", "bert-1.5b"}).out;
  // As many lines as the README shows.
  std::size_t length = 0;
  for (auto lines = std::count(shown.begin(), shown.end(), '\n'); lines > 0 && length < out.size();
       --lines) {
    length = std::min(out.find('\n', length), out.size() - 1) + 1;
  }
  const std::string now = out.substr(0, length);
  if (std::getenv("ORRERY_UPDATE_GOLDENS") != nullptr) {
    WriteText(path, readme.substr(0, first) + now + readme.substr(last));
  } else {
    EXPECT_EQ(shown, now);
  }
}

}  // namespace
}  // namespace orrery
