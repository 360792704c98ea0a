// SPDX-License-Identifier: Apache-2.0
// In which order `plan --tokens` puts layouts and clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/json_of.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;

// Failures, spares and setup count: what takes the least of all steps is not always the shortest or cheapest run.
TEST(Tokens, NodeCountsAndReplicasRankByTheRun) {
  const std::vector<std::string> words = {
      "--model", "llama2-7b", "--topology", "aws-p4d", "--nodes", "1,2,4",          "--tokens",
      "20B",     "--refine",  "0",          "--top",   "12",      "--global-batch", "64"};
  const std::vector<std::vector<std::string>> conditions = {
      {"--setup", "3d"}, {"--failures", "100", "--recovery", "elastic"}, {"--failures", "100"}};
  int turned = 0;  // rows that all steps alone would put elsewhere
  for (const auto& condition : conditions) {
    for (const char* objective : {"cost", "time"}) {
      const json answer = JsonOf(With(With(words, condition), {"--objective", objective}));
      const char* key = std::string(objective) == "cost" ? "cost_usd" : "time_s";
      double last = 0, steps = 0;
      for (std::size_t i = 0; i < answer["ranked"].size(); ++i) {
        const json& row = answer["ranked"][i];
        const json& run = answer["training"]["runs"][i];
        if (row["memory"]["nearly_full"] == true) break;
        const double hour = 3600 / run["billed_s"].get<double>();  // that begins is paid for
        EXPECT_GE(run[key].get<double>(), last * (1 - 1e-3 - hour))
            << condition[0] << ' ' << objective << ' ' << i;
        last = run[key];
        const double all = run["ideal_s"].get<double>() *
                           (std::string(objective) == "cost" ? row["nodes"].get<double>() : 1);
        turned += all < steps * (1 - 1e-6);
        steps = all;
      }
    }
  }
  EXPECT_GE(turned, 3);
}

// An hour that begins is paid for: of equal bills the shorter run comes first, with its input and whatever its batch.
TEST(Tokens, OfEqualBillsTheShorterRunComesFirst) {
  const std::vector<std::string> fed = {"--model",        "bert-1.5b",  "--nodes",  "16",
                                        "--global-batch", "256",        "--tokens", "300M",
                                        "--input",        "3ktokens/s", "--spares", "0"};
  const std::vector<std::string> batches = {"--model",        "llama3-8b", "--nodes",  "4",
                                            "--global-batch", "32..512",   "--tokens", "800M"};
  for (const auto& question : {fed, batches}) {
    const json answer =
        JsonOf(With(question, {"--topology", "dgx-h100", "--node-price", "36USD/h", "--setup", "0h",
                               "--refine", "0", "--objective", "cost"}));
    double cost = 0, time = 0;
    for (const json& run : answer["training"]["runs"]) {
      EXPECT_GE(run["cost_usd"].get<double>(), cost * (1 - 1e-9));
      if (run["cost_usd"].get<double>() <= cost) {
        EXPECT_GE(run["time_s"].get<double>(), time * (1 - 1e-3));
      }
      cost = run["cost_usd"], time = run["time_s"];
    }
    EXPECT_GT(cost, 0);
  }
}

// Clusters, too, in whichever order they are named.
TEST(Tokens, OfClustersWithEqualBillsTheFasterComesFirst) {
  for (const char* topologies : {"dgx-h100,dgx-b200", "dgx-b200,dgx-h100"}) {
    const json answer = JsonOf({"--model", "llama3-8b", "--topology", topologies, "--node-price",
                                "36USD/h", "--nodes", "4", "--tokens", "800M", "--global-batch",
                                "256", "--setup", "0h", "--refine", "0", "--objective", "cost"});
    const json& all = answer["topologies"];
    EXPECT_EQ(all[0]["training"]["runs"][0]["cost_usd"], all[1]["training"]["runs"][0]["cost_usd"]);
    EXPECT_EQ(answer["best"], "dgx-b200") << topologies;
  }
}

// Readers of 320 k tokens/s leave less to gain than the GPUs alone would.
TEST(Tokens, NothingIsGainedBeyondTheInput) {
  const json answer =
      JsonOf({"--model", "llama3-8b", "--topology", "dgx-h100", "--node-price", "36USD/h",
              "--nodes", "4", "--tokens", "100B", "--global-batch", "512", "--input", "10ktokens/s",
              "--straggler", "1.2", "--refine", "0"});
  const double fed =
      512.0 * 8192 / (1e4 * answer["ranked"][0]["strategy"]["dp"].get<double>()) / 1.2;
  ASSERT_LT(fed, answer["ranked"][0]["step_time_s"].get<double>());
  bool at_input = false;
  for (const json& limit : answer["limits"]) {
    if (limit["resource"] == "GPU memory") continue;  // of another layout
    EXPECT_GE(limit["step_time_s"].get<double>(), fed * (1 - 1e-9)) << limit["words"];
    at_input |= limit["words"].get<std::string>().find("as fast as the input") != std::string::npos;
  }
  EXPECT_TRUE(at_input);
}

