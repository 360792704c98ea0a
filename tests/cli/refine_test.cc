// SPDX-License-Identifier: Apache-2.0
// `plan --refine K`: the simulated column, its section, its JSON, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Words = std::vector<std::string>;

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome Plan(const Words& more) {
  return RunPlan(With({"--nodes", "2", "--model", "gpt2-xl", "--topology", "aws-p4d"}, more));
}

TEST(Refine, IsOnUnlessTurnedOff) {
  const std::string by_default = Plan({}).out;
  EXPECT_THAT(by_default, AllOf(HasSubstr("simulated"), HasSubstr("agree within")));
  EXPECT_EQ(by_default, Plan({"--refine", "5"}).out);
  const Outcome off = Plan({"--refine", "0"});
  EXPECT_EQ(off.code, 0);
  EXPECT_THAT(off.out, AllOf(Not(HasSubstr("imulat")), Not(HasSubstr("order"))));
}

TEST(Refine, SaysTheSameTwice) {
  EXPECT_EQ(Plan({"--refine", "8"}).out, Plan({"--refine", "8"}).out);
}

TEST(Refine, JsonHoldsBothTimesAndThePlaceBefore) {
  const auto document = nlohmann::json::parse(Plan({"--json", "--refine", "3"}).out);
  EXPECT_EQ(document["refinement"]["asked"], 5);
  EXPECT_GE(document["refinement"]["simulated"], 5);
  EXPECT_TRUE(document["refinement"]["order_changes"].is_array());
  double largest = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const auto& one = document["ranked"][i];
    const double closed = one["simulated"]["closed_form_s"], simulated = one["step_time_s"];
    EXPECT_EQ(one["simulated"]["step_time_s"], one["step_time_s"]);
    largest = std::max(largest, std::abs(closed / simulated - 1));
    EXPECT_GE(one["closed_form_rank"], 1);
    EXPECT_EQ(one["simulated"]["terms"].size(), 11u);
  }
  EXPECT_DOUBLE_EQ(largest, document["refinement"]["disagreement"]);
  const auto plain = nlohmann::json::parse(Plan({"--json", "--refine", "0"}).out);
  EXPECT_FALSE(plain.contains("refinement"));
  EXPECT_FALSE(plain["ranked"][0].contains("simulated"));
}

TEST(Refine, RowsTooLargeAreNamedAndTheOthersAreSimulated) {
  const Words job = {"--nodes",    "128",      "--model",        "llama3-405b",
                     "--topology", "dgx-h100", "--global-batch", "512"};  // one row has 128 stages
  const auto [outcome, document] = BothOf(job);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Not simulated: "), HasSubstr("too large"),
                                 HasSubstr("Their step time is the closed form")));
  EXPECT_FALSE(document["refinement"]["ranked_by_simulation"]);
  std::size_t closed = 0;
  for (const auto& row : document["ranked"]) {
    EXPECT_EQ(row["engine"] == "closed", row["not_simulated"].is_string());
    EXPECT_EQ(row["digest"].get<std::string>().size(), 32u);
    closed += row["engine"] == "closed" ? 1 : 0;
  }
  EXPECT_GE(closed, 1u);
  EXPECT_LT(closed, document["ranked"].size());
  EXPECT_EQ(document["refinement"]["skipped"].size(), closed);
}

// On other nodes a shorter step is no better where money counts: a second of it counts what it costs.
TEST(Comparisons, CountSecondsAsTheObjectiveDoes) {
  const auto document = nlohmann::json::parse(
      RunPlan({"--model", "llama2-70b", "--topology", "aws-p5", "--nodes", "8,16", "--refine", "0",
               "--global-batch", "512", "--objective", "tokens-per-dollar", "--json"})
          .out);
  const auto winner = document["ranked"][0];
  int elsewhere = 0;
  for (const auto& comparison : document["comparisons"]) {
    const auto other = comparison["other"];
    const double weight = other["nodes"].get<double>() / winner["nodes"].get<double>();
    const double its = weight * other["step_time_s"].get<double>(),
                 mine = winner["step_time_s"].get<double>();
    EXPECT_GE(its, mine);
    double saved = 0;
    for (const auto& term : comparison["saved_s"]) saved += term.get<double>();
    EXPECT_NEAR(saved, its - mine, 1e-6 * mine);
    const auto said = testing::ContainsRegex("against [0-9]+ nodes, .* counts as .* of 1, \\+");
    if (weight == 1) {
      EXPECT_THAT(comparison["words"].get<std::string>(), Not(said));
    } else {
      EXPECT_THAT(comparison["words"].get<std::string>(), said);
      ++elsewhere;
    }
  }
  EXPECT_GE(elsewhere, 1);
}

TEST(Refine, RefusesWhatIsNoCount) {
  for (const auto& [value, said] : {std::pair{"-1", "-1 is too small"},
                                    {"101", "101 is too large"},
                                    {"all", "'all' is not a whole number"},
                                    {"2.5", "'2.5' is not a whole number"}}) {
    const Outcome outcome = Plan({"--refine", value});
    EXPECT_EQ(outcome.code, 2) << value;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("--refine"), HasSubstr(said)));
  }
  EXPECT_THAT(Plan({"--refine"}).err, HasSubstr("--refine needs a value"));
}

}  // namespace
}  // namespace orrery
