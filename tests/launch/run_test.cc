// SPDX-License-Identifier: Apache-2.0
// plan launch on this machine alone: a process per node, by the variables of a script.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/comm/tcp_socket.h"
#include "tests/launch/nodes.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Outcome Launch(const std::vector<std::string>& lines) {
  const int port = comm::PortOf(comm::Listen(0, true));
  const std::string job = fmt::format(
      "unset $(compgen -v | grep -E '^(OMPI_|PMI|SLURM_|RANK$|WORLD_SIZE)'); "
      "export NNODES={} MASTER_ADDR=127.0.0.1 MASTER_PORT={}",
      lines.size(), port);
  return RunNodes(job, lines, [](std::size_t rank, const std::string& words) {
    return fmt::format("env NODE_RANK={} \"$PLAN\" launch {}", rank, words);
  });
}

TEST(Launch, AllComeAndTheHostfileIsTheSameForAll) {
  const Outcome outcome =
      Launch({"--slots 2 --out hosts.0", "--slots 4 --out hosts.1", "--out hosts.2"});
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 0\ncode 2 0\n") << Written("err.0");
  EXPECT_THAT(Written("out.0"), AllOf(HasSubstr("3 of 3 nodes good"),
                                      HasSubstr("hostfile hosts.0: 3 hosts, 7 slots")));
  EXPECT_THAT(Written("hosts.0"), HasSubstr("127.0.0.1 slots=4  # "));
  EXPECT_EQ(Written("hosts.0"), Written("hosts.1"));
  EXPECT_EQ(Written("hosts.0"), Written("hosts.2"));
}

TEST(Launch, RanksOfTheNodesThatAreLeftTrain) {
  const std::string job =
      "--at-least 2 --deadline 4s --start rank -- \"$PLAN\" run --model linear-20-1 --dp 3 "
      "--global-batch 24 --steps 5 --json";
  const Outcome outcome = Launch({"--slots 1 " + job, "", "--slots 2 " + job});
  EXPECT_EQ(outcome.out, "code 0 0\ncode 2 0\n") << Written("err.0") << Written("err.2");
  EXPECT_THAT(Written("err.0"), HasSubstr("missing"));
  const json record = json::parse(Written("out.0"));
  EXPECT_EQ(record["ranks"], 3);
  EXPECT_EQ(record["comm"], "tcp");
  EXPECT_EQ(record["steps"].size(), 5u);
}

TEST(Launch, TooFewEndsWithThree) {
  const Outcome outcome = Launch({"--deadline 2s --at-least 3 --json", "--deadline 2s", ""});
  EXPECT_EQ(outcome.out, "code 0 3\ncode 1 3\n");
  const json report = json::parse(Written("out.0"));
  EXPECT_EQ(report["schema"], "orrery.launch/1");
  EXPECT_EQ(report["enough"], false);
  EXPECT_EQ(report["nodes"][1]["state"], "good");
  EXPECT_EQ(report["nodes"][2]["state"], "missing");
  EXPECT_THAT(Written("err.1"),
              HasSubstr("is good, but no job begins: only 2 of 3 nodes are good"));
}

TEST(Launch, BadHangingAndLateNodesAreNamed) {
  const std::string wait = " -- sh -c 'cat \"$ORRERY_HOSTFILE\"; sleep 4'";
  const Outcome outcome =
      Launch({"--at-least 1 --deadline 4s --out hosts.0 --json report.json" + wait,
              "--deadline 4s --test 'echo no GPU; exit 3'", "--deadline 4s --test 'sleep 100'",
              "sleep 5; --deadline 4s"});
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 4\ncode 2 4\ncode 3 3\n");
  EXPECT_EQ(Written("out.0"), Written("hosts.0"));
  const json report = json::parse(Written("report.json"));
  EXPECT_EQ(report["nodes"][1]["why"], "the test command ended with exit code 3: no GPU");
  EXPECT_EQ(report["nodes"][2]["why"], "its test has not ended in time");
  EXPECT_EQ(report["nodes"][3]["state"], "too late");
  EXPECT_LT(report["decided_after_s"], 4);
  EXPECT_THAT(Written("err.3"), HasSubstr("is excluded: it came after"));
}

// The end of the deadline belongs to the probes; whoever comes then is told so.
TEST(Launch, SaysUntilWhenNodesMayCome) {
  const Outcome outcome = Launch(
      {"--at-least 1 --deadline 10s --json report.json -- sleep 3", "sleep 9; --deadline 9s"});
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 3\n");
  const json report = json::parse(Written("report.json"));
  EXPECT_EQ(report["deadline_s"], 10);
  EXPECT_EQ(report["nodes_until_s"], 8);
  EXPECT_THAT(Written("err.1"), HasSubstr("the last 2 s of --deadline are for probes"));
}

TEST(Launch, AFailingNodeEndsTheOthersAndGivesItsCode) {
  const Outcome outcome = Launch({"--start node -- sleep 100", "--start node -- sh -c 'exit 7'"});
  EXPECT_EQ(outcome.out.substr(0, 9), "code 0 7\n") << Written("err.0");
  EXPECT_THAT(Written("err.0"), HasSubstr("(index 1) ended with exit code 7"));
}

