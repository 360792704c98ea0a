// SPDX-License-Identifier: Apache-2.0
// `plan run` puts ranks on the hosts that the placement of its plan names: hosts are UTS namespaces of this machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/comm/node_order.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/mpirun.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RanksInOrder, FollowPlacesHoweverTheLauncherFillsHosts) {
  const std::vector<std::string> blocks = {"a", "a", "b", "b", "c", "c"},
                                 turns = {"a", "b", "c", "a", "b", "c"};
  EXPECT_THAT(comm::RanksInOrder(blocks, {0, 1, 2}).ranks, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(comm::RanksInOrder(blocks, {2, 0, 1}).ranks, ElementsAre(2, 3, 4, 5, 0, 1));
  EXPECT_THAT(comm::RanksInOrder(turns, {2, 0, 1}).ranks, ElementsAre(2, 4, 0, 3, 5, 1));
  EXPECT_THAT(comm::RanksInOrder(blocks, {}).ranks, IsEmpty());
}

TEST(RanksInOrder, HaveOneHostOrThoseOfThePlan) {
  const comm::OrderedRanks here = comm::RanksInOrder({"a", "a", "a", "a"}, {1, 0});
  EXPECT_THAT(here.ranks, IsEmpty());
  EXPECT_EQ(here.refusal, "");
  EXPECT_THAT(comm::RanksInOrder({"a", "a", "b", "b"}, {3, 2, 1, 0}).refusal,
              HasSubstr("places 1 ranks on each of 4 nodes, and they are on 2 hosts"));
  EXPECT_THAT(comm::RanksInOrder({"a", "a", "a", "b"}, {1, 0}).refusal,
              HasSubstr("places 2 ranks on each of 2 nodes, and a has 3 of them"));
}

const std::string kJob =
    "run --model linear-20-1 --global-batch 24 --steps 5 --dp 6 --ranks 6 --seed 3 ";

std::vector<std::string> HostsOf(const json& record) {
  std::vector<std::string> hosts;
  for (const json& rank : record["per_rank"]) hosts.push_back(rank["host"]);
  return hosts;
}

class PlacedRun : public testing::Test {
 protected:
  void SetUp() override {
    if (RunShell("unshare --uts true").code != 0) GTEST_SKIP() << "no namespaces";
    const std::string agent = ScratchFolder() + "/agent";
    WriteText(agent,
              "#!/bin/sh\nhost=$1\nshift\nexec unshare --uts sh -c \"hostname $host; $*\"\n");
    std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
    hosts_ = ScratchFolder() + "/hosts";
    WriteText(hosts_, "na slots=2\nnb slots=2\nnc slots=2\n");
    mpi_ = fmt::format(
        "export OMPI_MCA_plm_rsh_agent='{}' OMPI_MCA_plm=rsh OMPI_MCA_btl=self,tcp "
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; ",
        agent);
  }
  static bool HasMpi() {
#ifdef ORRERY_HAS_MPI
    return !launch::FindMpirun().empty();
#else
    return false;
#endif
  }
  // Its losses are those of threads, to the last bit.
  static void ExpectPlaced(const std::string& text) {
    const json record = json::parse(text, nullptr, false);
    ASSERT_TRUE(record.is_object()) << text;
    EXPECT_THAT(HostsOf(record), ElementsAre("nc", "nc", "na", "na", "nb", "nb"));
    EXPECT_EQ(record["placement"][0], json({{"node", 2}, {"host", "nc"}}));
    const json alone = json::parse(RunShell("\"$PLAN\" " + kJob + "--comm local --json").out);
    ASSERT_EQ(alone["steps"].size(), record["steps"].size());
    for (std::size_t i = 0; i < alone["steps"].size(); ++i)
      EXPECT_EQ(alone["steps"][i]["loss"], record["steps"][i]["loss"]);
  }

  std::string hosts_, mpi_;
};

