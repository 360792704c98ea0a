// SPDX-License-Identifier: Apache-2.0
// `plan simulate` with slow GPUs, jitter, slow links and failed NICs: what they cost, what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

// One NIC per GPU on rails; gradients of all replicas cross the network.
Outcome Simulate(const Words& more) {
  Words words = {
      "simulate",  "--model", "gpt2-small",     "--topology", "dgx-h100",      "--nodes", "2",
      "--seq-len", "512",     "--global-batch", "64",         "--micro-batch", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return RunPlan(words);
}

json SimulatedJson(Words more) {
  more.push_back("--json");
  const Outcome outcome = Simulate(more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? json::parse(outcome.out) : json();
}

constexpr double kSame = 1e-12;  // of a step: sums in another order

double Step(const Words& more) { return SimulatedJson(more)["step_time_s"]; }

std::string AllNicsOf(int node) {
  std::string all;
  for (int nic = 0; nic < 8; ++nic)
    all += (nic ? "," : "") + std::to_string(node) + ":nic" + std::to_string(nic);
  return all;
}

TEST(Perturbations, NeverMakeAStepShorter) {
  const double plain = Step({"--all-ranks"});
  for (const Words& words : std::vector<Words>{{"--slow-gpu", "3:1.3"},
                                               {"--slow-gpu", "0..7:1.3"},
                                               {"--degraded-link", "n0.nic2 -> leaf2:50%"},
                                               {"--degraded-link", "n0.gpu1 <-> n0.nvswitch:20%"},
                                               {"--failed-nic", "1:nic5"},
                                               {"--failed-nic", "n0.nic0,n0.nic1,n1.nic7"}}) {
    SCOPED_TRACE(words[0] + " " + words[1]);
    const json disturbed = SimulatedJson(words);
    EXPECT_NEAR(disturbed["undisturbed_step_time_s"].get<double>(), plain, kSame * plain);
    EXPECT_GE(disturbed["step_time_s"].get<double>(), plain * (1 - kSame));
    // Ranks that do the same are executed once, and take what all of them take.
    Words all = words;
    all.emplace_back("--all-ranks");
    const json each = SimulatedJson(all);
    EXPECT_EQ(each["executed_ranks"], 16);
    const double step = each["step_time_s"];
    EXPECT_NEAR(disturbed["step_time_s"].get<double>(), step, kSame * step);
  }
}

// Its CPU updates as fast as others': a slow node is slow in kernels.
TEST(Perturbations, ASlowNodeIsSlowInKernelsAlone) {
  const auto predicted = [](const char* factor) {
    const Outcome outcome = RunPlan(
        {"predict",   "--model",       "llama2-7b", "--topology",     "aws-p4de", "--nodes",
         "2",         "--framework",   "deepspeed", "--dp",           "16",       "--zero",
         "1",         "--micro-batch", "1",         "--global-batch", "32",       "--offload",
         "optimizer", "--slow-node",   factor,      "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out)["prediction"] : json();
  };
  const json even = predicted("0:1.001"), slow = predicted("0:1.3");
  const double offload = even["breakdown"]["offload_exposed_s"];
  EXPECT_GT(offload, 0.05);
  EXPECT_NEAR(slow["breakdown"]["offload_exposed_s"].get<double>(), offload, 0.02 * offload);
  const double step = slow["step_time_s"];
  EXPECT_NEAR(slow["closed_form_step_time_s"].get<double>(), step, 0.02 * step);
}

TEST(Perturbations, AFullLinkIsNoPerturbation) {
  const double plain = Step({"--all-ranks"});
  EXPECT_NEAR(Step({"--degraded-link", "*:100%"}), plain, kSame * plain);
}

TEST(Perturbations, ANarrowerLinkCostsMore) {
  double last = Step({"--all-ranks"});
  for (const char* share : {"50%", "0.25", "10%", "1%"}) {
    const double step = Step({"--degraded-link", std::string("n0.nic2 -> leaf2:") + share});
    EXPECT_GT(step, last) << share;
    last = step;
  }
  // At 0.2 % the link is all that counts: half of it takes twice as long.
  const auto played = [](const char* share) -> double {
    return SimulatedJson({"--degraded-link", std::string("n0.nic2 -> leaf2:") + share})["played_s"];
  };
  EXPECT_NEAR(played("0.1%") / played("0.2%"), 2, 0.1);
}

TEST(Perturbations, ANicThatTakesOverCarriesTwiceAsMuch) {
  std::map<std::string, double> bytes;
  const json result = SimulatedJson({"--failed-nic", "0:nic3"});
  for (const json& link : result["links"]) bytes[link["link"]] = link["bytes"];
  ASSERT_GT(bytes["n0.nic1 -> leaf1"], 0);
  EXPECT_NEAR(bytes["n0.nic0 -> leaf0"] / bytes["n0.nic1 -> leaf1"], 2, 1e-6);
  for (const auto& [link, carried] : bytes)
    EXPECT_EQ(link.find("n0.nic3"), std::string::npos) << link;
}

TEST(Perturbations, BothNetworksAgree) {
  if (RunPlan({"simulate", "--model", "gpt2-small", "--nodes", "1", "--network", "simgrid"})
          .err.find("no SimGrid") != std::string::npos)
    GTEST_SKIP() << "this build has no SimGrid backend";
  for (const Words& words : std::vector<Words>{{"--degraded-link", "n0.nic2 -> leaf2:25%"},
                                               {"--failed-nic", "0:nic3"}}) {
    Words simgrid = words;
    simgrid.insert(simgrid.end(), {"--network", "simgrid"});
    const double fluid = Step(words);
    EXPECT_NEAR(Step(simgrid), fluid, 0.02 * fluid) << words[1];
  }
}

TEST(Perturbations, SameSeedSameOutput) {
  const auto text = [](const char* seed) {
    const Outcome outcome = Simulate({"--jitter", "5%", "--failed-nic", "0:nic1", "--seed", seed});
    return std::regex_replace(outcome.out, std::regex(", [^,]* of computing time"), "");
  };
  EXPECT_EQ(text("4"), text("4"));
  EXPECT_NE(text("4"), text("5"));
}

TEST(Perturbations, AreNamedAndCompared) {
  const Outcome outcome = Simulate({"--degraded-link", "n0.nic2 -> leaf2:25%,n1.nic* -> *:50%",
                                    "--failed-nic", "0:nic1", "--slow-gpu", "3:1.5,8..15:1.2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 3 1.5 times as slow"));
  EXPECT_THAT(outcome.out, HasSubstr("ranks 8 to 15"));
  EXPECT_THAT(outcome.out, HasSubstr("n0.nic2 -> leaf2 at"));
  EXPECT_THAT(outcome.out, HasSubstr("n0.nic1 failed"));
  EXPECT_THAT(outcome.out,
              testing::ContainsRegex("slowdown +\\+[0-9.]+ % against [0-9.]+ m?s unp"));
}

TEST(Perturbations, NoRouteNamesOperationAndRanks) {
  const Words words = {"--failed-nic", AllNicsOf(0)};
  const Outcome outcome = Simulate(words);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("with ranks 0 to 15: no route from rank"),
                                 HasSubstr("every NIC of node 0 has failed")));
  const Outcome as_json = Simulate({"--failed-nic", AllNicsOf(0), "--json"});
  EXPECT_EQ(as_json.code, 3);
  const json document = json::parse(as_json.out);
  EXPECT_EQ(document["feasible"], false);
  EXPECT_NE(document["from_rank"].get<int>() / 8, document["to_rank"].get<int>() / 8);
}

TEST(Perturbations, ASendWithoutRouteNamesBothRanks) {
  const Outcome outcome = Simulate({"--pp", "2", "--failed-nic", AllNicsOf(1)});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, testing::ContainsRegex(
                               "send from rank [0-9]+ to rank [0-9]+: no route from rank [0-9]+"));
}

TEST(Perturbations, TheOnlyNicOfANodeCutsItOff) {
  const Outcome outcome = RunPlan({"simulate", "--model", "gpt2-small", "--topology", "mistral-2x8",
                                   "--gpu", "a100-sxm4-80gb", "--global-batch", "64",
                                   "--micro-batch", "4", "--failed-nic", "1:nic0"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("no route from rank"));
}

TEST(Perturbations, ANodeAloneNeedsNoNic) {
  EXPECT_EQ(RunPlan({"simulate", "--model", "gpt2-small", "--topology", "dgx-h100", "--nodes", "1",
                     "--micro-batch", "4", "--failed-nic", AllNicsOf(0)})
                .code,
            0);
}

TEST(Perturbations, AStepThatDoesNotFitEndsWithThree) {
  const Outcome outcome =
      RunPlan({"simulate", "--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
               "--micro-batch", "8", "--memory-limit", "10GiB", "--failed-nic", "0:nic1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("out of memory"));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST(Perturbations, ATopologyWithoutBandwidthIsRefusedWithItsPlace) {
  const std::string path = ScratchFolder() + "/zero.yaml";
  std::string text = ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml");
  text = std::regex_replace(text, std::regex("rate: 400Gbps"), "rate: 0Gbps");
  WriteText(path, text);
  const Outcome outcome = RunPlan({"simulate", "--model", "gpt2-small", "--topology", path});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("zero.yaml:"), HasSubstr("must be above zero")));
}

TEST(Perturbations, WhatDoesNotExistIsRefused) {
  const std::pair<Words, const char*> kWrong[] = {
      {{"--degraded-link", "n0.nic2 -> leaf2:0"}, "n0.nic2 -> leaf2 would have no bandwidth"},
      {{"--degraded-link", "n0.nic2 -> leaf2:0%"}, "--failed-nic takes a NIC out"},
      {{"--degraded-link", "n0.nic2 -> leaf2:101%"}, "101% of n0.nic2 -> leaf2 is out of range"},
      {{"--degraded-link", "n0.nic2 -> leaf2:-1"}, "out of range"},
      {{"--degraded-link", "n0.nic2 -> leaf2:half"}, "'half' is not a share"},
      {{"--degraded-link", "n0.nic2 -> leaf2"}, "no link and share"},
      {{"--degraded-link", ":5%"}, "no link and share"},
      {{"--degraded-link", "n0.nic2 -> laef2:5%"}, "did you mean 'n0.nic2 -> leaf2'"},
      {{"--degraded-link", "n0.nic2:5%"}, "'n0.nic2' is a device"},
      {{"--degraded-link", "n7.nic2 -> *:5%"}, "there is no link 'n7.nic2 -> *' among 2 nodes"},
      {{"--failed-nic", "0:nic8"}, "NICs are 0 to 7"},
      {{"--failed-nic", "2:nic0"}, "nodes are 0 to 1"},
      {{"--failed-nic", "nic0"}, "write NODE:NIC"},
      {{"--failed-nic", "0:nic1,"}, "'' is no NIC"},
      {{"--failed-nic", "-1:nic1"}, "write NODE:NIC"},
      {{"--failed-nic", "0:99999999999999999999"}, "write NODE:NIC"},
      {{"--slow-gpu", "5..3:2"}, "no rank and factor"},
      {{"--slow-gpu", "3..16:2"}, "ranks are 0 to 15"},
      {{"--slow-gpu", "3:1e9"}, "from 0.001 to 1000"},
  };
  for (const auto& [words, message] : kWrong) {
    const Outcome outcome = Simulate(words);
    EXPECT_EQ(outcome.code, 2) << words[0] << " " << words[1];
    EXPECT_THAT(outcome.err, HasSubstr(message)) << words[0] << " " << words[1];
    EXPECT_THAT(outcome.out, IsEmpty());
  }
}

}  // namespace
}  // namespace orrery
