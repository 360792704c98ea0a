// SPDX-License-Identifier: Apache-2.0
// --html of every command: the page shows what --json prints, and nothing of this machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/cli/run_plan.h"
#include "tests/report/page_reader.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kJob = {"--model", "gpt2-xl", "--topology",
                                       "aws-p4d", "--nodes", "2"};
const std::vector<std::string> kStages = {"--pp",          "4", "--tp",           "1",
                                          "--micro-batch", "2", "--global-batch", "64"};
const std::vector<std::string> kTiny = {"--model", "linear-20-1", "--global-batch",
                                        "8",       "--dp",        "2"};

struct Command {
  const char* name;
  std::vector<std::string> words;
  std::set<std::string> sections;  // that its page has
  int code = 0;
};

std::vector<std::string> Joined(std::vector<std::string> words,
                                std::initializer_list<std::vector<std::string>> more) {
  for (const auto& one : more) words.insert(words.end(), one.begin(), one.end());
  return words;
}

// A few published runs in a file of the test's own.
std::string FewRuns() {
  const std::string path = ScratchFolder() + "/private-runs.csv";
  std::ifstream all(std::string(ORRERY_SOURCE_DIR) + "/calib/data/published_runs.csv");
  std::string text, line;
  for (int i = 0; i < 40 && std::getline(all, line); ++i) text += line + "\n";
  WriteText(path, text);
  return path;
}

std::string Record(const std::string& command, std::vector<std::string> words) {
  const std::string path = ScratchFolder() + "/private-" + command + ".json";
  words.insert(words.begin(), command);
  words.insert(words.end(), {"--json", path});
  EXPECT_EQ(RunPlan(words).code, 0);
  return path;
}

