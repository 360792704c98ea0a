// SPDX-License-Identifier: Apache-2.0
// Pages leave out nothing that text and JSON say: of offers, placements, published runs and several topologies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/cli/run_plan.h"
#include "tests/report/page_reader.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct AnswerPage {
  std::string html, text;
  json answer;
  std::set<std::string> places;  // JSON pointers that the page shows

  bool Shows(const std::string& place) const { return places.contains(place); }
};

AnswerPage OpenPage(std::vector<std::string> words, int code = 0) {
  const std::string page = ScratchFolder() + "/page.html", record = ScratchFolder() + "/page.json";
  words.insert(words.end(), {"--html", page, "--json", record});
  const Outcome outcome = RunPlan(words);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  AnswerPage made{ReadText(page), outcome.out, json::parse(ReadText(record)), {}};
  for (const PageMark& mark : MarksOf(made.html)) made.places.insert(mark.attributes.at("data-p"));
  EXPECT_EQ(Differences(made.html, made.answer), "");
  return made;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<'    ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '&'  ? "&amp;"
           : c == '\'' ? "&#39;"
           : c == '"'  ? "&quot;"
                       : std::string(1, c);
  return out;
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
  return count;
}

const std::vector<std::string> kOffers = {
    "provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "nebius-h100,nebius-b200",
    "--nodes",   "1..4"};

// Most tests look at this one.
const AnswerPage& InTime() {
  static const AnswerPage made =
      OpenPage(With(kOffers, {"--deadline", "3d", "--budget", "9kUSD", "--as-of", "2026-11-22",
                              "--input", "1Mtokens/s", "--replay", "10"}));
  return made;
}

TEST(ProvisionPage, SaysOfEveryRowWhatADaySoonerCostsAndWhichRowsAreTied) {
  std::vector<std::string> question =
      With(kOffers, {"--deadline", "3d", "--budget", "9kUSD", "--as-of", "2026-11-22"});
  question.at(8) = "2..8";  // nodes: with these, intervals of cost overlap
  const AnswerPage made = OpenPage(question);
  const json& frontier = made.answer["frontier"];
  ASSERT_GT(frontier.size(), 3u);
  ASSERT_EQ(made.answer["day_sooner_usd"].size(), frontier.size());
  EXPECT_TRUE(made.answer["day_sooner_usd"][0].is_null());
  int ties = 0;
  for (std::size_t i = 0; i < frontier.size(); ++i) {
    const json& row = made.answer["answers"][frontier[i].get<std::size_t>()];
    ties += row["tie"].get<bool>();
    if (i == 0) continue;
    const json& before = made.answer["answers"][frontier[i - 1].get<std::size_t>()];
    const double days = (before["time_s"].get<double>() - row["time_s"].get<double>()) / 86400;
    EXPECT_NEAR(made.answer["day_sooner_usd"][i].get<double>() * days,
                row["cost_usd"].get<double>() - before["cost_usd"].get<double>(), 1e-6);
    EXPECT_TRUE(made.Shows("/day_sooner_usd/" + std::to_string(i)));
  }
  ASSERT_GT(ties, 1);
  EXPECT_EQ(CountOf(made.html, "<th scope=row class=n>= "), ties);
  EXPECT_THAT(made.html, HasSubstr(Escaped(made.answer["frontier_notes"])));
  EXPECT_THAT(made.html, HasSubstr("cost intervals overlap"));
}

TEST(ProvisionPage, SaysHowOldPricesAreAndWhoStandsInForWhom) {
  const AnswerPage& made = InTime();
  std::set<std::string> offers;
  for (const json& index : made.answer["frontier"]) {
    const json& offer = made.answer["answers"][index.get<std::size_t>()]["offer"];
    if (!offers.insert(offer["id"]).second) continue;
    EXPECT_TRUE(made.Shows("/answers/" + index.dump() + "/offer/age_days"));
    EXPECT_THAT(made.html, HasSubstr(Escaped(offer["age"])));
    EXPECT_THAT(made.html, HasSubstr(Escaped(offer["stand_in"])));
    EXPECT_THAT(made.html, HasSubstr(offer["date"].get<std::string>()));
  }
  EXPECT_THAT(made.html, HasSubstr("52 days old"));  // of 2026-10-01
}

