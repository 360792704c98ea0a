// SPDX-License-Identifier: Apache-2.0
// What `plan sweep` says of studies that it cannot read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::HasSubstr;

TEST(BadStudy, IsNamedWithItsLineInOneMessage) {
  const std::string folder = ScratchFolder();
  for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
           {"job: {model: gpt2-xl, topology: aws-p4d, node: [1, 2]}\n", "node"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {tp: [1, two]}\n", "'two'"},
           {"job: {model: [gpt2-xl, gpt9], topology: aws-p4d}\n", "gpt9"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {pp: 8..2}\n", "empty"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {pp: [1, 1]}\n", "twice"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {tp: 1..8 by -1}\n", "is no range"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {tp: 1..8 by 0}\n", "step of 1..8"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {tp: 1...8}\n", "is no range"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {tp: {a: 1}}\n", "not a map"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout:\n  tp:\n", "'tp' has no value"},
           {"job: {topology: aws-p4d}\nlayout: {tp: [1, 2]}\n", "names no model"},
           {"layout: {tp: [1, 2]}\n", "names no model"},
           {"job: {model: gpt2-xl}\nlayout: {tp: 1..99999 by 1, pp: 1..99999 by 1}\n",
            "values: 99999 of tp, 99999 of pp"},
           {"job: {model: gpt2-xl, topology: aws-p4d}\nlayout: {pp: two, tp: 1..8}\n", "two"}}) {
    WriteText(folder + "/study.yaml", text);
    const Outcome outcome =
        RunPlan({"sweep", folder + "/study.yaml", "--out", folder + "/rows.csv"});
    EXPECT_EQ(outcome.code, 2) << text;
    EXPECT_THAT(outcome.err, HasSubstr(said));
    EXPECT_THAT(outcome.err, HasSubstr("study.yaml:")) << text;
    EXPECT_EQ(outcome.err.find("error:"), outcome.err.rfind("error:")) << outcome.err;
  }
}

}  // namespace
}  // namespace orrery
