// SPDX-License-Identifier: Apache-2.0
// What `plan provision` and `plan` say of wrong quantities, of offers that all lose and of clusters with different GPUs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tests/cli/json_of.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(ProvisionWords, ASmallSlipIsRepairedAsItWasMeant) {
  const std::vector<std::string> run = {"provision", "--model", "llama3-8b", "--tokens", "2T"};
  for (const auto& [flag, text, said] :
       std::vector<std::array<std::string, 3>>{{"--budget", "500000", "write 500000USD"},
                                               {"--storage", "20GB", "such as 20GB/s"},
                                               {"--storage", "0GB/s", "nor a rate above 0"},
                                               {"--recovery", "9min", "such as 2min+7min"},
                                               {"--input", "10MB/s", "such as 256ktokens/s"},
                                               {"--input", "no-such", "token-ids"},
                                               {"--budget", "-5kUSD", "nothing below 0, such as"},
                                               {"--setup", "-4h", "such as 30d, 12h"},
                                               {"--storage", "-5GB/s", "such as 20GB/s"},
                                               {"--memory-margin", "8", "write 8% for 8 percent"},
                                               {"--memory-margin", "95%", "out of range"}}) {
    const Outcome outcome = RunPlan(With(run, {flag, text}));
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(said));
  }
  const Outcome no_tokens = RunPlan({"--model", "gpt2-xl", "--input", "10ktokens/s"});
  EXPECT_EQ(no_tokens.code, 2);
  EXPECT_THAT(no_tokens.err, HasSubstr("--input is of a whole run"));
}

TEST(ProvisionWords, AnOfferWhoseCostIntervalOverlapsIsTiedNotBeaten) {
  const std::vector<std::string> words = {"provision", "--model",  "llama3-8b",
                                          "--tokens",  "2T",       "--deadline",
                                          "30d",       "--offers", "crusoe-h100,nebius-h100,aws-p5",
                                          "--nodes",   "8..16",    "--as-of",
                                          "2026-11-22"};
  const json answer = json::parse(RunPlan(With(words, {"--json"})).out);
  const json& rows = answer["answers"];
  const json& cheapest = rows[answer["cheapest"].get<std::size_t>()];
  int tied = 0, beaten = 0;
  for (const json& loser : answer["losers"]) {
    bool overlaps = false;
    for (const json& row : rows) {
      const bool here = row["cost_interval_usd"][0] <= cheapest["cost_interval_usd"][1] &&
                        cheapest["cost_interval_usd"][0] <= row["cost_interval_usd"][1] &&
                        row["time_s"].get<double>() <= 30 * 86400;
      EXPECT_EQ(row["tie"], here);
      overlaps = overlaps || (here && row["offer"]["id"] == loser["offer"]);
    }
    const bool said = loser["why"].get<std::string>().ends_with(", tied");
    EXPECT_EQ(said, overlaps) << loser;
    ++(overlaps ? tied : beaten);
  }
  EXPECT_EQ(tied, 1);  // Nebius at 36 USD/h next to 31.2
  EXPECT_EQ(beaten, 1);
}

TEST(ProvisionWords, ARegionIsSuggestedAndItsKindsAreNamed) {
  const auto in = [](const std::string& region) {
    return RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "nebius-h100",
                    "--region", region});
  };
  const Outcome misspelt = in("EU-north1");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_THAT(misspelt.err, AllOf(HasSubstr("--region: no price in 'EU-north1'"),
                                  HasSubstr("did you mean 'eu-north1'")));
  const Outcome spot_only = in("eu-north1");
  EXPECT_EQ(spot_only.code, 2);
  EXPECT_THAT(Folded(spot_only.err), HasSubstr("prices are known (--kind)"));
}

