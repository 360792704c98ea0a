// SPDX-License-Identifier: Apache-2.0
// `plan provision` and `plan --tokens` as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kSmall = {"provision", "--model",  "gpt2-xl",        "--tokens",
                                         "30B",       "--offers", "aws-p4d,nebius", "--nodes",
                                         "1,2,4,8",   "--as-of",  "2026-11-22"};

// Its answer, asked for once.
const json& SmallAnswer() {
  static const json answer = JsonOf(kSmall);
  return answer;
}

TEST(Provision, SaysTheSameTwiceAndInJson) {
  const std::vector<std::string> words = With(kSmall, {"--deadline", "3d", "--budget", "9kUSD"});
  const Outcome text = RunPlan(words);
  ASSERT_EQ(text.code, 0) << text.err;
  const auto [again, answer] = BothOf(words);
  EXPECT_EQ(text.out, again.out);
  EXPECT_EQ(answer["schema"], "orrery.provision/1");
  EXPECT_TRUE(answer["feasible"]);
  const json& best = answer["answers"][answer["cheapest"].get<std::size_t>()];
  EXPECT_LE(best["time_s"].get<double>(), 3 * 86400.0);
  EXPECT_THAT(Folded(text.out),
              HasSubstr("Cheapest within 3.00 d " + best["offer"]["id"].get<std::string>()));
  EXPECT_THAT(text.out, AllOf(HasSubstr("Why the other offers lose"), HasSubstr("days old"),
                              HasSubstr("memory: 8 %"), HasSubstr("storage and hosts must")));
  double cost = 0, time = 1e300;  // along the frontier dearer and faster
  for (const auto& index : answer["frontier"]) {
    const json& row = answer["answers"][index.get<std::size_t>()];
    EXPECT_GE(row["cost_usd"].get<double>(), cost);
    EXPECT_LT(row["time_s"].get<double>(), time);
    cost = row["cost_usd"];
    time = row["time_s"];
  }
}

TEST(Provision, CostAndStepsFollowFromThePrintedFactors) {
  const json& answer = SmallAnswer();
  ASSERT_FALSE(answer["answers"].empty());
  for (const json& row : answer["answers"]) {
    const double paid = row["nodes"].get<double>() + row["spares"].get<double>();
    EXPECT_NEAR(row["cost_usd"].get<double>(),
                paid * row["offer"]["price_usd_per_hour"].get<double>() *
                    row["billed_s"].get<double>() / 3600,
                0.01);
    EXPECT_GE(row["billed_s"].get<double>(), row["time_s"].get<double>() - 1e-3);
    EXPECT_GT(row["goodput"].get<double>(), 0.5);
    EXPECT_NEAR(row["plan"]["price_per_step_usd"].get<double>(),
                row["offer"]["price_usd_per_hour"].get<double>() * row["nodes"].get<double>() *
                    row["plan"]["step_time_s"].get<double>() / 3600,
                1e-9);
  }
}

// One step time in every answer: a row of the frontier that was simulated, again by `plan predict`.
TEST(Provision, ARowHasTheStepTimeOfPredict) {
  const json& answer = SmallAnswer();
  const json& row = answer["answers"][answer["frontier"].back().get<std::size_t>()];
  const json& plan = row["plan"];
  const json& layout = plan["strategy"];
  std::vector<std::string> words = {"predict",
                                    "--model",
                                    "gpt2-xl",
                                    "--topology",
                                    row["offer"]["topology"],
                                    "--nodes",
                                    std::to_string(row["nodes"].get<int>()),
                                    "--global-batch",
                                    std::to_string(plan["global_batch"].get<int>()),
                                    "--micro-batch",
                                    std::to_string(layout["micro_batch"].get<int>()),
                                    "--tp",
                                    std::to_string(layout["tp"].get<int>()),
                                    "--pp",
                                    std::to_string(layout["pp"].get<int>()),
                                    "--zero",
                                    std::to_string(layout["zero"].get<int>()),
                                    "--json"};
  if (layout["sequence_parallel"].get<bool>()) {
    words.emplace_back("--sequence-parallel");
    words.emplace_back("on");
  }
  const Outcome outcome = RunPlan(words);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NEAR(json::parse(outcome.out)["prediction"]["step_time_s"].get<double>(),
              row["step_time_s"].get<double>(), 1e-9);
}