TEST(Launch, TheMainNodesEndEndsTheOthers) {
  const Outcome outcome =
      Launch({"--start node -- sh -c 'kill -9 $PPID; sleep 100'", "--start node -- sleep 100"});
  EXPECT_EQ(outcome.out, "code 0 137\ncode 1 1\n");
  EXPECT_THAT(Written("err.1"), HasSubstr("the main node 127.0.0.1 is gone"));
}

// Before the command begins: while the nodes are waited for, or tested.
TEST(Launch, ARequestEndsTheRollCall) {
  for (const std::string stop : {"p0", "p1"}) {
    const int port = comm::PortOf(comm::Listen(0, true));
    const Outcome outcome = RunShell(fmt::format(
        "cd '{}'; export ORRERY_SECRET=0123456789abcdef0123 NNODES=3 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={}; for i in 0 1; do sleep $i; env NODE_RANK=$i \"$PLAN\" launch --deadline "
        "60s 2>err.$i >out.$i & eval p$i=$!; done; sleep 2; kill -TERM ${}; kill -TERM ${}; "
        "wait ${}; echo code $?; kill -TERM $p0 $p1 2>/dev/null; wait",
        ScratchFolder(), port, stop, stop, stop));
    EXPECT_EQ(outcome.out, "code 85\n") << Written("err.0") << Written("err.1");
    EXPECT_THAT(Written("err." + stop.substr(1)),
                HasSubstr("stopped by SIGTERM before the command"));
    if (stop == "p0") {
      EXPECT_THAT(Written("err.1"), HasSubstr("the main node was stopped by SIGTERM"));
    }
  }
}

TEST(Launch, AStrangerIsNoNode) {
  const Outcome outcome = Launch({"--deadline 3s", "sleep 0; --deadline 3s --nodes 5"});
  EXPECT_EQ(outcome.out, "code 0 3\ncode 1 3\n");
  EXPECT_THAT(Written("err.0"), HasSubstr("counts 5 nodes, the main one 2"));
}

TEST(Launch, NodesAreCheckedWithoutTheirLauncher) {
  const Outcome outcome = Launch(
      {"--check --tolerance 0.99", "--check --compute 1000TFLOP/s --deadline 60s --at-least 1"});
  EXPECT_EQ(outcome.out, "code 0 3\ncode 1 4\n") << Written("err.0");
  EXPECT_THAT(Written("out.0"), HasSubstr("bad: compute of "));
}

TEST(Launch, WhatCannotBeMeantIsRefused) {
  const std::map<std::string, std::string> node = {
      {"NNODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}};
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert(node.begin(), node.end());
    return more;
  };
  int files = 0;
  const auto hosts = [&](const std::string& text) {
    const std::string path = fmt::format("{}/bad.{}", ScratchFolder(), files++);
    WriteText(path, text);
    return path;
  };
  struct Bad {
    std::vector<std::string> words;
    std::map<std::string, std::string> environment;
    const char* said;
  };
  const Bad bad[] = {
      {{}, {}, "no launcher says how many nodes there are"},
      {{"--nodes", "2"}, {}, "no launcher says which node this is"},
      {{"--nodes", "2", "--index", "1"}, {}, "does not say where the main node is"},
      {{"--index", "2"}, node, "index 2 is not below 2 nodes"},
      {{}, with({{"MASTER_ADDR", "10.0.0.1"}}), "need a secret"},
      {{"--main", "no such host"}, node, "'no such host' is no address"},
      {{"--compute", "1GFLOP/s"}, node, "--compute needs --check"},
      {{"--check", "--disk", "/no/such/folder", "--nodes", "1"}, {}, "no folder '/no/such/folder'"},
      {{"--start", "rank"}, node, "--start needs a command"},
      {{"--start", "everywhere"}, node, "everywhere"},
      {{"--deadline", "0s"}, node, "--deadline is no time"},
      {{"--deadline", "1us"}, node, "--deadline is too short for a node to come"},
      {{"--deadline", "1e99s"}, node, "--deadline is too long"},
      {{"--late", "1e99s"}, node, "--late is too long"},
      {{"--hosts", "/no/such/file"}, node, "cannot read the hostfile"},
      {{"--hosts", hosts("nohost.invalid slots=2\n")}, {}, "the first host of '"},
      {{"--hosts", hosts("localhost slots=1\nlocalhost slots=2\n")}, {}, "has localhost twice"},
      {{"--out", "/no/such/folder/hosts"}, node, "there is no folder '/no/such/folder'"},
      {{"--at-least", "3"}, node, "3"},
      {{"--show", "--nodes", "2", "--index", "7"}, {}, "index 7 is not below 2 nodes"},
      {{"--show"}, {{"NNODES", "2"}, {"NODE_RANK", "abc"}}, "NODE_RANK is 'abc'"},
      {{}, {{"PBS_NODEFILE", hosts("n1\nn2\n")}}, "names n1, n2, and not this host, "},
      {{"--nodes", "2"}, {{"PBS_NODEFILE", hosts("n1\nn2\n")}}, "names n1, n2, and not this"},
  };
  for (const Bad& c : bad) {
    SCOPED_TRACE(c.said);
    std::vector<std::string> words = {"launch"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Outcome outcome = RunPlan(words, c.environment);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(c.said));
  }
  const Outcome shown = RunPlan({"launch", "--show"}, node);
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("index 1 of 2"));
}

}  // namespace
}  // namespace orrery