TEST(ProvisionWords, ARunIsOneStepAtLeast) {
  const Outcome provision = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "1"});
  EXPECT_EQ(provision.code, 2);
  EXPECT_THAT(provision.err, HasSubstr("1 token is less than a step of 1024"));
  const Outcome plan = RunPlan({"--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "1",
                                "--tokens", "50000", "--global-batch", "64"});
  EXPECT_EQ(plan.code, 2);
  EXPECT_THAT(plan.err, HasSubstr("50000 tokens are less than a step of 65536"));
}

TEST(ProvisionWords, ASlowFileSystemAsksForAnother) {
  const std::vector<std::string> run = {"provision", "--model",     "llama3-8b", "--tokens", "100B",
                                        "--offers",  "nebius-h100", "--nodes",   "8"};
  const auto with = [&](std::vector<std::string> more) {
    return Folded(RunPlan(With(run, more)).out);
  };
  EXPECT_THAT(with({}), Not(HasSubstr("order a faster file system")));
  EXPECT_THAT(with({"--storage", "300MB/s"}),
              HasSubstr("a checkpoint takes 375 s to write: order"));
  EXPECT_THAT(with({"--storage", "20MB/s"}), HasSubstr("each waits for the one before"));
  EXPECT_THAT(Folded(RunPlan({"provision", "--model", "llama3-8b", "--tokens", "20B", "--offers",
                              "nebius-h100", "--nodes", "8", "--storage", "1MB/s"})
                         .out),
              HasSubstr("the run ends before the next one"));
  EXPECT_THAT(with({"--storage", "300MB/s", "--checkpoint", "synchronous"}),
              HasSubstr("the GPUs wait for it"));
}

TEST(ProvisionWords, TheMarginIsTheOneThatWasAskedFor) {
  const json answer = json::parse(RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B",
                                           "--offers", "nebius-h100", "--nodes", "1", "--json"})
                                      .out);
  EXPECT_EQ(answer["memory_margin"].dump(), "0.08");
}

// 12.05 d was echoed as 12.1 d, a deadline that was not kept.
TEST(ProvisionWords, LimitsAreEchoedAsGiven) {
  const std::string out = Folded(
      RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers", "nebius-h100",
               "--nodes", "1", "--deadline", "12.05d", "--budget", "12.345kUSD"})
          .out);
  EXPECT_THAT(out, AllOf(HasSubstr("within 12.05 d"), HasSubstr("at most 12.345 kUSD"),
                         Not(HasSubstr("12.1 d")), Not(HasSubstr("12.3 kUSD"))));
  // 1 s was "0.000277778 h".
  for (const auto& [given, echoed] :
       {std::pair("1s", "1.00 s"), std::pair("90.25s", "90.25 s"), std::pair("20min", "20.0 min"),
        std::pair("12h", "12.0 h"), std::pair("2ms", "2.00 ms")}) {
    EXPECT_THAT(Folded(RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                                "nebius-h100", "--nodes", "1", "--deadline", given})
                           .out),
                HasSubstr(std::string("None is done within ") + echoed));
  }
}

TEST(ProvisionWords, ShortTimesAreNoDays) {
  EXPECT_THAT(
      RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--failures", "1e9"}).err,
      AllOf(HasSubstr("a stop of every node every 86.4 ms"), Not(HasSubstr("0.0 days"))));
}

// The days are setup, work over goodput and one write of a checkpoint, and the text has all three.
TEST(ProvisionWords, TheLastWriteIsPartOfTheTime) {
  const std::vector<std::string> question = {"provision", "--model",   "gpt2-xl",     "--tokens",
                                             "30B",       "--offers",  "nebius-h100", "--nodes",
                                             "1",         "--storage", "10MB/s"};
  const json answer = json::parse(RunPlan(With(question, {"--json"})).out);
  const json& row = answer["answers"][0];
  const double work = row["ideal_s"].get<double>() * answer["question"]["straggler"].get<double>();
  const double write = row["checkpoint"]["background_s"];
  EXPECT_GT(write, 60);
  EXPECT_NEAR(
      row["time_s"].get<double>(),
      answer["question"]["setup_s"].get<double>() + work / row["goodput"].get<double>() + write, 1);
  EXPECT_THAT(Folded(RunPlan(question).out), HasSubstr("until the last checkpoint is written"));
}

