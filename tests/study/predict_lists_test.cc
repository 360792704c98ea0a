// SPDX-License-Identifier: Apache-2.0
// `plan predict` with lists and ranges: a row for each combination, as it predicts that one alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Predict, TakesTheSameLists) {
  const Outcome outcome =
      RunPlan({"predict", "--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "2",
               "--global-batch", "64,128", "--pp", "1..4", "--micro-batch", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json answer = json::parse(outcome.out);
  ASSERT_EQ(answer["table"].size(), 6u);
  const json& row = answer["table"][4];
  EXPECT_EQ(row["flags"]["pp"], "2");
  EXPECT_EQ(row["flags"]["global_batch"], "128");
  const json one =
      json::parse(RunPlan({"predict", "--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "2",
                           "--global-batch", "128", "--pp", "2", "--micro-batch", "2", "--json"})
                      .out);
  EXPECT_EQ(row["step_time_s"], one["prediction"]["step_time_s"]);
  EXPECT_EQ(row["layout"], one["prediction"]["layout"]);
  EXPECT_EQ(RunPlan({"predict", "--model", "gpt2-xl", "--topology", "aws-p4d", "--tp", "1,5",
                     "--html", ScratchFolder() + "/x.html"})
                .code,
            2);
}

// Beyond a search's limits a step is not simulated: such rows say so, one by one.
TEST(Predict, MarksRowsThatAreNotSimulated) {
  const std::vector<std::string> words = {
      "predict", "--model",     "gpt3-175b", "--topology",     "dgx-h100", "--nodes",
      "64",      "--tp",        "8",         "--pp",           "8,16",     "--micro-batch",
      "1",       "--recompute", "full",      "--global-batch", "256,65536"};
  const Outcome outcome = RunPlan(words);
  std::vector<std::string> more = words;
  more.push_back("--json");
  const json table = json::parse(RunPlan(more).out)["table"];
  int closed = 0, simulated = 0;
  std::istringstream lines(outcome.out);
  std::string line;
  while (std::getline(lines, line) && !line.starts_with("  row")) {
  }
  for (const json& row : table) {
    ASSERT_TRUE(std::getline(lines, line));
    const bool by_events = row["engine"] == "event";
    (by_events ? simulated : closed) += 1;
    EXPECT_EQ(line.find("in closed form") == line.npos, by_events) << line;
  }
  EXPECT_GT(closed, 0);
  EXPECT_GT(simulated, 0);
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("Step times: {} in closed form, marked so, {} "
                                                 "simulated",
                                                 closed, simulated)));
}

TEST(Predict, SaysThePlacementOfEachRow) {
  const auto words = [](const std::string& pp, const std::string& placement) {
    return std::vector<std::string>{
        "predict", "--model",     "gpt2-xl", "--topology",     "aws-p4d", "--nodes",
        "2",       "--pp",        pp,        "--zero",         "1",       "--micro-batch",
        "2",       "--placement", placement, "--global-batch", "64"};
  };
  const auto answer = [&](const std::string& pp, const std::string& placement) {
    std::vector<std::string> all = words(pp, placement);
    all.push_back("--json");
    return json::parse(RunPlan(all).out);
  };
  const Outcome outcome = RunPlan(words("1,2,4", "search"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("placement"));
  EXPECT_THAT(outcome.out, testing::AnyOf(HasSubstr("  default\n"), HasSubstr("% less\n")));
  const json table = answer("1,2,4", "search")["table"];
  ASSERT_EQ(table.size(), 3u);
  for (const json& row : table) {
    ASSERT_TRUE(row["placement"].is_object());
    EXPECT_EQ(row["placement"], answer(row["flags"]["pp"], "search")["placement"]);
  }
  for (const json& row : answer("2,4", "tp-cp-pp-dp")["table"]) {
    EXPECT_EQ(row["placement"]["placement"], "tp-cp-pp-dp");
    EXPECT_EQ(row["placement"]["given"], true);
  }
}

}  // namespace
}  // namespace orrery
