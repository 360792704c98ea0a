// SPDX-License-Identifier: Apache-2.0
// A rehearsal of AWS Batch's multi-node jobs: nodes with network namespaces and host names of their
// own, which know nothing but the variables of the job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/lab/netns.h"
#include "tests/launch/nodes.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Batch : public testing::Test {
 protected:
  void SetUp() override {
    std::string hint;
    const std::string refusal = lab::WhyRefused(&hint);
    if (!refusal.empty()) GTEST_SKIP() << "no namespaces can be made here: " << refusal;
    setenv("XDG_RUNTIME_DIR", ScratchFolder().c_str(), 1);
    const Outcome up = RunPlan(
        {"lab", "up", "--name", "batch", "--nodes", "5", "--rate", "1Gbps", "--latency", "100us"});
    ASSERT_EQ(up.code, 0) << up.err;
  }
  void TearDown() override { RunPlan({"lab", "down", "--name", "batch"}); }

  // Batch's variables; the main node is not told its own address.
  static Outcome Launch(const std::vector<std::string>& lines, std::size_t main = 0) {
    const std::string job = fmt::format(
        "export ORRERY_SECRET=0123456789abcdef01\n"
        "export AWS_BATCH_JOB_NUM_NODES={} AWS_BATCH_JOB_MAIN_NODE_INDEX={}",
        lines.size(), main);
    return RunNodes(job, lines, [&](std::size_t i, const std::string& words) {
      std::string address;
      if (i != main)
        address = fmt::format("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.10.0.{} ", main + 1);
      return fmt::format(
          "env AWS_BATCH_JOB_NODE_INDEX={} AWS_BATCH_JOB_ID='4f2a#{}' {} \"$PLAN\" lab enter {} "
          "--name batch -- \"$PLAN\" launch {}",
          i, i, address, i, words);
    });
  }
};

// One node is late, one bad, one absent.
TEST_F(Batch, EachNodeIsNamedWithinTheDeadline) {
  const std::string train =
      " --deadline 12s --at-least 3 --slots 1 --start rank -- \"$PLAN\" run --model linear-20-1 "
      "--dp 3 --global-batch 24 --steps 3 --json";
  const Outcome outcome =
      Launch({"--out hosts.0 --json report.json" + train, "--out hosts.1" + train,
              "sleep 7; --out hosts.2" + train,
              "--test 'echo GPU 3 has fallen off the bus; exit 1'" + train, ""});
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 0\ncode 2 0\ncode 3 4\n")
      << Written("err.0") << Written("err.1") << Written("err.2");
  EXPECT_EQ(Written("hosts.0"),
            "10.10.0.1 slots=1  # batch-0 (index 0)\n10.10.0.2 slots=1  # batch-1 (index 1)\n"
            "10.10.0.3 slots=1  # batch-2 (index 2)\n");
  EXPECT_EQ(Written("hosts.0"), Written("hosts.2"));
  const json report = json::parse(Written("report.json"));
  EXPECT_EQ(report["launcher"], "AWS Batch");
  EXPECT_EQ(report["interface"], "eth0");
  EXPECT_LE(report["decided_after_s"], 12);
  const auto& nodes = report["nodes"];
  EXPECT_EQ(nodes[1]["state"], "good");
  EXPECT_EQ(nodes[1]["late"], false);
  EXPECT_EQ(nodes[2]["state"], "good");
  EXPECT_EQ(nodes[2]["late"], true);
  EXPECT_EQ(nodes[2]["host"], "batch-2");
  EXPECT_EQ(nodes[3]["state"], "bad");
  EXPECT_EQ(nodes[3]["host"], "batch-3");
  EXPECT_EQ(nodes[3]["why"],
            "the test command ended with exit code 1: GPU 3 has fallen off the bus");
  EXPECT_EQ(nodes[4]["state"], "missing");
  EXPECT_EQ(nodes[4]["index"], 4);
  EXPECT_THAT(Written("err.0"), AllOf(HasSubstr("good, late"), HasSubstr("never  missing")));
  // The nodes that were left have trained together.
  EXPECT_EQ(json::parse(Written("out.0"))["ranks"], 3);
}

// The main node need not be the first; hosts stand from it on.
TEST_F(Batch, AnotherMainNodeAndAnotherSecret) {
  const Outcome outcome = Launch(
      {"--deadline 6s --at-least 2", "--deadline 6s --at-least 2 --out hosts", "--deadline 4s"}, 1);
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 0\ncode 2 0\n") << Written("err.1");
  EXPECT_THAT(Written("hosts"), testing::StartsWith("10.10.0.2 slots=1  # batch-1 (index 1)\n"));
  const Outcome strange = Launch({"--deadline 4s --at-least 1 --out hosts", "--deadline 4s"}, 0);
  EXPECT_EQ(strange.out, "code 0 0\ncode 1 0\n");
  const Outcome refused =
      RunShell(fmt::format("cd '{}'; export AWS_BATCH_JOB_NUM_NODES=2 "
                           "AWS_BATCH_JOB_MAIN_NODE_INDEX=0 AWS_BATCH_JOB_ID=j; "
                           "ORRERY_SECRET=0123456789abcdef01 AWS_BATCH_JOB_NODE_INDEX=0 \"$PLAN\" "
                           "lab enter 0 --name batch "
                           "-- \"$PLAN\" launch --deadline 3s --at-least 1 >out.0 2>err.0 & "
                           "ORRERY_SECRET=another-secret-0 AWS_BATCH_JOB_NODE_INDEX=1 "
                           "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.10.0.1 \"$PLAN\" lab "
                           "enter 1 --name batch -- "
                           "\"$PLAN\" launch --deadline 3s >out.1 2>err.1; echo $?; wait",
                           ScratchFolder()));
  EXPECT_EQ(refused.out, "3\n");
  EXPECT_THAT(Written("err.1"), HasSubstr("another ORRERY_SECRET"));
  EXPECT_THAT(Written("out.0"), HasSubstr("1 of 2 nodes good"));
}

// The variables lead to one network, the ranks are to use the other one.
TEST_F(Batch, TheInterfaceIsTheOneThatIsAskedFor) {
  const std::string words = "--deadline 10s --interface ctl0 --out hosts.";
  const Outcome outcome = Launch({words + "0", words + "1"});
  EXPECT_EQ(outcome.out, "code 0 0\ncode 1 0\n") << Written("err.0");
  EXPECT_EQ(Written("hosts.1"),
            "10.11.0.1 slots=1  # batch-0 (index 0)\n10.11.0.2 slots=1  # batch-1 (index 1)\n");
  const Outcome none = Launch({"--deadline 5s --at-least 1", "--deadline 5s --interface hsn0"});
  EXPECT_EQ(none.out, "code 0 0\ncode 1 0\n");  // what the main node says is done
  const Outcome wrong = Launch({"--deadline 5s --interface hsn0", "--deadline 5s"});
  EXPECT_EQ(wrong.out, "code 0 4\ncode 1 4\n");
  EXPECT_THAT(Written("out.0"), HasSubstr("it has no interface hsn0 that is up: eth0, ctl0"));
}

}  // namespace
}  // namespace orrery