TEST(Provision, SaysWhatWouldDoWhereNothingDoes) {
  const Outcome both = RunPlan(With(kSmall, {"--deadline", "1d", "--budget", "900USD"}));
  EXPECT_EQ(both.code, 3);
  EXPECT_THAT(Folded(both.out), AllOf(HasSubstr("None costs at most 900 USD. The cheapest"),
                                      HasSubstr("Days against dollars")));
  const Outcome late = RunPlan(With(kSmall, {"--deadline", "5h"}));
  EXPECT_EQ(late.code, 3);
  EXPECT_THAT(late.out, HasSubstr("None is done within 5.00 h. The fastest of all"));
  const Outcome none = RunPlan({"provision", "--model", "gpt3-175b", "--tokens", "1B", "--offers",
                                "lambda-h100", "--as-of", "2026-11-22"});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.out, HasSubstr("nothing fits at any node count"));
}

TEST(Provision, AFileOfOffersCountsAndErrorsPointIntoIt) {
  const std::string folder = ScratchFolder();
  const Outcome templ = RunPlan({"provision", "--offer-template"});
  ASSERT_EQ(templ.code, 0);
  WriteText(folder + "/quote.yaml", templ.out);
  const Outcome mine = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                                folder + "/quote.yaml", "--nodes", "2", "--as-of", "2026-11-22"});
  EXPECT_EQ(mine.code, 0) << mine.err;
  EXPECT_THAT(mine.out, HasSubstr("my-vendor-h100, 2 nodes"));
  std::string wrong = templ.out;
  wrong.replace(wrong.find("36USD/h"), 7, "36");
  WriteText(folder + "/wrong.yaml", wrong);
  const Outcome refused = RunPlan(
      {"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", folder + "/wrong.yaml"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("wrong.yaml:15:12"), HasSubstr("has no unit"), HasSubstr("36USD/h")));
}

TEST(Provision, ReplayAgreesWithTheFormula) {
  const json answer = JsonOf(With(kSmall, {"--replay", "200", "--failures", "50"}));
  const json& best = answer["answers"][answer["cheapest"].get<std::size_t>()];
  EXPECT_NEAR(best["replay"]["mean_s"].get<double>() / best["time_s"].get<double>(), 1, 0.02);
}

// Days of a job that shrinks, not of one that stops; what a stop costs is the group's absence more than the pause.
TEST(Provision, ReplayOfAnElasticRunAgreesWithTheFormula) {
  const std::string page = ScratchFolder() + "/elastic.html";
  const json answer = JsonOf({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                              "aws-p4d", "--nodes", "8", "--as-of", "2026-11-22", "--replay", "300",
                              "--failures", "50", "--recovery", "elastic", "--html", page});
  const json& best = answer["answers"][answer["cheapest"].get<std::size_t>()];
  EXPECT_NEAR(best["replay"]["mean_s"].get<double>() / best["time_s"].get<double>(), 1, 0.02);
  EXPECT_GT(best["replay"]["sd_s"].get<double>(), 0);
  // No restart: nothing of what one takes.
  EXPECT_EQ(best["recovery"], json({{"pause_s", 60.0}}));
  EXPECT_THAT(ReadText(page), AllOf(HasSubstr("the other replicas go on in"),
                                    Not(HasSubstr("the node replaced in"))));
}

struct Refused {
  const char* name;
  std::vector<std::string> words;
  std::vector<std::string> said;
};
class ProvisionRefuses : public testing::TestWithParam<Refused> {};