TEST(ProvisionPage, TellsAChosenRunInFull) {
  const AnswerPage& made = InTime();
  const std::string row = "/answers/" + made.answer["cheapest"].dump();
  for (const char* key : {"/checkpoint/file_system_bytes_per_s", "/checkpoint/background_s",
                          "/input/read_bytes_per_s", "/input/tokens_per_s",
                          "/input/limit_tokens_per_s", "/memory_margin_cost", "/billed_s",
                          "/step_time_s", "/finish_probability", "/replay/mean_s"})
    EXPECT_TRUE(made.Shows(row + key)) << key;
  EXPECT_TRUE(made.Shows("/memory_margin"));
  EXPECT_THAT(made.html, HasSubstr(Escaped(made.answer["question"]["batch_words"])));
  EXPECT_THAT(made.html, HasSubstr("arXiv:2410.21676"));
  ASSERT_FALSE(made.answer["advice"].empty());
  for (const json& advice : made.answer["advice"])
    EXPECT_THAT(made.html, HasSubstr(Escaped(advice)));
  EXPECT_THAT(made.html, HasSubstr("to be ordered"));
}

TEST(ProvisionPage, SaysThatSpotCapacityMayGoAndPricesAreOld) {
  const AnswerPage made =
      OpenPage({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "aws-p4d",
                "--kind", "spot", "--nodes", "1", "--as-of", "2029-01-01"});
  EXPECT_THAT(made.html, HasSubstr("days old: OLD, ask again"));
  EXPECT_THAT(made.text, HasSubstr("if the capacity stays"));
  const std::string words = made.html.substr(0, made.html.find("</section>"));
  EXPECT_THAT(words, HasSubstr("if the capacity stays"));
}

TEST(ProvisionPage, SaysWhatWouldDoWhereNothingKeepsTheLimits) {
  const AnswerPage made = OpenPage(With(kOffers, {"--deadline", "12h", "--budget", "1.1kUSD"}), 3);
  EXPECT_THAT(made.text, HasSubstr("Nothing keeps both limits: a budget of"));
  EXPECT_THAT(made.html, HasSubstr("Nothing keeps both the deadline and the budget: a budget of"));
  const AnswerPage late = OpenPage(With(kOffers, {"--deadline", "5h"}), 3);
  EXPECT_THAT(late.html, HasSubstr("None is done within 5.00 h. The fastest of all:"));
}

TEST(ProvisionPage, DrawsTheScalingOfAnOfferOnce) {
  std::vector<std::string> words = kOffers;
  words[6] = "nebius-h100";
  const AnswerPage made = OpenPage(With(words, {"--deadline", "28h"}));
  ASSERT_TRUE(made.answer["sure"].is_number());
  ASSERT_NE(made.answer["sure"], made.answer["cheapest"]);
  EXPECT_EQ(CountOf(made.html, "The same offer with more or fewer nodes</span></caption>"), 1);
}

// The fastest within a budget is over it in many cases; what hardly ever is has its own sentence in text and page.
TEST(ProvisionPage, SaysWhatIsTheFastestThatSurelyKeepsTheBudget) {
  const AnswerPage made = OpenPage(With(kOffers, {"--budget", "1.55kUSD"}));
  ASSERT_TRUE(made.answer["fastest_sure"].is_number());
  ASSERT_NE(made.answer["fastest_sure"], made.answer["fastest"]);
  const json& sure = made.answer["answers"][made.answer["fastest_sure"].get<std::size_t>()];
  const json& fastest = made.answer["answers"][made.answer["fastest"].get<std::size_t>()];
  EXPECT_GE(sure["budget_probability"], 0.95);
  EXPECT_LT(fastest["budget_probability"], 0.95);
  for (const json& at : made.answer["frontier"]) {
    const json& row = made.answer["answers"][at.get<std::size_t>()];
    if (row["time_s"] < sure["time_s"]) {
      EXPECT_LT(row["budget_probability"], 0.95);
    }
  }
  EXPECT_THAT(made.text, HasSubstr("Fastest that is 95 % likely within the budget"));
  EXPECT_THAT(made.html, HasSubstr("Fastest that is 95 % likely within the budget: "));
}

