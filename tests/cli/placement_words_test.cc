// SPDX-License-Identifier: Apache-2.0
// Orders of ranks that a search finds or is given: what the answer says of them, and of the ranking.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/json_of.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(PlacementEngine, IsThatOfTheStep) {
  const std::vector<std::string> job = {
      "--model",   "gpt2-medium", "--topology",  "aws-p4d", "--nodes", "2", "--global-batch", "64",
      "--seq-len", "512",         "--slow-node", "1:2",     "--tp",    "8", "--pp",           "2"};
  const std::vector<std::string> search = {"--placement", "search", "--micro-batch", "4"};
  for (const char* engine : {"closed", "event"}) {
    const json answer = JsonOf(With(With({"predict"}, With(job, search)), {"--engine", engine}));
    EXPECT_EQ(answer["placement"]["engine"], engine);
    EXPECT_EQ(answer["prediction"]["engine"], engine);
    EXPECT_DOUBLE_EQ(answer["placement"]["step_time_s"].get<double>(),
                     answer["prediction"]["step_time_s"].get<double>());
  }
  const json ranked = JsonOf(With(With(job, search), {"--refine", "0"}))["ranked"][0];
  EXPECT_EQ(ranked["engine"], ranked["placement"]["engine"]);
  EXPECT_DOUBLE_EQ(ranked["step_time_s"].get<double>(),
                   ranked["placement"]["default_step_time_s"].get<double>());
}

// "Best" was the layout alone, and what gains most stood at the end.
TEST(PlacementWords, BestSaysHowItIsPlaced) {
  const std::vector<std::string> job = {
      "--model",   "gpt2-medium", "--topology",     "aws-p4d", "--nodes",       "2",
      "--seq-len", "512",         "--global-batch", "64",      "--slow-node",   "1:2",
      "--tp",      "8",           "--pp",           "2",       "--micro-batch", "4",
      "--refine",  "0",           "--placement",    "search",  "--schedule",    "1f1b"};
  const std::string text = Folded(RunPlan(job).out);
  const std::size_t best = text.find("Best by time: "), placed = text.find(" with ", best);
  ASSERT_NE(best, std::string::npos) << text;
  EXPECT_LT(placed, text.find("step time")) << text;
  EXPECT_THAT(text.substr(placed, 120), HasSubstr(" instead of "));
  EXPECT_THAT(RunPlan(With(job, {"--quiet"})).out, HasSubstr("; with "));
}

// It compared steps in the default order of ranks.
TEST(PlacementWords, DiffAndOpenTellTheStepAsItIsPlaced) {
  const std::string folder = ScratchFolder();
  const std::vector<std::string> job = {
      "--model",   "gpt2-medium", "--topology",     "aws-p4d", "--nodes",    "2",
      "--seq-len", "512",         "--global-batch", "64",      "--tp",       "8",
      "--pp",      "2",           "--micro-batch",  "4",       "--schedule", "1f1b",
      "--refine",  "0",           "--placement",    "search"};
  std::vector<double> placed;
  for (const char* slow : {"1:2", "1:3"}) {
    const std::string bundle = folder + "/" + std::to_string(placed.size()) + ".json";
    const json answer = JsonOf(With(job, {"--slow-node", slow, "--bundle", bundle}));
    const json& row = answer["ranked"][0];
    ASSERT_GT(row["placement"]["gain"].get<double>(), 0);
    placed.push_back(row["placement"]["step_time_s"].get<double>());
    EXPECT_LT(placed.back(), row["step_time_s"].get<double>());
  }
  const json diff = JsonOf({"diff", folder + "/0.json", folder + "/1.json"});
  EXPECT_DOUBLE_EQ(diff["old"]["step_time_s"].get<double>(), placed[0]);
  EXPECT_DOUBLE_EQ(diff["new"]["step_time_s"].get<double>(), placed[1]);
  EXPECT_THAT(diff["old"]["layout"].get<std::string>(), HasSubstr(", --placement "));
}

// The answer, and its rows by their placed steps.
std::pair<json, std::vector<int>> OrderOf(const std::vector<std::string>& job) {
  json answer = JsonOf(job);
  std::vector<std::pair<double, int>> steps;
  for (const json& row : answer["ranked"]) {
    if (row.contains("placement"))
      steps.emplace_back(row["placement"]["step_time_s"], static_cast<int>(steps.size()) + 1);
  }
  EXPECT_EQ(steps.size(), 5u);
  std::ranges::stable_sort(steps);
  std::vector<int> order;
  for (const auto& [seconds, row] : steps) order.push_back(row);
  return {std::move(answer), order};
}