TEST_F(PlacedRun, LinesOfTheHostfileAreTheNodes) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  const std::string run = mpi_ + "\"$PLAN\" " + kJob;
  ExpectPlaced(RunShell(run + fmt::format("--hostfile '{}' --placement 2,0,1 --json", hosts_)).out);
  EXPECT_THAT(RunShell(run + fmt::format("--hostfile '{}' --placement 2,0,1", hosts_)).out,
              HasSubstr("placement: ranks 0..1 on nc (node 2), ranks 2..3 on na (node 0)"));
  // A plan's text has the order in it.
  const std::string plan = ScratchFolder() + "/plan.txt";
  const Outcome shown = RunShell(
      fmt::format("\"$PLAN\" show --model linear-20-1 --global-batch 24 --dp 6 --topology "
                  "aws-g5-48xl --gpus-per-node 2 --nodes 3 --placement 2,0,1 --framework orrery "
                  "--precision fp32 --ir > '{}'",
                  plan));
  ASSERT_EQ(shown.code, 0);
  const json record =
      json::parse(RunShell(mpi_ + fmt::format("\"$PLAN\" run '{}' --steps 1 --hostfile '{}' --json",
                                              plan, hosts_))
                      .out);
  EXPECT_THAT(HostsOf(record), ElementsAre("nc", "nc", "na", "na", "nb", "nb"));
}

TEST_F(PlacedRun, HostsOfALauncherAreTheNodesInTheOrderThatItFillsThem) {
  if (!HasMpi()) GTEST_SKIP() << "no MPI";
  for (const char* map : {"slot", "node"}) {
    ExpectPlaced(
        RunShell(mpi_ + fmt::format("mpirun --hostfile '{}' --map-by {} -np 6 \"$PLAN\" {} "
                                    "--placement 2,0,1 --json",
                                    hosts_, map, kJob))
            .out);
  }
  const Outcome other =
      RunShell(mpi_ + fmt::format("mpirun --hostfile '{}' -np 6 \"$PLAN\" {} --placement 0..5 2>&1",
                                  hosts_, kJob));
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.out,
              HasSubstr("error: the plan places 1 ranks on each of 6 nodes, and they are "
                        "on 3 hosts"));
}

TEST_F(PlacedRun, OverTcp) {
  const int port = comm::PortOf(comm::Listen(0, true));
  RunShell(fmt::format(
      "unset OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK; "
      "export WORLD_SIZE=6 MASTER_ADDR=127.0.0.1 MASTER_PORT={}; cd '{}'; set -- na nb nc; "
      "for r in 0 1 2 3 4 5; do eval host=\\${{$((r / 2 + 1))}}; "
      "RANK=$r HOST=$host unshare --uts sh -c 'hostname $HOST; exec \"$PLAN\" {} --placement 2,0,1 "
      "--json' >out.$r 2>err.$r & done; wait",
      port, ScratchFolder(), kJob));
  std::string all;
  for (int rank = 0; rank < 6; ++rank) all += Written(fmt::format("out.{}", rank));
  EXPECT_EQ(Written("out.0"), "") << "rank 0 of the run is the fifth process";
  ExpectPlaced(all);
}

TEST_F(PlacedRun, SaysWhenHostsAreTooFewOrOne) {
  const auto error = [&](const std::string& more) {
    const Outcome outcome = RunShell("\"$PLAN\" " + kJob + more + " 2>&1");
    EXPECT_EQ(outcome.code, 2) << more;
    return outcome.out;
  };
  EXPECT_THAT(error("--placement 3,2,0,1"),
              HasSubstr("6 ranks are not as many on each of 4 nodes"));
  if (HasMpi()) {
    EXPECT_THAT(error(fmt::format("--hostfile '{}' --placement 0..5", hosts_)),
                HasSubstr("names 3 hosts, and the placement 6 nodes"));
    EXPECT_THAT(error(fmt::format("--hostfile '{}' --placement 1,0", hosts_)),
                HasSubstr("gives nb 2 slots, and the placement 3 ranks"));
  }
  const Outcome here = RunShell("\"$PLAN\" " + kJob + "--comm local --placement 2,0,1");
  EXPECT_EQ(here.code, 0);
  EXPECT_THAT(here.out, HasSubstr("the order of nodes (2,0..1) changes nothing"));
}

}  // namespace
}  // namespace orrery