// A cost is that of the run, and without tokens that of a token: by the step alone a small batch is cheap.
TEST(Tokens, BatchesRankByTheRun) {
  const std::vector<std::string> words = {"--model",  "gpt2-xl", "--topology",     "aws-p4d",
                                          "--nodes",  "2",       "--global-batch", "64,512",
                                          "--refine", "0",       "--top",          "4"};
  for (const char* objective : {"cost", "time"}) {
    const json answer = JsonOf(With(words, {"--tokens", "10B", "--objective", objective}));
    const char* key = std::string(objective) == "cost" ? "cost_usd" : "time_s";
    double last = 0;
    for (const json& run : answer["training"]["runs"]) {
      EXPECT_GE(run[key].get<double>(), last * (1 - 1e-3)) << objective;
      last = run[key];
    }
    EXPECT_EQ(answer["ranked"][0]["global_batch"], 512) << objective;
  }
  const json by_token = JsonOf(With(words, {"--objective", "cost"}));
  EXPECT_EQ(by_token["ranked"][0]["global_batch"], 512);
  EXPECT_EQ(by_token["ranked_by"], "cost of a token");
}

// One step on both sides of a gain, that of words: with its input and its slowest node.
TEST(Tokens, WhatAFasterInputGainsIsOfTheStepsThatItsWordsSay) {
  const json answer = JsonOf({"--model", "llama3-8b", "--topology", "dgx-b200", "--nodes", "8",
                              "--node-price", "40USD/h", "--tokens", "150B", "--global-batch",
                              "512", "--input", "6ktokens/s", "--straggler", "2", "--refine", "0"});
  const json &limit = answer["limits"][0], &run = answer["training"]["runs"][0];
  ASSERT_TRUE(run["input"]["input_bound"]);
  const double now = run["step_time_s"].get<double>() * run["slowest_node"].get<double>(),
               then = limit["step_time_s"];
  EXPECT_NEAR(then, 2 * answer["ranked"][0]["step_time_s"].get<double>(), 1e-9 * then);
  EXPECT_NEAR(limit["gain"].get<double>(), 1 - then / now, 1e-9);
}

// All layouts of so many replicas take the same step with their input, simulated or not.
TEST(Tokens, NothingBeatsAnInputThatIsTheLimit) {
  const json answer =
      JsonOf({"--model", "bert-1.5b", "--topology", "dgx-h100", "--nodes", "32", "--node-price",
              "36USD/h", "--tokens", "300B", "--global-batch", "8192", "--input", "2ktokens/s"});
  ASSERT_TRUE(answer["training"]["runs"][0]["input"]["input_bound"]);
  EXPECT_FALSE(answer["refinement"]["faster_ones_possible"]);
}

// Steps on other nodes are no measure: what is said beside plan 1 names its nodes and its rate per node.
TEST(NodeCounts, WhatIsSaidOfMemoryNamesTheNodes) {
  const json answer =
      JsonOf({"--model", "llama2-70b", "--topology", "aws-p5", "--nodes", "8,16", "--global-batch",
              "512", "--objective", "tokens-per-dollar", "--refine", "0"});
  std::set<int64_t> nodes;
  for (const json& miss : answer["near_misses"]) {
    const std::string words = miss["words"], count = miss["nodes"].dump();
    EXPECT_EQ(words.find("Near miss: " + count + " nodes, tp "), 0u) << words;
    EXPECT_EQ(words.find(" tokens/s per node; plan 1: ") != std::string::npos,
              miss["nodes"] != answer["ranked"][0]["nodes"])
        << words;
    nodes.insert(miss["nodes"].get<int64_t>());
  }
  EXPECT_GT(nodes.size(), 1u);
  int examples = 0;
  for (const json& rejection : answer["rejections"]) {
    const std::string example = rejection["example"];
    EXPECT_NE(example.find(" nodes, tp "), std::string::npos) << example;
    ++examples;
  }
  EXPECT_GT(examples, 1);
}

// A range of batches is any of them, as for provision: 192 on 24 GPUs is neither 100, 200 nor between them by doubling.
TEST(Batches, ARangeIsSearchedAsProvisionDoes) {
  const json answer = JsonOf({"--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "3",
                              "--global-batch", "100..200", "--refine", "0"});
  EXPECT_EQ(answer["workload"]["global_batch"], json({100, 192, 200}));
  EXPECT_EQ(answer["ranked"][0]["global_batch"], 192);
}

}  // namespace
}  // namespace orrery