TEST(PublishedPage, SaysBoundsAndResults) {
  const AnswerPage made = OpenPage({"provision", "--published"});
  int bounds = 0;
  for (std::size_t i = 0; i < made.answer["runs"].size(); ++i) {
    const json& run = made.answer["runs"][i];
    bounds += run["at_least"].get<bool>();
    EXPECT_TRUE(made.Shows("/runs/" + std::to_string(i) + "/published"));
    EXPECT_TRUE(made.Shows("/runs/" + std::to_string(i) + "/predicted"));
    const std::size_t at = made.html.find("<td>" + Escaped(run["run"]) + "</td>");
    const std::string row = made.html.substr(at, made.html.find("</tr>", at) - at);
    EXPECT_THAT(row, HasSubstr("<td>" + run["verdict"].get<std::string>() + "</td>"));
    EXPECT_EQ(CountOf(row, ">&gt; "), run["at_least"].get<bool>() ? 1 : 0);
  }
  EXPECT_GT(bounds, 2);
  EXPECT_THAT(made.html, HasSubstr("&gt; 90.0 %"));
}

TEST(PlacementPage, ShowsWhatWasFoundAgainstTheDefault) {
  const AnswerPage made =
      OpenPage({"predict", "--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "2", "--pp",
                "4", "--global-batch", "64", "--micro-batch", "2", "--placement", "search"});
  for (const char* key : {"step_time_s", "default_step_time_s", "gain", "closed_form/lower_bound_s",
                          "closed_form/step_time_s", "closed_form/default_step_time_s"})
    EXPECT_TRUE(made.Shows(std::string("/placement/") + key)) << key;
  EXPECT_THAT(made.html, HasSubstr("<section id=placement"));
}

TEST(PlacementPage, ShowsAGivenOrderInASearch) {
  const AnswerPage made = OpenPage({"--model", "gpt2-medium", "--topology", "aws-p4d", "--nodes",
                                    "2", "--global-batch", "64", "--placement", "1,0"});
  EXPECT_TRUE(made.Shows("/ranked/0/placement/step_time_s"));
  EXPECT_THAT(made.html, HasSubstr("Given: --placement tp-cp-dp-pp:1,0"));
}

// The run was asked for: its days and dollars come first, with what became of the limits, and how it goes.
TEST(SearchPage, LeadsWithTheRunOfAllTokens) {
  const AnswerPage made =
      OpenPage({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2", "--tokens", "30B",
                "--global-batch", "512", "--refine", "0", "--node-price", "36USD/h", "--deadline",
                "6h", "--budget", "1kUSD"},
               3);
  const json& training = made.answer["training"];
  ASSERT_EQ(training["runs"][0]["verdict"], "too late, over the budget");
  const std::size_t lead = made.html.find("class=lead");
  ASSERT_NE(lead, std::string::npos);
  const std::string first = made.html.substr(lead, made.html.find("</p>", lead) - lead);
  EXPECT_THAT(first, HasSubstr("30.0 billion tokens take "));
  EXPECT_THAT(first, HasSubstr("too late, over the budget"));
  ASSERT_GE(training["first_run_words"].size(), 4u);
  for (const json& line : training["first_run_words"]) {
    EXPECT_THAT(made.html, HasSubstr(Escaped(line))) << line;
    EXPECT_THAT(made.text, HasSubstr(line.get<std::string>().substr(0, 20)));
  }
}

TEST(SeveralPage, HasItsRowsInTheOrderOfTheRanking) {
  const AnswerPage made = OpenPage({"--model", "gpt2-xl", "--topology", "aws-p4d,dgx-h100",
                                    "--nodes", "1,2", "--tokens", "30B", "--deadline", "3d"});
  const json& order = made.answer["order"];
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order[0], made.answer["best_index"]);
  EXPECT_NE(order, json({0, 1, 2, 3}));
  EXPECT_THAT(
      made.html,
      HasSubstr(
          "Best of 2 clusters (aws-p4d, dgx-h100) with 2 node counts (1, 2) by time of the run: "));
  std::size_t at = 0;
  for (const json& index : order) {
    const std::size_t next =
        made.html.find("data-p=\"/topologies/" + index.dump() + "/ranked/0/nodes\"");
    EXPECT_GT(next, at);
    at = next;
  }
}