// A notice of AWS is 120 s; a checkpoint of this model takes 65.
TEST(ProvisionWords, SpotSaysWhetherTheNoticeSuffices) {
  const std::vector<std::string> run = {"provision", "--model",  "gpt2-xl", "--tokens",
                                        "30B",       "--offers", "aws-p4d", "--kind",
                                        "spot",      "--nodes",  "4"};
  EXPECT_THAT(Folded(RunPlan(run).out),
              HasSubstr("spot: the notice of 120 s suffices for a checkpoint (65."));
  EXPECT_THAT(Folded(RunPlan(With(run, {"--storage", "100MB/s"})).out),
              HasSubstr("spot: the notice of 120 s is too short for a checkpoint ("));
  const json answer = json::parse(RunPlan(With(run, {"--json", "--spares", "0"})).out);
  const json& best = answer["answers"][0];
  EXPECT_TRUE(best["spot"]["notice_saves_the_work"].get<bool>());
  // Only failures wait for the repair of a day.
  const double rate = best["spot"]["interruptions_per_1000_node_days"];
  EXPECT_NEAR(best["recovery"]["wait_s"].get<double>(), 86400 * 3.8 / (3.8 + rate), 1);
}

TEST(ProvisionWords, WhereAllLoseThereAreNoOthers) {
  const std::string page = ScratchFolder() + "/none.html";
  const std::vector<std::string> question = {"provision", "--model",  "llama3-405b",
                                             "--tokens",  "15T",      "--nodes",
                                             "1",         "--offers", "aws-p4d,gcp-a2-ultra"};
  const Outcome none = RunPlan(With(question, {"--html", page}));
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(Folded(none.out),
              AllOf(HasSubstr("Why the offers lose (their cheapest run, in closed form)"),
                    HasSubstr("Looked for layouts on every (cluster, node count) pair."),
                    Not(HasSubstr("other offers lose")), Not(HasSubstr("rule the others out"))));
  EXPECT_THAT(ReadText(page), AllOf(HasSubstr("Why the offers lose"),
                                    Not(HasSubstr("cheapest run within the limits"))));
}

TEST(ProvisionWords, SequencesThatDoNotDivideAreTheReason) {
  const Outcome none = RunPlan({"provision", "--model", "llama3-8b", "--tokens", "200B", "--offers",
                                "aws-p5", "--nodes", "48,64", "--global-batch", "1"});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(
      Folded(none.out),
      AllOf(HasSubstr("the sequences of a step do not divide over the GPUs (--global-batch"),
            HasSubstr("no layout of 1 sequence per step on 384 GPUs is possible"),
            HasSubstr("such as --global-batch 192"), Not(HasSubstr("memory margin"))));
  EXPECT_EQ(RunPlan({"provision", "--model", "llama3-8b", "--tokens", "200B", "--offers", "aws-p5",
                     "--nodes", "48,64", "--global-batch", "192"})
                .code,
            0);
  const Outcome longer = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                                  "aws-p5", "--nodes", "2,4", "--seq-len", "4096"});
  EXPECT_EQ(longer.code, 3);
  EXPECT_THAT(Folded(longer.out), AllOf(HasSubstr("No offer can run this: sequence length exceeds"),
                                        Not(HasSubstr("do not divide"))));
  const Outcome memory = RunPlan({"provision", "--model", "llama3-405b", "--tokens", "200B",
                                  "--offers", "aws-p5", "--nodes", "1,2"});
  EXPECT_THAT(Folded(memory.out), HasSubstr("out of memory: with 2 nodes a GPU needs at least"));
}

