// SPDX-License-Identifier: Apache-2.0
// `plan bench`: the table, a log beside it, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "calib/import/nccl_log.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<std::string> kTwoNodes = {"bench",       "--simulate", "all_reduce", "--topology",
                                            "aws-g5-1gpu", "--nodes",    "2"};

Outcome Bench(std::vector<std::string> more, std::vector<std::string> words = kTwoNodes) {
  words.insert(words.end(), more.begin(), more.end());
  return RunPlan(words);
}

std::string Sample(const char* name) {
  return std::string(ORRERY_SOURCE_DIR) + "/calib/import/samples/" + name;
}

TEST(BenchCommand, PrintsWhatTheReaderOfLogsReads) {
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "sendrecv"}) {
    const Outcome outcome = RunPlan({"bench", "--simulate", collective, "-b", "1K", "-e", "1G",
                                     "--topology", "aws-g5-1gpu", "--nodes", "3"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const measured::NcclLog log =
        measured::ReadNcclLog(std::make_shared<Source>(Source{"bench", outcome.out}));
    EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
    ASSERT_EQ(log.runs.size(), 1u);
    EXPECT_EQ(log.runs[0].ranks, 3);
    EXPECT_EQ(log.runs[0].hosts(), 3);
    EXPECT_EQ(log.runs[0].measurements.size(), 21u);
  }
}

TEST(BenchCommand, ItsOwnTableHasNoError) {
  const std::string path = ScratchFolder() + "/own.txt";
  WriteText(path, Bench({}).out);
  const Outcome outcome = Bench({"--log", path, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["schema"], "orrery.bench/1");
  ASSERT_EQ(result["rows"].size(), 25u);
  for (const json& row : result["rows"]) EXPECT_NEAR(row["error"], 0, 1e-3);  // printed digits
  ASSERT_EQ(result["errors"].size(), 3u);
  EXPECT_EQ(result["errors"][0]["points"], 13);
}

TEST(BenchCommand, PutsALogBeside) {
  const Outcome outcome = Bench({"--log", Sample("nccl-old-tagged.txt")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("mean |error|"));
  EXPECT_THAT(outcome.out, HasSubstr("64 KiB to 16 MiB"));
  EXPECT_THAT(outcome.out, HasSubstr("; priors:"));
  const json one = json::parse(
      Bench({"--log", Sample("nccl-old-tagged.txt"), "-b", "64K", "-e", "1M", "--json"}).out);
  ASSERT_EQ(one["rows"].size(), 1u);
  EXPECT_EQ(one["rows"][0]["measured_us"], 420.4);
  EXPECT_EQ(one["rows"][0]["line"], 13);
}

TEST(BenchCommand, SaysThatALogIsOfAnotherGpu) {
  std::string text = Bench({}).out;
  for (std::size_t at = 0; (at = text.find("[modelled] a10g", at)) != std::string::npos; ++at)
    text.replace(at, 15, "[0x1b] NVIDIA H100 80GB HBM3");
  const std::string path = ScratchFolder() + "/other.txt";
  WriteText(path, text);
  EXPECT_THAT(Bench({"--log", path}).out,
              HasSubstr("Mismatched: it ran on 'NVIDIA H100 80GB HBM3', and aws-g5-1gpu has a10g"));
  EXPECT_TRUE(json::parse(Bench({"--log", path, "--json"}).out)["log"]["mismatch"].is_string());
  const json same = json::parse(Bench({"--log", Sample("nccl-old-tagged.txt"), "--json"}).out);
  EXPECT_TRUE(same["log"]["mismatch"].is_null()) << same["log"];
}

TEST(BenchCommand, NamesGarbledLines) {
  std::string text = ReadText(Sample("nccl-old-tagged.txt"));
  text.replace(text.find("420.4"), 5, "42x.4");
  const std::string path = ScratchFolder() + "/garbled.txt";
  WriteText(path, text);
  const Outcome outcome = Bench({"--log", path});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Skipped 1 garbled line of the log"));
  EXPECT_THAT(outcome.out, HasSubstr("garbled.txt:13:"));
}

TEST(BenchCommand, TakesTheAlgorithmThatIsNamed) {
  const std::vector<std::string> words = {"bench",   "--simulate", "all_reduce", "--topology",
                                          "aws-p4d", "--nodes",    "2",          "-b",
                                          "1G",      "-e",         "1G",         "--json"};
  const auto row = [&](const char* name) {
    return json::parse(Bench({"--algorithm", name}, words).out)["rows"][0];
  };
  EXPECT_EQ(row("ring")["algorithm"], "ring");
  EXPECT_EQ(row("tree")["algorithm"], "tree");
  EXPECT_GT(row("ring")["time_us"], row("tree")["time_us"]);
}

TEST(BenchCommand, SaysWhatNcclChooses) {
  const std::vector<std::string> words = {
      "bench", "--simulate", "all_reduce", "--topology", "dgx-h100", "--nodes", "2",
      "-b",    "1K",         "-e",         "1G",         "-f",       "1024"};
  const json result = json::parse(Bench({"--json"}, words).out);
  const json& rows = result["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["algorithm"], "tree");
  EXPECT_EQ(rows[0]["protocol"], "ll");
  EXPECT_EQ(rows[0]["channels"], 1);
  EXPECT_EQ(rows[1]["protocol"], "ll128");
  EXPECT_EQ(rows[2]["algorithm"], "nvls_tree");
  EXPECT_EQ(rows[2]["channels"], 16);
  EXPECT_EQ(result["nccl"]["graphs"][0]["channels"], 8);
  EXPECT_THAT(Bench({}, words).out,
              HasSubstr("tree ll to 1.00 KiB (1 channel), tree ll128 to 1.00 MiB"));
  // No NCCL on Gaudi.
  const json other = json::parse(RunPlan({"bench", "--simulate", "all_reduce", "--topology",
                                          "aws-dl1", "-b", "1M", "-e", "1M", "--json"})
                                     .out);
  EXPECT_TRUE(other["nccl"].is_null());
  EXPECT_FALSE(other["rows"][0].contains("protocol"));
}

TEST(BenchCommand, RepeatsWhatBentNcclsChoices) {
  std::string text = ReadText(Sample("../samples-nccl/info.txt"));
  const std::string path = ScratchFolder() + "/tuned.txt";
  WriteText(path,
            "node:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
            "node:1:2 [1] NCCL INFO NCCL_ALGO set by environment to Ring.\n"
            "node:1:1 [0] NCCL INFO NCCL_DEBUG set by environment to INFO.\n"
            "node:1:1 [0] NCCL INFO TUNER/Plugin: Using tuner plugin nccl_ofi_tuner\n" +
                text);
  const std::vector<std::string> words = {"bench",    "--simulate", "all_reduce", "--topology",
                                          "dgx-h100", "--nodes",    "2"};
  EXPECT_THAT(Bench({"--nccl", path}, words).out,
              testing::AllOf(HasSubstr("tuned.txt:1: NCCL_ALGO set by environment to Ring."),
                             HasSubstr("nccl_ofi_tuner"), HasSubstr("not NCCL's own")));
  const json log = json::parse(Bench({"--nccl", path, "--json"}, words).out);
  EXPECT_EQ(log["settings"].size(), 2u) << log["settings"];
}

TEST(BenchCommand, ComparesWithWhatNcclWrote) {
  const std::vector<std::string> words = {"bench",    "--simulate", "all_reduce", "--topology",
                                          "dgx-h100", "--nodes",    "2"};
  const json log =
      json::parse(Bench({"--nccl", Sample("../samples-nccl/info.txt"), "--json"}, words).out);
  ASSERT_EQ(log["choices"].size(), 4u);
  for (const json& choice : log["choices"]) {
    EXPECT_EQ(choice["algorithm"], choice["twin"]["algorithm"]) << choice;
    EXPECT_EQ(choice["protocol"], choice["twin"]["protocol"]) << choice;
  }
  EXPECT_EQ(log["garbled_lines"], 1);
  EXPECT_EQ(log["rings"]["logged"], 2);
  EXPECT_EQ(log["rings"]["as_one_of_the_twin"], 2);
  const json graphs =
      json::parse(Bench({"--nccl", Sample("../samples-nccl/graphs.xml"), "--json"}, words).out);
  for (const json& graph : graphs["graphs"])
    EXPECT_EQ(graph["channels"], graph["twin"]["channels"]) << graph;
  const Outcome topology = Bench({"--nccl", Sample("../samples-nccl/topology.xml")}, words);
  EXPECT_THAT(topology.out, HasSubstr("8 of compute capability 90"));
  EXPECT_THAT(topology.out, testing::Not(HasSubstr("differs")));
  const Outcome wrong = Bench({"--nccl", Sample("../samples-nccl/info.txt"), "--nodes", "4"},
                              {"bench", "--simulate", "all_reduce", "--topology", "dgx-h100"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("16 ranks on 2 nodes"));
  // Where INIT alone was logged.
  const std::string path = ScratchFolder() + "/init.txt";
  WriteText(
      path,
      "node0:1:2 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 16 cudaDev 0 nvmlDev 0 "
      "busId 7000 commId 0xabc - Init START\n"
      "node0:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto LL128 "
      "channel{Lo..Hi}={0..7}\n");
  const Outcome other = Bench({"--nccl", path, "--nodes", "4"},
                              {"bench", "--simulate", "all_reduce", "--topology", "dgx-h100"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("is of 16 ranks, the flags are of 32 on 4"));
  EXPECT_EQ(Bench({"--nccl", path}, words).code, 0);
}

TEST(BenchCommand, BusBandwidthFollowsTheRule) {
  for (const auto& [collective, factor] : {std::pair{"all_reduce", 1.5},
                                           {"all_gather", 0.75},
                                           {"broadcast", 1.0},
                                           {"sendrecv", 1.0}}) {
    const Outcome outcome = RunPlan({"bench", "--simulate", collective, "-b", "64M", "-e", "64M",
                                     "--topology", "aws-g5-1gpu", "--nodes", "4", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json row = json::parse(outcome.out)["rows"][0];
    EXPECT_NEAR(row["busbw_gb_s"].get<double>(), factor * row["algbw_gb_s"].get<double>(), 1e-9);
    EXPECT_NEAR(row["algbw_gb_s"].get<double>() * row["time_us"].get<double>() * 1e3, 1 << 26, 1);
  }
}

TEST(BenchCommand, RefusesWithAHint) {
  const std::string folder = ScratchFolder(), empty = folder + "/empty.txt";
  WriteText(empty, "mpirun: command not found\n");
  const std::string old = Sample("nccl-old-tagged.txt");
  const std::tuple<std::vector<std::string>, const char*, const char*> kWrong[] = {
      {{"bench", "all_reduce", "--topology", "aws-g5-1gpu"},
       "needs --simulate",
       "plan bench --simulate"},
      {{"bench", "--simulate", "all_reduce"}, "which cluster?", "--topology NAME"},
      {{"bench", "--simulate", "--topology", "aws-g5-1gpu"}, "which collective?", "all_reduce"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5"}, "aws-g5", "hint:"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "--nodes", "99999"},
       "16384",
       ""},
      {{"bench", "--simulate", "all_to_all", "--topology", "aws-g5-1gpu", "--nodes", "2000"},
       "too large to route",
       "at most 1024 ranks"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "--nodes", "2",
        "--gpus-per-node", "2"},
       "--gpus-per-node",
       "hint"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "--nodes", "4", "--log",
        old},
       "all_reduce among 4 ranks on 4 nodes",
       "all_reduce, 2 ranks on 2 hosts"},
      {{"bench", "--simulate", "broadcast", "--topology", "aws-g5-1gpu", "--nodes", "2", "--log",
        old},
       "is broadcast among 2 ranks",
       "hint:"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "--log", empty},
       "no measurement",
       "hint:"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "--log",
        folder + "/none"},
       "none",
       ""},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "--nodes", "2", "--log",
        old, "-b", "1G", "-e", "1G"},
       "no size of the log",
       "it goes from 8"},
      {{"bench", "--simulate", "all_gather", "--topology", "aws-g5-1gpu", "--algorithm", "tree"},
       "algorithm 'tree' cannot run all_gather among 2 ranks on 2 nodes",
       "leave it out"},
      {{"bench", "--simulate", "all_gather", "--topology", "aws-g5-1gpu", "--algorithm", "rnig"},
       "--algorithm",
       "did you mean 'ring'"},
      {{"bench", "--simulate", "all_reduce", "--topology", "mistral-2x8"},
       "not known",
       "--gpu NAME"},
      {{"bench", "--simulate", "all_reduce", "--topology", "aws-g5-1gpu", "-x", "1"},
       "unknown flag",
       ""},
  };
  for (const auto& [words, message, hint] : kWrong) {
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_THAT(outcome.err, HasSubstr(hint));
  }
}

// Two nodes of one A10G over TCP (AWS Batch job): the sweep that the fabric profile is fitted on.
TEST(BenchCommand, KeepsWithinTheErrorThatTheReadmeStates) {
  const std::string log =
      std::string(ORRERY_SOURCE_DIR) + "/calib/data/logs/a10g_2node_2gpu_allreduce_tcp.txt";
  const json result = json::parse(Bench({"--log", log, "--json"}).out);
  ASSERT_EQ(result["rows"].size(), 25u);
  double sum = 0;
  for (const json& row : result["rows"]) sum += std::abs(row["error"].get<double>());
  EXPECT_LE(sum / 25, 0.04);
}

}  // namespace
}  // namespace orrery