std::vector<Command> Commands() {
  const std::set<std::string> step = {"answer",  "breakdown", "timeline", "memory-over-time",
                                      "cluster", "memory",    "measured", "assumptions"};
  std::set<std::string> search = step;
  search.insert({"ranking", "scaling", "rejected"});
  std::set<std::string> training = search;
  training.insert("training");
  const std::vector<std::string> here = {"--topology",  "localhost", "--gpus-per-node", "2",
                                         "--precision", "fp32",      "--framework",     "orrery"};
  const std::string predicted = Record("simulate", Joined(kTiny, {here})),
                    measured = Record("run", Joined(kTiny, {{"--comm", "local", "--steps", "2"}}));
  return {
      {"predict", Joined({"predict"}, {kJob, kStages}), step},
      {"simulate", Joined({"simulate"}, {kJob, kStages}), step},
      {"a slow rank", Joined({"simulate"}, {kJob, kStages, {"--slow-gpu", "1:1.5"}}), step},
      {"plan", kJob, search},
      {"plan of a run", Joined(kJob, {{"--tokens", "30B", "--deadline", "90d"}}), training},
      {"plan of topologies",
       {"--model", "gpt2-xl", "--topology", "aws-p4d,dgx-h100", "--nodes", "1"},
       {"answer", "ranking", "breakdown", "timeline", "memory-over-time", "cluster", "memory",
        "scaling"}},
      {"plan of topologies for a run",
       {"--model", "gpt2-xl", "--topology", "aws-p4d,dgx-h100,aws-p5", "--nodes", "1,2", "--tokens",
        "30B", "--deadline", "20d", "--budget", "9kUSD"},
       {"answer", "ranking", "frontier", "breakdown"}},
      {"nothing fits",
       {"--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "1", "--memory-limit", "3GiB"},
       {"answer", "memory", "assumptions"},
       3},
      {"provision",
       {"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "aws-p4d,nebius",
        "--nodes", "1..8", "--deadline", "3d", "--budget", "9kUSD"},
       {"answer", "frontier", "runs", "scaling", "breakdown", "prices", "advice"}},
      {"published", {"provision", "--published"}, {"answer", "runs"}},
      {"spot",
       {"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "aws-p4d", "--kind",
        "spot", "--nodes", "1..4", "--as-of", "2029-01-01", "--replay", "20"},
       {"answer", "frontier", "runs", "prices", "advice"}},
      {"placement",
       Joined({"predict"}, {kJob, kStages, {"--placement", "search"}}),
       {"answer", "breakdown", "placement"}},
      {"placement of a search", Joined(kJob, {{"--placement", "search"}}), {"placement"}},
      {"run",
       Joined({"run"}, {kTiny, {"--comm", "local", "--steps", "3"}}),
       {"answer", "steps", "breakdown", "timeline", "ranks"}},
      {"compare", {"compare", predicted, measured}, {"answer", "steps", "parts"}},
      {"validate", {"validate", FewRuns()}, {"answer", "measured", "sources"}},
  };
}

std::set<std::string> SectionsOf(const std::string& html) {
  std::set<std::string> sections;
  for (std::size_t at = 0; (at = html.find("<section id=", at)) != std::string::npos;) {
    at += std::string_view("<section id=").size();
    sections.insert(html.substr(at, html.find_first_of(" >", at) - at));
  }
  return sections;
}

struct Made {
  std::string html;
  json answer;
};

Made MakePage(const Command& command) {
  const std::string page = ScratchFolder() + "/page.html", record = ScratchFolder() + "/page.json";
  const Outcome outcome = RunPlan(Joined(command.words, {{"--html", page, "--json", record}}));
  EXPECT_EQ(outcome.code, command.code) << command.name << ": " << outcome.err;
  EXPECT_FALSE(fs::exists(page + ".part"));
  return {ReadText(page), json::parse(ReadText(record), nullptr, false)};
}

// Every page, made once: tests look at it from their side.
const std::vector<std::pair<Command, Made>>& Pages() {
  static const auto pages = [] {
    std::vector<std::pair<Command, Made>> made;
    for (const Command& command : Commands()) made.emplace_back(command, MakePage(command));
    return made;
  }();
  return pages;
}

TEST(Words, ALayoutThatDoesNotFitSaysSoFirst) {
  const Made made = MakePage(
      {"does not fit", Joined({"predict"}, {kJob, kStages, {"--memory-limit", "4GiB"}}), {}, 3});
  const std::size_t answer = made.html.find("<section id=answer");
  ASSERT_NE(answer, std::string::npos);
  const std::size_t said = made.html.find("does not fit the memory of its GPUs", answer);
  ASSERT_NE(said, std::string::npos);
  EXPECT_LT(said, made.html.find("one step takes", answer));
}

TEST(Html, ShowsWhatJsonSays) {
  for (const auto& [command, made] : Pages()) {
    EXPECT_EQ(Differences(made.html, made.answer), "") << command.name;
    EXPECT_GT(MarksOf(made.html).size(), command.code == 0 ? 10u : 3u) << command.name;
    const std::set<std::string> sections = SectionsOf(made.html);
    for (const std::string& section : command.sections)
      EXPECT_TRUE(sections.contains(section)) << command.name << " lacks " << section;
  }
}

TEST(Html, IsSmallWholeAndKeepsLocalPathsToItself) {
  for (const auto& [command, made] : Pages()) {
    EXPECT_LT(made.html.size(), 2'000'000u) << command.name;
    EXPECT_EQ(Unbalanced(made.html), "") << command.name;
    for (const std::string& path :
         {ScratchFolder(), std::string(ORRERY_SOURCE_DIR), fs::current_path().string()})
      EXPECT_THAT(made.html, Not(HasSubstr(path))) << command.name;
    EXPECT_THAT(made.html, Not(HasSubstr("src="))) << command.name;
  }
}

// Every part of a step that takes time has a mark, and marks are as long as their values.
TEST(Html, BarsAreAsLongAsTheirTerms) {
  const auto& [command, made] = Pages()[0];
  std::set<std::string> drawn;
  std::set<double> scales;
  const std::string place = "/prediction/breakdown/";
  for (const PageMark& mark : MarksOf(made.html)) {
    if (mark.tag != "rect" || !mark.attributes.at("data-p").starts_with(place)) continue;
    drawn.insert(mark.attributes.at("data-p").substr(place.size()));
    const double width = std::stod(mark.attributes.at("width"));
    if (width > 10)
      scales.insert(std::round(1e3 * width / std::stod(mark.attributes.at("data-v"))));
  }
  for (const auto& [term, seconds] : made.answer["prediction"]["breakdown"].items()) {
    if (term != "hidden_s") {
      EXPECT_EQ(drawn.contains(term), seconds > 0) << term;
    }
  }
  ASSERT_FALSE(scales.empty());
  EXPECT_LT(*scales.rbegin() / *scales.begin(), 1.001);
}

const std::pair<Command, Made>& PageOf(const std::string& name) {
  return *std::ranges::find(Pages(), name, [](const auto& page) { return page.first.name; });
}

TEST(Html, TheScatterOfAValidationHasATableOfItsData) {
  const auto& [command, made] = PageOf("validate");
  std::set<std::string> cells, marks;
  for (const PageMark& mark : MarksOf(made.html)) {
    if (mark.section == "measured")
      (mark.tag == "td" ? cells : marks).insert(mark.attributes.at("data-p"));
  }
  int both = 0;
  for (std::size_t i = 0; i < made.answer["cases"].size(); ++i) {
    const json& one = made.answer["cases"][i];
    if (!one["measured_step_s"].is_number() || !one["predicted_step_s"].is_number()) continue;
    ++both;
    for (const char* key : {"measured_step_s", "predicted_step_s"})
      EXPECT_TRUE(cells.contains(fmt::format("/cases/{}/{}", i, key))) << i;
    EXPECT_TRUE(marks.contains(fmt::format("/cases/{}/predicted_step_s", i))) << i;
  }
  EXPECT_GT(both, 5);
}

// By brute force: no other topology is as fast and as cheap.
TEST(Html, TopologiesForARunHaveTheirFrontier) {
  const auto& [command, made] = PageOf("plan of topologies for a run");
  const json& all = made.answer["topologies"];
  std::set<std::size_t> expected, drawn;
  const auto point = [&](std::size_t i) {
    const json& run = all[i]["training"]["runs"][0];
    return std::pair(run["time_s"].get<double>(), run["cost_usd"].get<double>());
  };
  std::size_t priced = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]["training"]["priced"]) continue;
    ++priced;
    bool beaten = false;
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (j == i || !all[j]["training"]["priced"]) continue;
      beaten = beaten || (point(j).first <= point(i).first && point(j).second <= point(i).second);
    }
    if (!beaten) expected.insert(i);
  }
  ASSERT_GE(priced, 4u);
  EXPECT_LT(expected.size(), priced);
  EXPECT_EQ(made.answer["frontier"].get<std::set<std::size_t>>(), expected);
  std::size_t marks = 0;
  for (const PageMark& mark : MarksOf(made.html)) {
    if (mark.section != "frontier" || mark.tag != "path") continue;
    ++marks;
    if (mark.attributes.at("class").find("hollow") == std::string::npos)
      drawn.insert(
          std::stoul(mark.attributes.at("data-p").substr(std::string("/topologies/").size())));
  }
  EXPECT_EQ(marks, priced);
  EXPECT_EQ(drawn, expected);
  // Their lines, names and figures.
  EXPECT_THAT(made.html, HasSubstr(">deadline 20.0 d</text>"));
  EXPECT_THAT(made.html, HasSubstr(">budget 9.00 kUSD</text>"));
}