TEST(ProvisionWords, NodeCountsThatNobodySellsAreNamed) {
  const std::vector<std::string> words = {"provision", "--model",  "gpt2-xl", "--tokens",
                                          "3B",        "--offers", "aws-p4d"};
  EXPECT_THAT(Folded(RunPlan(With(words, {"--nodes", "2,1000000"})).out),
              HasSubstr("1000000 nodes: no offer sells that many (they have 1 to 16384 nodes"));
  EXPECT_THAT(RunPlan(With(words, {"--nodes", "2,4"})).out, Not(HasSubstr("no offer sells")));
  EXPECT_THAT(Folded(RunPlan(With(words, {"--nodes", "1000000"})).out),
              HasSubstr("none of the node counts is sold: 1 to 16384 nodes are sold"));
}

TEST(ProvisionWords, TheOneLineIsTheAnswer) {
  const std::vector<std::string> words = {"provision", "--model",  "gpt2-xl",     "--tokens",
                                          "30B",       "--offers", "nebius-h100", "--nodes",
                                          "1..8",      "--as-of",  "2026-11-22",  "--quiet"};
  const Outcome free = RunPlan(words);
  EXPECT_THAT(free.out, testing::StartsWith("cheapest: nebius-h100, 1 node: "));
  EXPECT_THAT(free.out, AllOf(HasSubstr("; fastest: nebius-h100, 8 nodes"), HasSubstr("kUSD")));
  EXPECT_EQ(std::ranges::count(free.out, '\n'), 1);
  const Outcome none = RunPlan(With(words, {"--deadline", "5h"}));
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.out, testing::StartsWith("nothing is in time; fastest: "));
}

// Where nothing keeps the limits, the answer names the ends of the frontier.
TEST(ProvisionWords, TheTableHasTheRowsThatTheAnswerNames) {
  const std::vector<std::string> words = {"provision",  "--model",  "gpt2-xl",     "--tokens",
                                          "30B",        "--offers", "nebius-h100", "--nodes",
                                          "1,2,4,8,16", "--as-of",  "2026-11-22",  "--deadline",
                                          "5h",         "--budget", "100USD"};
  const Outcome outcome = RunPlan(words);
  EXPECT_EQ(outcome.code, 3);
  const json answer = json::parse(RunPlan(With(words, {"--json"})).out);
  ASSERT_GT(answer["frontier"].size(), 4u);
  EXPECT_THAT(outcome.out, HasSubstr("\n  1  nebius-h100"));
  EXPECT_THAT(outcome.out,
              HasSubstr(fmt::format("\n  {}  nebius-h100", answer["frontier"].size())));
}

TEST(ProvisionWords, LargeCheckpointsAreInTerabytes) {
  const Outcome outcome = RunPlan({"provision", "--model", "llama3-405b", "--tokens", "1T",
                                   "--offers", "nebius-b200", "--nodes", "512", "--spares", "0"});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("checkpoints: 5.68 TB every"), Not(HasSubstr("e+"))));
}

// Replicas across nodes instead of within: days follow from the step in that order.
TEST(Tokens, DaysAreOfTheOrderOfRanksThatIsGiven) {
  const std::vector<std::string> job = {
      "--model",  "llama2-7b", "--topology", "aws-p4d",   "--nodes",        "4",
      "--tp",     "4",         "--pp",       "2",         "--global-batch", "64",
      "--refine", "0",         "--top",      "1",         "--micro-batch",  "1",
      "--tokens", "100B",      "--as-of",    "2026-11-22"};
  const std::vector<std::string> in_order = With(job, {"--placement", "tp-cp-pp-dp"});
  const json plain = json::parse(RunPlan(With(job, {"--json"})).out)["training"]["runs"][0];
  const json answer = json::parse(RunPlan(With(in_order, {"--json"})).out);
  const json& run = answer["training"]["runs"][0];
  const json& placed = answer["ranked"][0]["placement"];
  EXPECT_DOUBLE_EQ(run["step_time_s"].get<double>(), placed["step_time_s"].get<double>());
  EXPECT_GT(run["time_s"].get<double>(), 1.05 * plain["time_s"].get<double>());
  EXPECT_THAT(Folded(RunPlan(in_order).out),
              HasSubstr("Days and cost of row 1 are in the order of ranks of --placement"));
}

