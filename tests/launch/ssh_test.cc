// SPDX-License-Identifier: Apache-2.0
// plan launch --ssh: a script in PATH stands for ssh and starts what it is told on this machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/launch/hostfile.h"
#include "runtime/launch/remote.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Ssh : public testing::Test {
 protected:
  // Hosts are what they are called; like sshd, it gives the command to a shell of the user's.
  void SetUp() override {
    fs::create_directories(ScratchFolder() + "/bin");
    const std::string ssh = ScratchFolder() + "/bin/ssh";
    WriteText(ssh,
              "#!/bin/sh\n"
              "while [ \"${1#-}\" != \"$1\" ]; do [ \"$1\" = -o ] && shift; shift; done\n"
              "host=$1; shift; echo \"$host $*\" >>\"" +
                  ScratchFolder() +
                  "/asked\"\n"
                  "echo \"Welcome to $host\"\n"
                  "case $host in\n"
                  "  refuses) echo 'ssh: connect to host refuses port 22: Connection refused' >&2; "
                  "exit 255;;\n"
                  "  silent) exec sleep 1000;;\n"
                  "  slow) sleep 3;;\n"
                  "esac\n"
                  "exec env -i PATH=\"$PATH\" HOME=\"$HOME\" sh -c \"$*\"\n");
    fs::permissions(ssh, fs::perms::owner_all);
    fs::remove(ScratchFolder() + "/asked");
  }

  static Outcome Launch(const std::string& hosts, const std::string& words) {
    WriteText(ScratchFolder() + "/hosts", hosts);
    const std::string clean =
        "unset $(env | sed -n "
        "'s/^\\(OMPI_[^=]*\\|SLURM_[^=]*\\|PMI[^=]*\\|RANK\\|WORLD_SIZE\\|ORRERY_SECRET\\)=.*/\\1/"
        "p')";
    return RunShell(
        fmt::format("{}; cd '{}'; PATH=\"$PWD/bin:$PATH\" \"$PLAN\" launch --hosts hosts --ssh "
                    "{} 2>err",
                    clean, ScratchFolder(), words));
  }
};

TEST_F(Ssh, RanksOfAllHostsTrain) {
  const Outcome outcome = Launch(
      "127.0.0.1 slots=1\nnode1 slots=2\nnode2\n",
      "--deadline 60s --start rank -- \"$PLAN\" run --model linear-20-1 --dp 4 --global-batch 24 "
      "--steps 5 --json");
  ASSERT_EQ(outcome.code, 0) << Written("err");
  const json record = json::parse(outcome.out);  // nothing else is on standard output
  EXPECT_EQ(record["ranks"], 4);
  EXPECT_EQ(record["comm"], "tcp");
  EXPECT_EQ(record["steps"].size(), 5u);
  // Only the program's words could be read by those who list processes.
  EXPECT_THAT(Written("asked"), AllOf(HasSubstr("node1 "), HasSubstr("node2 "), HasSubstr("launch"),
                                      Not(HasSubstr("ORRERY_SECRET="))));
}

TEST_F(Ssh, HostsThatAreLateMissingAndBadAreNamed) {
  const Outcome outcome = Launch(
      "127.0.0.1\nslow\nrefuses\nsilent\nnode4\n",
      "--deadline 12s --late 2s --at-least 2 --json report.json --test "
      "'[ \"$ORRERY_LAUNCH_NAME\" != node4 ] || { echo \"no GPU; it'\\''s $HOME\" >&2; exit 3; }' "
      "-- echo 'a  b' \"it's\" '$HOME'");
  ASSERT_EQ(outcome.code, 0) << Written("err");
  EXPECT_EQ(outcome.out, "a  b it's $HOME\n") << "words arrive as they are";
  const json report = json::parse(Written("report.json"));
  std::map<std::string, json> nodes;
  for (const json& node : report["nodes"]) nodes[node["host"].get<std::string>()] = node;
  EXPECT_EQ(nodes.at("slow")["state"], "good");
  EXPECT_EQ(nodes.at("slow")["late"], true);
  EXPECT_EQ(nodes.at("refuses")["state"], "missing");
  EXPECT_EQ(nodes.at("silent")["state"], "missing");
  EXPECT_EQ(nodes.at("node4")["state"], "bad");
  EXPECT_THAT(
      Written("err"),
      AllOf(HasSubstr("Connection refused"),
            HasSubstr("host refuses (index 2) is not reached: the agent ended with exit code 255"),
            HasSubstr("host silent (index 3) is not reached in 12 s"), HasSubstr("no GPU; it's ")));
}