// Rows 4 and 5 were not searched, and nothing said so.
TEST(PlacementWords, EachRowIsSearchedOrNamed) {
  const auto [answer, order] =
      OrderOf({"--model",    "gpt2-medium", "--topology",     "aws-p4d", "--nodes",     "2",
               "--seq-len",  "512",         "--global-batch", "64",      "--tp",        "8",
               "--refine",   "0",           "--slow-node",    "1:2",     "--placement", "search",
               "--schedule", "1f1b"});
  EXPECT_FALSE(std::ranges::is_sorted(order));
  EXPECT_EQ(answer["placed"]["order"].get<std::vector<int>>(), order);
}

// The fastest so placed is not the first row here: every answer begins with it.
TEST(PlacementWordsSlow, TheBestIsTheFastestSoPlaced) {
  const std::vector<std::string> job = {"--model",        "gpt2-xl", "--topology",  "aws-p4d",
                                        "--nodes",        "3",       "--framework", "orrery",
                                        "--slow-node",    "2:1.3",   "--placement", "search",
                                        "--global-batch", "480"};
  const auto [answer, order] = OrderOf(job);
  ASSERT_GT(order.front(), 1);
  EXPECT_EQ(answer["placed"]["order"].get<std::vector<int>>(), order);
  const std::string bundle = ScratchFolder() + "/placed.json";
  const std::string text = Folded(RunPlan(With(job, {"--bundle", bundle})).out);
  const std::string best = "so placed, plan " + std::to_string(order.front()) + " is the best: ";
  EXPECT_LT(text.find(best), text.find("step time")) << text;
  EXPECT_THAT(text, HasSubstr(answer["placed"]["words"].get<std::string>()));
  EXPECT_THAT(RunPlan(With(job, {"--quiet"})).out, HasSubstr(best));
  // Bundles are compared by what is the best.
  const json& first = answer["ranked"][static_cast<std::size_t>(order.front() - 1)];
  EXPECT_DOUBLE_EQ(JsonOf({"diff", bundle, bundle})["new"]["step_time_s"].get<double>(),
                   first["placement"]["step_time_s"].get<double>());
}

TEST(PlacementWords, RowsBeyondTheMostAreNamed) {
  const std::vector<std::string> job = {
      "--model",  "gpt2-medium", "--topology",  "aws-p4d", "--nodes", "2",  "--seq-len",      "512",
      "--refine", "0",           "--placement", "search",  "--top",   "12", "--global-batch", "64"};
  const auto [text, answer] = BothOf(job);
  ASSERT_EQ(answer["ranked"].size(), 12u);
  for (std::size_t row = 0; row < 12; ++row)
    EXPECT_EQ(answer["ranked"][row].contains("placement"), row < 10) << row;
  const std::string words = "not looked at: plans 11 and 12";
  EXPECT_THAT(answer["placed"]["words"].get<std::string>(), HasSubstr(words));
  EXPECT_THAT(Folded(text.out), HasSubstr(words));
}

// `plan` said that none of the first layouts can have it.
TEST(PlacementWords, AnOrderThatIsNoneNamesItsNode) {
  const std::vector<std::string> search = {"--model", "gpt2-medium", "--topology", "aws-p4d",
                                           "--nodes", "3",           "--refine",   "0"};
  const std::vector<std::string> predict = {
      "predict", "--model", "gpt2-medium", "--topology", "aws-p4d", "--nodes",
      "3",       "--dp",    "24",          "--tp",       "1"};
  const std::vector<std::pair<std::string, std::string>> orders = {
      {"0,0,1", "names node 0 twice"},
      {"tp-cp-dp-pp:0..3", "names node 3, the cluster has nodes 0 to 2"},
      {"2,0", "names 2 of 3 nodes: node 1 is missing"}};
  for (const auto& [order, reason] : orders) {
    for (const auto& words : {search, predict}) {
      const Outcome refused = RunPlan(With(words, {"--global-batch", "24", "--placement", order}));
      EXPECT_EQ(refused.code, 2) << order;
      EXPECT_THAT(Folded(refused.err), AllOf(HasSubstr(reason), HasSubstr("each of nodes 0 to 2")));
    }
  }
}