TEST_P(ProvisionRefuses, WithPlaceAndHint) {
  const Outcome outcome = RunPlan(GetParam().words);
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_EQ(outcome.out, "");
  for (const std::string& part : GetParam().said) EXPECT_THAT(Folded(outcome.err), HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(
    Words, ProvisionRefuses,
    testing::Values(
        Refused{"NoModel", {"provision", "--tokens", "1T"}, {"which model?"}},
        Refused{"NoTokensForAnEncoder",
                {"provision", "--model", "bert-1.5b"},
                {"how many tokens?", "--tokens N"}},
        Refused{"BadUnits",
                {"provision", "--model", "llama3-8b", "--tokens", "2Q", "--deadline", "30",
                 "--budget", "500"},
                {"'2Q' is no number", "'30' has no unit", "such as 30d", "'500' has no unit"}},
        Refused{"Past",
                {"provision", "--model", "llama3-8b", "--deadline", "2020-01-01", "--as-of",
                 "2026-11-22"},
                {"2020-01-01 is past"}},
        Refused{"OneTopologyTwice",
                {"--model", "gpt2-xl", "--nodes", "2", "--topology", "aws-p5,aws-p4d,aws-p5"},
                {"'aws-p5' stands there twice"}},
        Refused{"OtherCurrency",
                {"provision", "--model", "llama3-8b", "--budget", "500kEUR"},
                {"unknown unit 'kEUR'"}},
        Refused{"UnknownVendor",
                {"provision", "--model", "llama3-8b", "--offers", "awz"},
                {"no offer or vendor 'awz'", "did you mean 'aws'"}},
        Refused{"RateOfAGpu",
                {"provision", "--model", "llama3-8b", "--failures", "3000"},
                {"a stop of every node every 0.33 d"}},
        Refused{"EmptyRange",
                {"provision", "--model", "llama3-8b", "--nodes", "8..4"},
                {"the range 8..4 is empty"}},
        Refused{"NoPriceOfTheKind",
                {"provision", "--model", "llama3-8b", "--offers", "oci-h100", "--kind", "spot"},
                {"no offer is left", "only on-demand prices are known"}},
        Refused{"HalfAToken",
                {"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1", "--tokens", "1.5"},
                {"--tokens: 1.5 is no whole number"}},
        Refused{"FewerTokensThanAStep",
                {"provision", "--model", "llama3-8b", "--tokens", "1000"},
                {"less than a step"}},
        Refused{
            "LimitsWithoutTokens",
            {"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--deadline", "30d"},
            {"--tokens N says how long it is"}}),
    [](const auto& test) { return test.param.name; });

TEST(Tokens, TurnRankedLayoutsIntoRuns) {
  const std::vector<std::string> words = {"--model",  "gpt2-xl", "--topology",     "aws-p4d",
                                          "--nodes",  "2",       "--global-batch", "512",
                                          "--refine", "0",       "--top",          "2",
                                          "--tokens", "30B",     "--as-of",        "2026-11-22"};
  const Outcome text = RunPlan(words);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("30.0 billion tokens with each"), HasSubstr("goodput"),
                              HasSubstr("How the run of 1 goes")));
  const json answer = JsonOf(words);
  EXPECT_EQ(answer["training"]["runs"].size(), 2u);
  EXPECT_EQ(RunPlan(With(words, {"--budget", "10USD"})).code, 3);
}

// S4: readers that deliver a third of what the card takes.
TEST(Tokens, AnInputBoundRunIsNamed) {
  const std::vector<std::string> words = {
      "--model", "bert-tiny", "--nodes",  "1",  "--gpus-per-node", "1",         "--refine", "0",
      "--zero",  "0",         "--tokens", "1B", "--as-of",         "2026-11-22"};
  EXPECT_THAT(RunPlan(words).out, Not(HasSubstr("INPUT-BOUND")));
  const Outcome bound = RunPlan(With(words, {"--input", "hdf5-masked"}));
  EXPECT_THAT(Folded(bound.out), HasSubstr("INPUT-BOUND: limit of the readers: 256 k tokens/s"));
}

TEST(Tokens, ABatchBeyondWhatWasPublishedIsNamed) {
  const auto words = [](const char* batch) {
    return std::vector<std::string>{"--model",  "gpt2-xl", "--topology",     "dgx-h100",
                                    "--nodes",  "2",       "--global-batch", batch,
                                    "--refine", "0",       "--tokens",       "20B"};
  };
  EXPECT_THAT(RunPlan(words("512")).out, Not(HasSubstr("beyond what dense")));
  EXPECT_THAT(Folded(RunPlan(words("16384")).out),
              HasSubstr("batch: 16.8 M tokens per step are beyond what dense models published for "
                        "20.0 billion tokens (up to "));
}