// Rows beyond the limits: the nearest two of each side, marked; all of them only where they are asked for.
TEST(ProvisionWordsSlow, TheTableEndsNearTheLimits) {
  const std::vector<std::string> words = {
      "provision", "--model", "gpt2-xl", "--tokens",   "30B",      "--offers", "aws,nebius,crusoe",
      "--nodes",   "1..256",  "--as-of", "2026-11-22", "--budget", "1.4kUSD"};
  const auto count = [](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find("over the budget\n", at)) != text.npos; ++at) ++n;
    return n;
  };
  const Outcome few = RunPlan(words);
  ASSERT_EQ(few.code, 0) << few.err << few.out;
  EXPECT_EQ(count(few.out), 2u) << few.out;
  EXPECT_THAT(few.out,
              HasSubstr("of the others break the limits by more than these (--all shows them)"));
  const Outcome all = RunPlan(With(words, {"--all"}));
  EXPECT_GT(count(all.out), 4u);
  std::size_t beyond = 0;
  const json answer = json::parse(RunPlan(With(words, {"--json"})).out);
  for (const auto& index : answer["frontier"]) {
    const json& row = answer["answers"][index.get<std::size_t>()];
    const bool dear = row["cost_usd"].get<double>() > 1400;
    EXPECT_EQ(row["beyond_limits"], dear ? "over the budget" : "");
    beyond += dear;
  }
  EXPECT_EQ(count(all.out), beyond);
}

// The V100 has no bf16.
TEST(MixedCluster, AGpuWithoutThePrecisionIsNamedWithOneThatAllHave) {
  const std::string file = ScratchFolder() + "/no-bf16.yaml";
  WriteText(file, ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml") +
                      "other_nodes: [{nodes: \"4\", gpu: v100-sxm2-32gb}]\n");
  const Outcome refused = RunPlan({"predict", "--model", "llama2-7b", "--topology", file, "--nodes",
                                   "5", "--global-batch", "80", "--tp", "8"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("v100-sxm2-32gb of node 4 does not compute"),
                                 HasSubstr("such as fp16")));
}