// Four nodes on two leaves, by the names of hosts that are cabled crosswise.
std::string NamedTopology(const std::string& others = "") {
  std::string text = ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/aws-p4d.yaml");
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace("name: aws-p4d", "name: crossed");
  replace("nodes: 2\nmax_nodes: 16384\n", "nodes: 4\nmax_nodes: 4\n" + others);
  replace("fabric: {kind: single-switch}",
          "fabric: {kind: named, switches: [{name: leaf0, hosts: [gpu-a1, gpu-b3]}, "
          "{name: leaf1, hosts: [gpu-a2, gpu-b4]}, {name: spine}], links: [{between: [leaf0, "
          "spine], rate: 100Gbps}, {between: [leaf1, spine], rate: 100Gbps}]}");
  const std::string path = ScratchFolder() + "/crossed.yaml";
  WriteText(path, text);
  return path;
}

TEST(PlacementHosts, NamesStandForNumbers) {
  const std::vector<std::string> job = {
      "predict",        "--model", "gpt2-medium", "--topology", NamedTopology(), "--seq-len", "512",
      "--global-batch", "64",      "--tp",        "8",          "--pp",          "2"};
  const auto step = [&](const std::vector<std::string>& more) {
    return JsonOf(With(job, more))["prediction"]["step_time_s"].get<double>();
  };
  const double by_number =
      step({"--placement", "tp-cp-dp-pp:0,2,1,3", "--slow-node", "2:1.5,3:1.2"});
  EXPECT_DOUBLE_EQ(step({"--placement", "tp-cp-dp-pp:gpu-a1,2,gpu-a2,gpu-b4", "--slow-node",
                         "gpu-b3:1.5,gpu-b4:1.2"}),
                   by_number);
  EXPECT_DOUBLE_EQ(
      step({"--placement", "gpu-a1,gpu-b3,1,gpu-b4", "--slow-node", "2:1.5,gpu-b4..3:1.2"}),
      by_number);
  const auto refused = [&](const std::vector<std::string>& more) {
    const Outcome outcome = RunPlan(With(job, more));
    EXPECT_EQ(outcome.code, 2);
    return Folded(outcome.err);
  };
  EXPECT_THAT(refused({"--slow-node", "gpu-b5:1.5"}),
              AllOf(HasSubstr("'gpu-b5' is neither a node's number nor a host"),
                    HasSubstr("did you mean 'gpu-b")));
  EXPECT_THAT(refused({"--placement", "gpu-a1,gpu-a2,gpu-b3,gpu-c4"}),
              AllOf(HasSubstr("'gpu-c4' is neither"), HasSubstr("did you mean")));
  EXPECT_THAT(refused({"--placement", "gpu-a1,gpu-a2,gpu-b3,gpu-b3"}),
              HasSubstr("names node 2 (gpu-b3) twice"));
  EXPECT_THAT(refused({"--slow-node", "4:1.5"}), HasSubstr("nodes 0 to 3 (gpu-a1 .. gpu-b4)"));
}