// The model file's batch of 4.2 M tokens is beyond the range of so short a run.
TEST(Tokens, ABatchThatNobodyNamesStaysInTheAdvisedRange) {
  const std::vector<std::string> words = {"--model", "llama3-8b", "--topology", "aws-p5",
                                          "--nodes", "8",         "--tokens",   "200B",
                                          "--top",   "1",         "--refine",   "0"};
  const Outcome text = RunPlan(words);
  EXPECT_THAT(Folded(text.out),
              AllOf(HasSubstr("sequences, the fastest of 82 to 325, at most Gopher's 6.00 M of "),
                    Not(HasSubstr("beyond what dense"))));
  const json answer = JsonOf(words);
  const auto range = answer["training"]["published_batch_tokens"];
  const double batch = 8192.0 * answer["ranked"][0]["global_batch"].get<double>();
  EXPECT_GE(batch, range[0].get<double>());
  EXPECT_LE(batch, range[1].get<double>());
  const json given = JsonOf(With(words, {"--global-batch", "512"}));
  EXPECT_EQ(given["ranked"][0]["global_batch"], 512);
}

TEST(Provision, ABatchJustBeyondTheRangeThatKeepsTheDeadlineIsNamed) {
  const Outcome outcome =
      RunPlan({"provision", "--model", "llama3-405b", "--tokens", "14.9T", "--deadline", "60d",
               "--offers", "nebius-b200", "--nodes", "2048", "--as-of", "2026-11-22"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(Folded(outcome.out), AllOf(HasSubstr("0.31 % beyond the range, would take"),
                                         HasSubstr("keep the deadline (--global-batch 2048)")));
}

TEST(Topologies, SeveralAreComparedAndTheBestShownInFull) {
  const std::vector<std::string> words = {"--model",  "gpt2-xl", "--topology",     "aws-p4d,aws-p5",
                                          "--nodes",  "2",       "--global-batch", "512",
                                          "--refine", "0",       "--top",          "1"};
  const Outcome text = RunPlan(words);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("The best layout on each of 2 topologies"),
                              HasSubstr("on aws-p5: 2 nodes")));
  const json answer = JsonOf(words);
  EXPECT_EQ(answer["schema"], "orrery.plans/1");
  EXPECT_EQ(answer["best"], "aws-p5");
  EXPECT_EQ(answer["topologies"].size(), 2u);
  EXPECT_EQ(RunPlan({"--model", "gpt2-xl", "--topology", "aws-p4d,aws-p55", "--nodes", "2"}).code,
            2);
}

// Offers of one vendor, in a file of the user's; `from` is replaced by `to`.
std::string Quote(const std::string& from, const std::string& to) {
  std::string text = RunPlan({"provision", "--offer-template"}).out;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const std::string path = ScratchFolder() + "/quote.yaml";
  WriteText(path, text);
  return path;
}

// dgx-h100 has no price, and is faster.
TEST(Topologies, ThoseWithinTheBudgetComeFirst) {
  const std::vector<std::string> words = {
      "--model", "gpt2-xl",  "--topology", "dgx-h100,aws-p4d", "--nodes", "2", "--global-batch",
      "512",     "--refine", "0",          "--tokens",         "10B"};
  const Outcome free = RunPlan(words), within = RunPlan(With(words, {"--budget", "50kUSD"}));
  EXPECT_THAT(free.out, HasSubstr("\n  1  dgx-h100"));
  EXPECT_THAT(within.out,
              AllOf(HasSubstr("\n  1  aws-p4d"), HasSubstr("no price, budget not checked")));
  EXPECT_EQ(within.code, 0);
  // What surely breaks the budget comes after what may keep it.
  const Outcome unknown = RunPlan(With(words, {"--budget", "5USD"}));
  EXPECT_EQ(unknown.code, 0);
  EXPECT_THAT(unknown.out, AllOf(HasSubstr("\n  1  dgx-h100"), HasSubstr("over the budget"),
                                 HasSubstr("budget not checked (--node-price)")));
  const Outcome none = RunPlan(With(words, {"--budget", "5USD", "--node-price", "50USD/h"}));
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.out, Not(HasSubstr("not checked")));
}

