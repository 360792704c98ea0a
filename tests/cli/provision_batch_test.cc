// SPDX-License-Identifier: Apache-2.0
// `plan provision`: which batches are searched; `plan --tokens`: input-bound runs of several clusters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(Provision, ARangeOfBatchesIsSearchedAsTheAdvisedOne) {
  const std::vector<std::string> words = {"provision", "--model",     "llama3-8b", "--tokens", "2T",
                                          "--offers",  "crusoe-h100", "--nodes",   "4,96"};
  const json advised = JsonOf(words);
  const auto tokens = advised["question"]["batch_tokens"];
  const auto sequences = [&](int end) { return tokens[end].get<double>() / 8192; };
  const std::string range = std::to_string(static_cast<int>(std::ceil(sequences(0)))) + ".." +
                            std::to_string(static_cast<int>(sequences(1)));
  const json given = JsonOf(With(words, {"--global-batch", range}));
  ASSERT_EQ(advised["answers"].size(), given["answers"].size());
  for (std::size_t i = 0; i < given["answers"].size(); ++i) {
    EXPECT_EQ(advised["answers"][i]["plan"]["global_batch"],
              given["answers"][i]["plan"]["global_batch"]);
    EXPECT_EQ(advised["answers"][i]["time_s"], given["answers"][i]["time_s"]);
  }
  // A list is of its numbers alone.
  const json listed = JsonOf(With(words, {"--global-batch", "384,400"}));
  for (const json& row : listed["answers"]) {
    const int64_t batch = row["plan"]["global_batch"];
    EXPECT_TRUE(batch == 384 || batch == 400) << batch;
  }
}

// No run of so many tokens was published: the words do not say that one was.
TEST(Provision, MoreTokensThanPublishedRunsHadAreExtrapolated) {
  const std::string words = "extrapolated: published dense runs had up to 15.6 trillion tokens";
  const std::string fewer =
      "extrapolated: no published dense run had fewer than 180 billion tokens";
  EXPECT_THAT(JsonOf({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                      "crusoe-h100", "--nodes", "4"})["question"]["batch_words"]
                  .get<std::string>(),
              HasSubstr(fewer));
  for (const char* tokens : {"15T", "100T", "1e16"}) {
    const bool beyond = std::string(tokens) != "15T";
    const json provision = JsonOf({"provision", "--model", "gpt2-xl", "--tokens", tokens,
                                   "--offers", "crusoe-h100", "--nodes", "1"});
    EXPECT_LE(provision["question"]["batch_tokens"][1], 16777216) << tokens;
    EXPECT_THAT(provision["question"]["batch_words"].get<std::string>(),
                HasSubstr(beyond ? words : "of 15.0 trillion tokens, scaled with tokens^0.47"));
    const Outcome plan = RunPlan({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
                                  "--tokens", tokens, "--refine", "0"});
    EXPECT_THAT(Folded(plan.out),
                HasSubstr(beyond ? words : "of 15.0 trillion tokens, scaled with tokens^0.47"));
  }
}

// By hand: 250 B tokens, 6 M x (250 / 300)^2 = 4.17 M; 2 T by the exponent, 16.8 M x (2 / 15)^0.47 = 6.51 M.
TEST(Provision, TheRunThatSetsTheLargestBatchIsNamed) {
  const auto words = [](const char* tokens) {
    return JsonOf({"provision", "--model", "gpt2-xl", "--tokens", tokens, "--offers", "crusoe-h100",
                   "--nodes", "1"})["question"]["batch_words"]
        .get<std::string>();
  };
  EXPECT_THAT(words("250B"),
              AllOf(HasSubstr("to 4.17 M tokens per step"),
                    HasSubstr("at most Gopher's 6.00 M of 300 billion tokens, less with "
                              "the square of fewer tokens")));
  EXPECT_THAT(words("400B"), EndsWith("at most Gopher's 6.00 M"));
  EXPECT_THAT(words("178B"), AllOf(HasSubstr("fewer than 180 billion tokens"),
                                   HasSubstr("at most Gopher's 6.00 M of 300 billion tokens")));
  EXPECT_THAT(words("30B"), HasSubstr("scaled with tokens^0.47: Zhang"));
  EXPECT_THAT(words("2T"),
              AllOf(HasSubstr("to 6.51 M tokens per step"),
                    HasSubstr("16.8 M of 15.0 trillion tokens, scaled with tokens^0.47")));
}

// The last step is a whole one: 2 steps of 16.4 G tokens train 33 G, not 20 G.
TEST(Provision, AWiderRangeOfBatchesIsNoSlower) {
  const auto with = [](const std::string& range) {
    return JsonOf({"provision", "--model", "llama3-8b", "--tokens", "20B", "--offers",
                   "nebius-h100", "--nodes", "4", "--spares", "0", "--global-batch", range});
  };
  const json narrow = with("1..1000");
  for (const char* range : {"1..100000", "1..2000000", "1..1000000000"}) {
    const json wide = with(range);
    ASSERT_EQ(wide["answers"].size(), narrow["answers"].size()) << range;
    for (std::size_t i = 0; i < narrow["answers"].size(); ++i) {
      const json& row = wide["answers"][i];
      EXPECT_LE(row["time_s"].get<double>(), 1.01 * narrow["answers"][i]["time_s"].get<double>())
          << range;
      const double trained =
          row["steps"].get<double>() * 8192 * row["plan"]["global_batch"].get<double>();
      EXPECT_GE(trained, 20e9);
      EXPECT_LE(trained, 1.02 * 20e9) << range;
    }
  }
}

TEST(Tokens, AnInputBoundRunIsNamedInTheTableOfClusters) {
  // Whose steps are of GPUs that do not wait.
  const std::vector<std::string> several = {"--model",  "gpt2-xl", "--topology", "aws-p4d,dgx-h100",
                                            "--nodes",  "1",       "--refine",   "0",
                                            "--tokens", "1B",      "--top",      "1"};
  EXPECT_THAT(RunPlan(several).out, Not(HasSubstr("INPUT-BOUND")));
  const Outcome table = RunPlan(With(several, {"--input", "5ktokens/s"}));
  const std::string rows = table.out.substr(0, table.out.find("The best of them"));
  EXPECT_THAT(rows, AllOf(HasSubstr("INPUT-BOUND\n  2  "),
                          HasSubstr("INPUT-BOUND: days and cost count the waits for input")));
}

// dgx-h100 has no price, and is faster.
TEST(Topologies, OneInTimeWithoutAPriceComesBeforeLateOnes) {
  const std::vector<std::string> words = {
      "--model",  "gpt2-xl", "--topology",     "aws-p4d,dgx-h100",
      "--nodes",  "2",       "--global-batch", "512",
      "--refine", "0",       "--tokens",       "10B",
      "--budget", "50kUSD"};
  const json free = JsonOf(words);
  const double late = free["topologies"][0]["training"]["runs"][0]["time_s"],
               soon = free["topologies"][1]["training"]["runs"][0]["time_s"];
  ASSERT_LT(soon, late);
  const auto within = [&](double seconds) {
    return RunPlan(With(words, {"--deadline", std::to_string(seconds) + "s"}));
  };
  const Outcome one = within((soon + late) / 2);
  EXPECT_EQ(one.code, 0);
  EXPECT_THAT(one.out, AllOf(HasSubstr("\n  1  dgx-h100"), HasSubstr("too late"),
                             HasSubstr("in time, no price, budget not checked (--node-price)")));
  const Outcome none = within(soon / 2);  // too late whatever the price
  EXPECT_EQ(none.code, 3);
}

}  // namespace
}  // namespace orrery
