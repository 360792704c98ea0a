// SPDX-License-Identifier: Apache-2.0
// In which order `plan --tokens` puts layouts and clusters.
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

// Failures, spares and setup count: what takes the least of all steps is not always the shortest or cheapest run.
TEST(Tokens, NodeCountsAndReplicasRankByTheRun) {
  const std::vector<std::string> words = {
      "--model", "llama2-13b", "--topology", "aws-p4d", "--nodes", "1,2,4",          "--tokens",
      "20B",     "--refine",   "0",          "--top",   "12",      "--global-batch", "256"};
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

// A cost is that of the run: a small batch is cheap by the step alone.
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
  EXPECT_EQ(JsonOf(With(words, {"--objective", "cost"}))["ranked"][0]["global_batch"], 64);
}

}  // namespace
}  // namespace orrery