// What --window asks for is what the page says first and draws.
TEST(Html, AMicroStepIsSaidFirst) {
  const Made made = MakePage(
      {"",
       Joined({"predict"}, {kJob, {"--zero", "1", "--micro-batch", "4", "--window", "microstep"}}),
       {}});
  EXPECT_EQ(made.answer["window"], "microstep");
  const std::size_t micro = made.html.find("Forward and backward of one micro-batch take");
  ASSERT_NE(micro, std::string::npos);
  EXPECT_LT(micro, made.html.find("one step takes"));
  EXPECT_THAT(made.html, HasSubstr("one micro-batch, closed form"));
}

TEST(Html, APerturbedStepIsNoDifferenceOfTheEngines) {
  const Made made = MakePage(
      {"",
       Joined({"simulate"}, {kJob, {"--zero", "1", "--micro-batch", "4", "--slow-gpu", "3:1.5"}}),
       {}});
  const json& prediction = made.answer["prediction"];
  ASSERT_GT(prediction["step_time_s"].get<double>(),
            1.05 * prediction["closed_form_step_time_s"].get<double>());
  EXPECT_TRUE(prediction["engines_differ"].is_null());
  EXPECT_THAT(made.html, Not(HasSubstr("engines differ")));
  EXPECT_THAT(made.html, HasSubstr("closed form, unperturbed"));
}

TEST(Html, MemoryOverTimePeaksWhereTheSimulationDoes) {
  const json& answer = Pages()[1].second.answer;
  for (const json& stage : answer["memory_over_time"]) {
    int64_t peak = 0;
    for (std::size_t i = 0; i < stage["time_s"].size(); ++i) {
      int64_t sum = 0;
      for (const json& series : stage["series"]) sum += series["bytes"][i].get<int64_t>();
      EXPECT_EQ(sum, stage["total_bytes"][i].get<int64_t>());
      peak = std::max(peak, sum);
    }
    EXPECT_EQ(peak, stage["peak_bytes"].get<int64_t>());
    for (const json& rank : answer["ranks"]) {
      if (rank["rank"] == stage["rank"]) {
        // The report's moment counts copies of the logits, too; the tensors' own peak may be another.
        EXPECT_LE(rank["memory_peak_bytes"], peak);
        EXPECT_GE(rank["memory_allocated_bytes"], peak);
      }
    }
  }
  EXPECT_EQ(answer["memory_over_time"].size(), 2u);
}