// Without a price nothing says whether a faster cluster keeps the budget.
TEST(SeveralPage, NamesAFasterClusterThatHasNoPrice) {
  const AnswerPage made = OpenPage({"--model", "gpt2-xl", "--topology", "aws-p4d,dgx-h100",
                                    "--nodes", "1", "--tokens", "30B", "--budget", "900kUSD"});
  const std::string words = made.answer["passed_over"];
  EXPECT_THAT(words, HasSubstr("excluded: dgx-h100, 1 node, in "));
  EXPECT_THAT(made.html, HasSubstr(Escaped(words)));
}

// How the best of them runs, by what it is the best, and what was asked for: as the text says.
TEST(SeveralPage, SaysWhatWasAskedForAndHowTheBestRuns) {
  const AnswerPage made = OpenPage(
      {"--model",    "gpt2-xl", "--topology",     "dgx-h100", "--nodes",      "1,2",
       "--tokens",   "30B",     "--global-batch", "200..300", "--node-price", "36USD/h",
       "--deadline", "12.05d",  "--budget",       "9.25kUSD", "--objective",  "tokens-per-dollar",
       "--refine",   "0"});
  const std::string place = "/topologies/" + made.answer["best_index"].dump();
  const json& best = made.answer["topologies"][made.answer["best_index"].get<std::size_t>()];
  EXPECT_THAT(made.html,
              HasSubstr("Best of 2 node counts (1, 2) by tokens per dollar: dgx-h100, "));
  EXPECT_THAT(made.html, HasSubstr("The limits: within 12.05 d, at most 9.25 kUSD."));
  EXPECT_THAT(made.html, HasSubstr("layouts by tokens per dollar: batch " +
                                   best["ranked"][0]["global_batch"].dump() + ", tp "));
  EXPECT_THAT(made.html, HasSubstr("<section id=run"));
  ASSERT_GE(best["training"]["first_run_words"].size(), 4u);
  for (const json& line : best["training"]["first_run_words"])
    EXPECT_THAT(made.html, HasSubstr("<li>" + Escaped(line) + "</li>"));
  for (const char* key : {"/training/runs/0/energy_kwh", "/ranked/0/global_batch"})
    EXPECT_TRUE(made.Shows(place + key)) << key;
  const std::string first = "/topologies/" + made.answer["frontier"][0].dump() + "/training";
  EXPECT_TRUE(made.Shows(first + "/deadline_s"));
  EXPECT_TRUE(made.Shows(first + "/budget_usd"));
}

// Layers move between stages in the curve, too: without that its point is 2 % slower than the answer.
TEST(SearchPage, NoPointOfTheCurveIsSlowerThanTheAnswer) {
  const AnswerPage made = OpenPage({"--model", "llama2-13b", "--topology", "dgx-h100", "--nodes",
                                    "6,8", "--global-batch", "960", "--refine", "0"});
  const json& best = made.answer["ranked"][0];
  int compared = 0;
  std::set<int64_t> nodes;  // those that were asked for stand in it
  for (const json& point : made.answer["scaling"]) nodes.insert(point["nodes"].get<int64_t>());
  EXPECT_TRUE(nodes.contains(6) && nodes.contains(8) && nodes.contains(4) && nodes.size() > 4);
  for (const json& point : made.answer["scaling"]) {
    if (point["nodes"] != best["nodes"]) continue;
    ++compared;
    EXPECT_LE(point["step_time_s"].get<double>(), best["step_time_s"].get<double>() * (1 + 1e-9));
  }
  EXPECT_EQ(compared, 1);
}

// Each node count of a run with a deadline is an answer of its own; the curve of the best shows them all.
TEST(SeveralPage, TheCurveShowsEachNodeCountThatWasAskedFor) {
  const AnswerPage made = OpenPage(
      {"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "3,5", "--tokens", "30B",
       "--global-batch", "240", "--node-price", "36USD/h", "--deadline", "9d", "--refine", "0"});
  const json& best = made.answer["topologies"][made.answer["best_index"].get<std::size_t>()];
  std::set<int64_t> nodes;
  for (const json& point : best["scaling"]) nodes.insert(point["nodes"].get<int64_t>());
  EXPECT_TRUE(nodes.contains(3) && nodes.contains(5));
  EXPECT_THAT(made.html, HasSubstr("Scaling: dgx-h100</h2>"));
}

}  // namespace
}  // namespace orrery