TEST(PlacementHosts, OtherNodesAreNamedByHostsToo) {
  const std::vector<std::string> job = {"predict", "--model",   "gpt2-medium", "--seq-len",
                                        "512",     "--tp",      "8",           "--pp",
                                        "2",       "--topology"};
  const std::string by_host = Folded(
      RunPlan(With(job, {NamedTopology("other_nodes: [{nodes: \"gpu-b3..3\", slower: 1.3}]\n")}))
          .out);
  EXPECT_THAT(by_host, HasSubstr("nodes 2 to 3 (gpu-b3 .. gpu-b4): kernels take 1.3 times"));
  const Outcome wrong =
      RunPlan(With(job, {NamedTopology("other_nodes: [{nodes: \"gpu-b9\", slower: 1.3}]\n")}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(Folded(wrong.err), AllOf(HasSubstr("crossed.yaml:"), HasSubstr("'gpu-b9' is neither"),
                                       HasSubstr("did you mean 'gpu-b")));
}

TEST(PlacementHosts, TheAnswerNamesThemInOrder) {
  const std::string text = Folded(
      RunPlan({"predict", "--model", "gpt2-medium", "--topology", NamedTopology(), "--seq-len",
               "512", "--global-batch", "64", "--tp", "8", "--pp", "2", "--placement", "search"})
          .out);
  EXPECT_THAT(text, AllOf(HasSubstr("--placement tp-cp-dp-pp:0,2,1,3"),
                          HasSubstr("Hosts in this order: gpu-a1, gpu-b3, gpu-a2, gpu-b4")));
}

// `predict` began from even layers alone and found less than `plan` of the same axes.
void ExpectPlacedAsWell(const std::string& slow, const std::string& pp) {
  std::vector<std::string> job = {"--model",     "gpt2-xl", "--topology",     NamedTopology(),
                                  "--slow-node", slow,      "--tp",           "1",
                                  "--pp",        pp,        "--global-batch", "128",
                                  "--zero",      "1",       "--micro-batch",  "1",
                                  "--schedule",  "1f1b",    "--recompute",    "none",
                                  "--placement", "search"};
  const json row = JsonOf(With(job, {"--top", "1"}))["ranked"][0]["placement"];
  const json one = JsonOf(With({"predict"}, job))["placement"];
  EXPECT_LE(one["step_time_s"].get<double>(), row["step_time_s"].get<double>() * (1 + 1e-9))
      << slow << ", pp " << pp << ": " << one["layers"] << " " << row["layers"];
}

TEST(PlacementSearch, OneLayoutIsPlacedAsWellAsInASearch) {
  ExpectPlacedAsWell("1:1.5", "4");
  ExpectPlacedAsWell("0:1.2,3:2", "8");
}

TEST(PlacementSearchSlow, OneLayoutIsPlacedAsWellAsInASearchOfOtherNodes) {
  ExpectPlacedAsWell("1:1.5", "8");
  ExpectPlacedAsWell("0:1.2,3:2", "4");
}

TEST(PlacementWords, SaysWhichSplitsOfTheLayersWereNotLookedAt) {
  const std::vector<std::string> job = {"predict", "--model",        "gpt2-medium", "--topology",
                                        "aws-p4d", "--nodes",        "2",           "--seq-len",
                                        "512",     "--global-batch", "64",          "--tp",
                                        "8",       "--pp",           "2",           "--micro-batch",
                                        "4",       "--placement",    "search"};
  const char* words = "Other splits of the layers over the stages were not looked at";
  EXPECT_THAT(Folded(RunPlan(With(job, {"--layout", "10,14"})).out), HasSubstr(words));
  EXPECT_THAT(Folded(RunPlan(With(job, {"--framework", "megatron@2021"})).out), HasSubstr(words));
  EXPECT_THAT(Folded(RunPlan(job).out), Not(HasSubstr(words)));
  EXPECT_THAT(Folded(RunPlan(With(job, {"--slow-node", "0:2"})).out), Not(HasSubstr(words)));
}

// They carried that of the default order.
TEST(PlacementExport, CarriesTheDigestOfThePlacedPlan) {
  const std::vector<std::string> job = {
      "--model",        "gpt2-medium", "--topology",  "aws-p4d", "--nodes",     "2",
      "--global-batch", "64",          "--tp",        "8",       "--pp",        "2",
      "--micro-batch",  "4",           "--schedule",  "1f1b",    "--framework", "megatron",
      "--zero",         "0",           "--placement", "1,0",     "--layout",    "12,12"};
  const json written = JsonOf(With({"export", "--to", "megatron"}, job));
  EXPECT_EQ(written["digest"], JsonOf(With({"predict"}, job))["prediction"]["digest"]);
  EXPECT_EQ(written["digest"], written["prediction"]["digest"]);
}

// They said that every field is expressed, and nothing pins or checks the hosts there.
TEST(PlacementExport, SaysWhereTheSchedulerPicksTheMachines) {
  const auto missing = [](const std::string& launcher, const std::string& topology) {
    const json written = JsonOf({"export", "--to", "megatron", "--launcher", launcher, "--model",
                                 "gpt2-medium", "--topology", topology, "--nodes", "4", "--tp", "8",
                                 "--global-batch", "64", "--placement", "2,0,1,3"});
    return written["not_expressed"].dump();
  };
  const std::string named = NamedTopology();
  for (const char* launcher : {"kubernetes", "aws-batch"})
    EXPECT_THAT(missing(launcher, named), HasSubstr("picks the machines")) << launcher;
  EXPECT_THAT(missing("slurm", named), Not(HasSubstr("picks the machines")));
  EXPECT_THAT(missing("kubernetes", "aws-p4d"), Not(HasSubstr("picks the machines")));
}

}  // namespace
}  // namespace orrery