TEST(MixedCluster, AGpuThatIsNotUsedRefusesNothing) {
  const std::string file = ScratchFolder() + "/unused.yaml";
  WriteText(file, ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml") +
                      "other_nodes: [{nodes: \"4..15\", gpu: v100-sxm2-32gb}]\n");
  const std::vector<std::string> job = {"--model", "llama2-7b",      "--topology",
                                        file,      "--global-batch", "64"};
  EXPECT_EQ(RunPlan(With(job, {"--nodes", "4"})).code, 0);
  const Outcome refused = RunPlan(With(job, {"--nodes", "6"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("v100-sxm2-32gb of nodes 4 to 5 does not compute"),
                                 HasSubstr("--nodes 4 at most")));
  WriteText(ScratchFolder() + "/a100.yaml",
            ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml") +
                "other_nodes: [{nodes: \"4..15\", gpu: a100-sxm4-80gb}]\n");
  const std::vector<std::string> no_fp8 = {
      "--model",        "llama2-7b", "--topology", ScratchFolder() + "/a100.yaml",
      "--global-batch", "64",        "--fp8",      "delayed"};
  EXPECT_EQ(RunPlan(With(no_fp8, {"--nodes", "4"})).code, 0);
  const Outcome lacks = RunPlan(With(no_fp8, {"--nodes", "5"}));  // an internal error before
  EXPECT_EQ(lacks.code, 2);
  EXPECT_THAT(lacks.err, HasSubstr("a100-sxm4-80gb of node 4 does not compute"));
  // Each node count of an offer for itself.
  const std::string quote = ScratchFolder() + "/quote.yaml";
  WriteText(quote, "name: mine\ntopology: " + file +
                       "\nprices:\n  - {kind: on-demand, price: 36USD/h, date: 2026-11, source: "
                       "quote}\n");
  const std::vector<std::string> run = {"provision", "--model", "llama2-7b",  "--tokens",
                                        "20B",       "--as-of", "2026-11-22", "--offers",
                                        quote,       "--json"};
  const json answer = json::parse(RunPlan(With(run, {"--nodes", "2,4,6,8"})).out);
  ASSERT_FALSE(answer["answers"].empty());
  for (const json& row : answer["answers"]) EXPECT_LE(row["nodes"].get<int>(), 4);
  EXPECT_THAT(answer["nodes_not_sold"].get<std::string>(), HasSubstr("6, 8 nodes"));
}

TEST(MixedCluster, EveryGpuThatIsUsedIsNamed) {
  std::string text = ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml");
  text += "other_nodes: [{nodes: \"2..9\", gpu: a100-sxm4-40gb}]\n";
  const std::string file = ScratchFolder() + "/mixed.yaml";
  WriteText(file, text);
  const std::vector<std::string> job = {
      "predict", "--model", "llama2-7b", "--topology", file, "--global-batch", "64", "--tp", "8"};
  const Outcome four = RunPlan(With(job, {"--nodes", "4"}));
  EXPECT_THAT(Folded(four.out),
              AllOf(HasSubstr("2 nodes x 8 h100-sxm5-80gb + 2 nodes x 8 a100-sxm4-40gb = 32 GPUs"),
                    HasSubstr("nodes 2 to 3, a100-sxm4-40gb"),
                    HasSubstr("x 20.8 PFLOP/s in bf16 of 32 GPUs")));  // 16 x 989 + 16 x 312
  const std::string page = ScratchFolder() + "/mixed.html";
  const json answer =
      json::parse(RunPlan(With(job, {"--nodes", "4", "--json", "--html", page})).out);
  EXPECT_EQ(answer["topology"]["mixed"], json::parse(R"([{"gpu": "h100-sxm5-80gb", "nodes": 2},
                            {"gpu": "a100-sxm4-40gb", "nodes": 2}])"));
  // The same model FLOP on two nodes of H100 alone.
  const json alone = json::parse(RunPlan(With(job, {"--nodes", "2", "--json"})).out);
  const auto work = [](const json& of, double peak) {
    return of["prediction"]["mfu"].get<double>() * of["prediction"]["step_time_s"].get<double>() *
           peak;
  };
  const double fast = 16 * 989.5e12, slow = 16 * 312e12;
  EXPECT_NEAR(work(answer, fast + slow) / work(alone, fast), 1, 2e-3);
  EXPECT_THAT(ReadText(page), HasSubstr("h100-sxm5-80gb (2) or a100-sxm4-40gb (2)"));
  const Outcome two = RunPlan(With(job, {"--nodes", "2"}));
  EXPECT_THAT(Folded(two.out),
              AllOf(HasSubstr("2 nodes x 8 h100-sxm5-80gb = 16 GPUs"),
                    Not(HasSubstr("a100-sxm4-40gb")), Not(HasSubstr("layers: a search"))));
}

TEST(MixedCluster, EachGpuDrawsItsOwnPower) {
  const std::string folder = ScratchFolder();
  WriteText(folder + "/power.yaml",
            ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml") +
                "other_nodes: [{nodes: \"2..9\", gpu: a100-sxm4-40gb}]\n");
  WriteText(folder + "/quote.yaml",
            "{name: mine, topology: ./power.yaml, prices: [{kind: on-demand, price: 30USD/h, date: "
            "2026-11-01, evidence: A, source: quote}]}\n");
  const json answer =
      json::parse(RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "3B", "--nodes", "2,4",
                           "--offers", folder + "/quote.yaml", "--json"})
                      .out);
  ASSERT_GE(answer["answers"].size(), 1u);
  for (const json& row : answer["answers"]) {
    const double gpus = row["nodes"] == 2 ? 16 * 700 : 16 * 700 + 16 * 400;  // W, vendors' figures
    EXPECT_NEAR(row["energy_kwh"].get<double>() * 3.6e6 / row["time_s"].get<double>(),
                gpus * 1.5 * 1.25, 1)
        << row["nodes"];
  }
}