TEST(Html, LinksInTheDrawingAreThoseOfTheTable) {
  const json& answer = Pages()[1].second.answer;
  for (const json& busy : answer["links"]) {
    bool found = false;
    for (const json& link : answer["cluster"]["links"]) {
      const std::string name =
          link["from"].get<std::string>() + " -> " + link["to"].get<std::string>();
      if (name != busy["link"]) continue;
      found = true;
      EXPECT_EQ(link["bytes"], busy["bytes"]);
      EXPECT_NEAR(link["busy"].get<double>(), busy["busy"].get<double>(), 1e-9);
    }
    EXPECT_TRUE(found) << busy["link"];
  }
}

TEST(Html, AnInputBoundLayoutIsNamed) {
  const Made made = MakePage({"",
                              {"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
                               "--tokens", "30B", "--input", "2ktokens/s"},
                              {}});
  EXPECT_THAT(made.html, HasSubstr("INPUT-BOUND: the limit of the readers is 16.0 k tokens/s"));
  EXPECT_THAT(made.html, HasSubstr("Ranked by the step with its input"));
}

TEST(Html, AComparisonCountsStepAndTokensAsTheRunDoes) {
  const std::vector<std::string> steps = Joined(kTiny, {{"--comm", "local", "--steps", "9"}});
  const std::vector<std::string> here = {"--topology",  "localhost", "--gpus-per-node", "2",
                                         "--precision", "fp32",      "--framework",     "orrery"};
  const std::string predicted = Record("simulate", Joined(kTiny, {here})),
                    measured = Record("run", steps);
  const std::string path = ScratchFolder() + "/compared.json";
  ASSERT_EQ(RunPlan({"compare", predicted, measured, "--json", path}).code, 0);
  const json run = json::parse(ReadText(measured)), compared = json::parse(ReadText(path));
  EXPECT_EQ(compared["measured_step_s"], run["step_time_s"]["median"]);
  EXPECT_NEAR(compared["measured_tokens_per_s"].get<double>(), run["tokens_per_s"].get<double>(),
              1e-9 * run["tokens_per_s"].get<double>());
  for (const json& step : run["steps"]) EXPECT_LE(step["rank_0_seconds"], step["seconds"]);
}

TEST(Html, AFileThatCannotBeWrittenIsSaidBeforeTheWork) {
  const std::string gone = ScratchFolder() + "/no-such-folder/page.html";
  for (const auto& [command, made] : Pages()) {
    const std::string record = ScratchFolder() + "/untouched.json";
    for (const std::string& path : {gone, ScratchFolder()}) {
      const Outcome outcome = RunPlan(Joined(command.words, {{"--html", path, "--json", record}}));
      EXPECT_EQ(outcome.code, 2) << command.name;
      EXPECT_THAT(outcome.err, HasSubstr("cannot write")) << command.name;
      const json said = json::parse(ReadText(record), nullptr, false);  // the error alone
      EXPECT_TRUE(said.is_object() && said.contains("errors")) << command.name;
      EXPECT_FALSE(said.contains("prediction") || said.contains("answers")) << command.name;
      fs::remove(record);
    }
  }
}

TEST(Html, NamesFromFilesAreEscaped) {
  const std::string path = ScratchFolder() + "/odd<b>&.yaml";
  std::string model =
      ReadText(std::string(ORRERY_SOURCE_DIR) + "/scenarios/models/gpt2-micro.yaml");
  const std::size_t at = model.find("name: ");
  ASSERT_NE(at, std::string::npos);
  model.replace(at, model.find('\n', at) - at, "name: '<img src=x onerror=alert(1)>'");
  WriteText(path, model);
  const Made made =
      MakePage({"", {"predict", "--model", path, "--topology", "aws-p4d", "--nodes", "1"}, {}});
  EXPECT_THAT(made.html, HasSubstr("&lt;img src=x onerror=alert(1)&gt;"));
  EXPECT_THAT(made.html, Not(HasSubstr("<img")));
}

}  // namespace
}  // namespace orrery