TEST_F(Ssh, AMainNodeThatIsNotReachedEndsWithThree) {
  const Outcome refused = Launch("refuses\nnode1\n", "--main 127.0.0.1 --deadline 3s");
  EXPECT_EQ(refused.code, 3);
  // The other one is stopped from here: that is no end of its own.
  EXPECT_THAT(Written("err"), Not(HasSubstr("node1 (index 1) ended")));
  const Outcome silent = Launch("silent\nnode1\n", "--main 127.0.0.1 --deadline 3s -- true");
  EXPECT_EQ(silent.code, 3);
  EXPECT_THAT(Written("err"), HasSubstr("host silent (index 0) is not reached in 3 s"));
}

TEST_F(Ssh, TheCommandsExitCodeComesBackFromAnotherHost) {
  EXPECT_EQ(Launch("node0\nnode1\n", "--main 127.0.0.1 --deadline 30s -- sh -c 'exit 7'").code, 7);
}

TEST_F(Ssh, ATerminatedRunEndsOnAllHostsWithASnapshot) {
  const std::string run =
      "--deadline 30s --start rank -- \"$PLAN\" run --model linear-20-1 --dp 2 "
      "--global-batch 24 --steps 100000000 --log-every 100 --save s >said";
  fs::remove_all(ScratchFolder() + "/s");
  const Outcome outcome =
      Launch("node0\nnode1\n", "--main 127.0.0.1 " + run +
                                   " & p=$!; for i in $(seq 300); do sleep 0.1; grep -q 'step  ' "
                                   "said && break; done; kill -TERM $p; wait $p; exit $? #");
  EXPECT_EQ(outcome.code, 85) << Written("err");
  EXPECT_TRUE(fs::exists(ScratchFolder() + "/s/LATEST"));
}

TEST_F(Ssh, NothingOfAHostfileReachesAShell) {
  for (const char* bad : {"-oProxyCommand=touch${IFS}owned:", "a;touch owned", "$(touch owned)",
                          "`x`", "a'b", "-l", "x:y;z"}) {
    const Outcome outcome = Launch("127.0.0.1\n" + std::string(bad) + "\n", "--deadline 2s");
    EXPECT_EQ(outcome.code, 2) << bad;
    EXPECT_THAT(Written("err"),
                testing::AllOf(HasSubstr(":2:1: error: "), HasSubstr("this is no host")))
        << bad;
  }
  EXPECT_FALSE(fs::exists(ScratchFolder() + "/owned"));
  EXPECT_TRUE(launch::IsHostName("node-1.example"));
  EXPECT_TRUE(launch::IsHostName("fe80::1%eth0"));
  EXPECT_FALSE(launch::IsHostName("fe80::1%$(x)"));
  EXPECT_EQ(launch::Quoted("a'b $x"), "'a'\\''b $x'");
}

TEST_F(Ssh, FlagsOfOneNodeAreRefused) {
  EXPECT_EQ(Launch("127.0.0.1\n", "--index 0").code, 2);
  EXPECT_THAT(Written("err"), HasSubstr("--index is that of one node"));
  EXPECT_EQ(RunPlan({"launch", "--ssh"}).code, 2);
}

}  // namespace
}  // namespace orrery