TEST(ProvisionWords, SaysThatARunDoesNotFinish) {
  const Outcome outcome = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "3T", "--offers",
                                   "nebius-h100", "--nodes", "1024", "--recovery", "40h+40h"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(Folded(outcome.out), HasSubstr("failures leave less than 1 % of the time (fewer "
                                             "--nodes, --recovery elastic, a faster --storage)"));
  EXPECT_THAT(outcome.out, HasSubstr("does not finish: failures leave 0."));
}

TEST(ProvisionWords, SaysWhichNodeCountsNobodySells) {
  const Outcome outcome = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "3B", "--offers",
                                   "nebius-h100", "--nodes", "1000000"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("none is sold at these node counts (--nodes, --spares)"));
}

TEST(ProvisionWords, NamesThePrecisionOfMostClustersAndTheOthers) {
  const Outcome outcome = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "3B", "--nodes",
                                   "2", "--offers", "azure-nd-v2,aws-p4d,nebius-h100"});
  EXPECT_THAT(Folded(outcome.out), HasSubstr("precision bf16 (--precision), fp16 on azure-nd-v2"));
  const json answer =
      json::parse(RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "3B", "--nodes", "2",
                           "--offers", "azure-nd-v2,aws-p4d,nebius-h100", "--no-bounds", "--json"})
                      .out);
  for (const json& row : answer["answers"])
    EXPECT_EQ(row["precision"], row["offer"]["id"] == "azure-nd-v2" ? "fp16" : "bf16");
}

// The bill scatters with the days: a run that costs what may be spent in the mean costs more in nearly half of the cases.
TEST(ProvisionWords, TheBudgetHasALikelihoodAsTheDeadlineHas) {
  const std::vector<std::string> question = {
      "provision", "--model", "gpt2-xl",    "--tokens", "30B",      "--offers", "nebius-h100",
      "--nodes",   "2",       "--deadline", "20d",      "--spares", "0"};
  const json free = JsonOf(question);
  const double cost = free["answers"][0]["cost_usd"];
  EXPECT_TRUE(free["answers"][0]["budget_probability"].is_null());
  for (const auto& [share, least, most] :
       {std::tuple{0.5, 0.0, 0.01}, {1.001, 0.35, 0.75}, {2.0, 0.99, 1.0}}) {
    const std::string budget = fmt::format("{:.2f}USD", share * cost);
    const json answer = JsonOf(With(question, {"--budget", budget}), share < 1 ? 3 : 0);
    const double likely = answer["answers"][0]["budget_probability"];
    EXPECT_GE(likely, least) << share;
    EXPECT_LE(likely, most) << share;
    if (share < 1) continue;
    EXPECT_THAT(Folded(RunPlan(With(question, {"--budget", budget})).out),
                HasSubstr(fmt::format("% likely within 20.0 d, {} % within ",
                                      static_cast<int>(100 * likely + 0.01))));
  }
}

// Each limit would do with another in the other's place, neither as it is.
TEST(ProvisionWords, APageSaysOfBothLimitsThatNeitherWouldDoAlone) {
  const std::string page = testing::TempDir() + "/neither.html";
  const Outcome none = RunPlan({"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                                "nebius-h100", "--nodes", "1,2", "--deadline", "1h", "--setup",
                                "0h", "--budget", "1USD", "--html", page});
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(Folded(none.out), AllOf(HasSubstr("with this budget none would"),
                                      HasSubstr("with this deadline none would")));
  EXPECT_THAT(ReadText(page), AllOf(HasSubstr("would do; with this budget none would"),
                                    HasSubstr("would do; with this deadline none would")));
}

}  // namespace
}  // namespace orrery