// The fastest node count costs more than the budget, the dearest run of those within it wins.
TEST(NodeCounts, ThoseWithinTheBudgetComeFirst) {
  const std::vector<std::string> words = {
      "--model", "gpt2-xl",  "--topology", "aws-p4d", "--nodes", "1,2,32",   "--global-batch",
      "512",     "--refine", "0",          "--top",   "1",       "--tokens", "10B"};
  const json free = JsonOf(words);
  EXPECT_EQ(free["ranked"][0]["nodes"], 32);
  const json dear = free["training"]["runs"][0]["cost_usd"];
  const std::vector<std::string> limited =
      With(words, {"--budget", std::to_string(0.9 * dear.get<double>()) + "USD"});
  const json within = JsonOf(limited);
  ASSERT_EQ(within["topologies"].size(), 3u);
  const auto best = within["best_index"].get<std::size_t>();
  const auto cost = [&](std::size_t i) {
    return within["topologies"][i]["training"]["runs"][0]["cost_usd"].get<double>();
  };
  EXPECT_LE(cost(best), 0.9 * dear.get<double>());
  for (std::size_t i = 0; i < 3; ++i) {
    const json& run = within["topologies"][i]["training"]["runs"][0];
    if (cost(i) <= 0.9 * dear.get<double>()) {
      EXPECT_GE(run["time_s"], within["topologies"][best]["training"]["runs"][0]["time_s"]);
    } else
      EXPECT_EQ(run["verdict"], "over the budget");
  }
  EXPECT_THAT(RunPlan(limited).out,
              AllOf(HasSubstr("The best layout at each of 3 node counts"),
                    HasSubstr("over the budget"), Not(HasSubstr("on aws-p4d: 32 nodes"))));
}

void ExpectSameLosers(const char* budget, int code) {
  const std::vector<std::string> words = {
      "provision", "--model",        "gpt2-xl", "--tokens", "30B",
      "--offers",  "aws,nebius,oci", "--nodes", "1..16",    "--deadline",
      "6d",        "--budget",       budget,    "--as-of",  "2026-11-22"};
  const json pruned = JsonOf(words, code), all = JsonOf(With(words, {"--no-bounds"}), code);
  EXPECT_LT(pruned["units"]["evaluated"], all["units"]["evaluated"]);
  EXPECT_GT(pruned["losers"].size(), 3u);
  EXPECT_EQ(pruned["losers"], all["losers"]) << budget;
}

TEST(Provision, OffersLoseForTheSameReasonWithoutBounds) { ExpectSameLosers("1.3kUSD", 0); }

TEST(ProvisionSlow, OffersLoseForTheSameReasonWithoutBoundsAtOtherBudgets) {
  ExpectSameLosers("5kUSD", 0);
  ExpectSameLosers("900USD", 3);
}

// Readers feed replicas: the layout with the most of them wins where they set the pace.
TEST(Provision, AnInputBoundRunTakesTheLayoutWithTheMostReaders) {
  const auto replicas = [](const std::vector<std::string>& more) {
    const json answer =
        JsonOf(With({"provision", "--model", "llama3-8b", "--tokens", "20B", "--offers",
                     "nebius-h100", "--nodes", "2", "--as-of", "2026-11-22"},
                    more));
    const json& strategy = answer["answers"][0]["plan"]["strategy"];
    return strategy["dp"].get<int>() * strategy.value("dp_outer", 1);
  };
  EXPECT_LT(replicas({}), 16);
  EXPECT_EQ(replicas({"--input", "2ktokens/s"}), 16);
}

TEST(Provision, WhatWouldDoAsALimitDoes) {
  const std::vector<std::string> words = With(kSmall, {"--deadline", "8h", "--budget", "1.5kUSD"});
  const Outcome outcome = RunPlan(words);
  ASSERT_EQ(outcome.code, 3);
  const std::string text = Folded(outcome.out);
  const std::string from = "Nothing keeps both limits: a budget of ";
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << text;
  std::string money = text.substr(at + from.size(), text.find(" would do", at) - at - from.size());
  std::erase(money, ' ');
  EXPECT_EQ(RunPlan(With(kSmall, {"--deadline", "8h", "--budget", money})).code, 0) << money;
}

TEST(Provision, AnswersALimitThatTheSetupAloneBreaks) {
  const Outcome outcome = RunPlan(With(kSmall, {"--deadline", "3h"}));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("None is done within 3.00 h: the time before the first step is "
                              "0.17 d (--setup). The fastest of all"),
                    HasSubstr("Days against dollars"), HasSubstr("deadline: ")));
  const json answer = json::parse(RunPlan(With(kSmall, {"--deadline", "3h", "--json"})).out);
  EXPECT_FALSE(answer["feasible"]);
  EXPECT_GT(answer["frontier"].size(), 0u);  // the nearest misses
}

TEST(Provision, DefaultsAreThoseOfTheClusterThatIsChosen) {
  const std::vector<std::string> words = {"provision", "--model",  "gpt2-xl",
                                          "--tokens",  "3B",       "--nodes",
                                          "2",         "--offers", "azure-nd-v2,nebius-h100"};
  const json answer = JsonOf(words);
  const json& best = answer["answers"][answer["cheapest"].get<std::size_t>()];
  EXPECT_EQ(best["offer"]["id"], "nebius-h100");
  const json alone = JsonOf({"provision", "--model", "gpt2-xl", "--tokens", "3B", "--nodes", "2",
                             "--offers", "nebius-h100"});
  EXPECT_EQ(answer["defaults"], alone["defaults"]);
  EXPECT_EQ(answer["facts"], alone["facts"]);
  EXPECT_THAT(Folded(RunPlan(words).out), HasSubstr("software: framework "));
}

TEST(Provision, AnOfferOfOnesOwnNeedsANameOfItsOwn) {
  const std::string path = Quote("name: my-vendor-h100", "name: nebius-h100");
  const auto words = [&](const std::string& offers) {
    return std::vector<std::string>{"provision", "--model", "gpt2-xl",  "--tokens", "3B",
                                    "--nodes",   "1",       "--offers", offers};
  };
  EXPECT_EQ(RunPlan(words(path)).code, 0);
  for (const char* other : {",nebius", ",SELF"}) {
    const Outcome outcome =
        RunPlan(words(path + (std::string(other) == ",SELF" ? "," + path : other)));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("2 offers are called 'nebius-h100'"));
  }
}

TEST(Provision, RefusesDaysAndPricesThatAreNone) {
  const auto error = [&](const std::vector<std::string>& more) {
    const Outcome outcome =
        RunPlan(With({"provision", "--model", "gpt2-xl", "--tokens", "3B"}, more));
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(error({"--deadline", "2027-02-30"}), HasSubstr("there is no day '2027-02-30'"));
  EXPECT_THAT(error({"--offers", Quote("36USD/h", "1e300USD/h")}),
              HasSubstr("quote.yaml:15:12: error: 'price': '1e300USD/h' is out of range"));
  EXPECT_THAT(error({"--offers", Quote("36USD/h", "1e8USD/h")}),
              HasSubstr("quote.yaml:15:12: error: 1e+08 USD/h is no price of a node"));
  EXPECT_THAT(error({"--offers", Quote("topology: dgx-h100", "topology: dgx-h1000")}),
              HasSubstr("quote.yaml:6:11: error: no topology 'dgx-h1000'"));
  const Outcome later =
      RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "3B", "--as-of", "2026-11-22",
               "--nodes", "2", "--offers", Quote("date: 2026-11-01", "date: 2030-01-01")});
  EXPECT_THAT(Folded(later.out), HasSubstr("days AHEAD, is the date right?"));
}

}  // namespace
}  // namespace orrery
