// SPDX-License-Identifier: Apache-2.0
// Which node of a job this is, from the variables of each launcher.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "model/base/diagnostics.h"
#include "runtime/comm/secret.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/node_place.h"
#include "runtime/launch/place.h"

namespace orrery::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Variables = std::vector<std::pair<const char*, std::string>>;

class Places : public testing::Test {
 protected:
  void SetUp() override { ForgetLauncher(); }
  void TearDown() override {
    ForgetLauncher();
    for (const char* name : set_) unsetenv(name);
  }
  NodePlace With(const Variables& variables) {
    for (const auto& [name, value] : variables) {
      setenv(name, value.c_str(), 1);
      set_.push_back(name);
    }
    return FindNode();
  }
  std::string File(const std::string& text) {
    const std::string path = testing::TempDir() + "/launch-places";
    std::ofstream(path) << text;
    return path;
  }
  std::vector<const char*> set_;
};

TEST_F(Places, Nowhere) {
  EXPECT_EQ(FindNode().launched_by, "");
  EXPECT_EQ(FindNode().index, -1);
}

// It was taken for rank 1 of 32, each on a machine of its own.
TEST_F(Places, APodOfAPyTorchJobIsANode) {
  const NodePlace pod = With({{"RANK", "1"},
                              {"WORLD_SIZE", "32"},
                              {"MASTER_ADDR", "job-master-0"},
                              {"MASTER_PORT", "23456"},
                              {"PET_NODE_RANK", "1"},
                              {"PET_NNODES", "4"},
                              {"PET_NPROC_PER_NODE", "8"}});
  EXPECT_EQ(pod.launched_by, "PyTorchJob");
  EXPECT_EQ(pod.index, 1);
  EXPECT_EQ(pod.nodes, 4);
  EXPECT_EQ(pod.slots, 8);
  EXPECT_EQ(pod.main, "job-master-0");
  EXPECT_EQ(pod.port, 23456);
  EXPECT_THAT([] { FindPlace(); },
              testing::ThrowsMessage<InputError>(HasSubstr("starts 4 pods for 8 ranks each")));
}

TEST_F(Places, AnIndexIsEnoughWhereTheNodesAreCounted) {
  EXPECT_EQ(With({{"JOB_COMPLETION_INDEX", "1"}}).launched_by, "");
  EXPECT_EQ(FindNode(true).launched_by, "Kubernetes");
  EXPECT_EQ(FindNode(true).index, 1);
}

TEST_F(Places, AVariableThatIsNoNumberIsNamed) {
  EXPECT_EQ(UnreadPlace(), "");
  EXPECT_EQ(With({{"NODE_RANK", "abc"}, {"NNODES", "2"}}).index, -1);
  EXPECT_EQ(UnreadPlace(), "NODE_RANK is 'abc'");
}

// A container that was given a part of them would run alone, as often as there are tasks.
TEST_F(Places, APartOfTheVariablesIsRefused) {
  const auto why = [&](const Variables& variables) {
    try {
      With(variables);
      FindPlace();
    } catch (const InputError& error) {
      TearDown();
      return std::string(error.what());
    }
    TearDown();
    return std::string();
  };
  EXPECT_THAT(why({{"SLURM_PROCID", "3"}}),
              AllOf(HasSubstr("SLURM_PROCID=3 and no SLURM_STEP_NUM_TASKS"),
                    HasSubstr("unset SLURM_PROCID to start ranks here")));
  EXPECT_THAT(why({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "2"}}), HasSubstr("SLURM_PROCID=0"));
  EXPECT_THAT(why({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}}),
              HasSubstr("no SLURM_STEP_NUM_TASKS"));
  EXPECT_THAT(why({{"RANK", "1"}}), HasSubstr("RANK=1 and no WORLD_SIZE"));
  EXPECT_THAT(why({{"OMPI_COMM_WORLD_RANK", "1"}}), HasSubstr("no OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(why({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "1"}}),
              HasSubstr("SLURM_PROCID=3 in the environment is not below"));
  // The batch script itself, and a step of one task.
  EXPECT_EQ(why({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}), "");
  EXPECT_EQ(why({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967291"}}), "");
  EXPECT_EQ(why({{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}),
            "");
  EXPECT_EQ(why({{"JOB_COMPLETION_INDEX", "1"}}), "");  // jobs of one process each
}

TEST_F(Places, SlurmCountsMachinesAndNotTasks) {
  const NodePlace place = With({{"SLURM_PROCID", "17"},
                                {"SLURM_STEP_NUM_TASKS", "32"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_NODEID", "2"},
                                {"SLURM_STEP_NUM_NODES", "4"},
                                {"SLURM_STEP_NODELIST", "gpu[08-10],login"},
                                {"SLURM_JOB_ID", "77"},
                                {"SLURMD_NODENAME", "gpu10"},
                                {"SLURM_GPUS_ON_NODE", "8"}});
  EXPECT_EQ(place.launched_by, "srun");
  EXPECT_EQ(place.index, 2);
  EXPECT_EQ(place.nodes, 4);
  EXPECT_EQ(place.local, 1);
  EXPECT_EQ(place.slots, 8);
  EXPECT_EQ(place.main, "gpu08");
  EXPECT_EQ(place.name, "gpu10");
  EXPECT_EQ(place.port, PortOfJob("77"));
  EXPECT_THAT(place.hosts, ElementsAre("gpu08", "gpu09", "gpu10", "login"));
}

TEST_F(Places, PbsListsAMachinePerSlot) {
  const std::string list = File("n1\nn1\nn2\nn2\nn1\n");
  const NodePlace place =
      With({{"PBS_NODEFILE", list}, {"PBS_NODENUM", "1"}, {"PBS_JOBID", "9.server"}});
  EXPECT_EQ(place.launched_by, "PBS");
  EXPECT_EQ(place.index, 1);
  EXPECT_EQ(place.nodes, 2);
  EXPECT_EQ(place.main, "n1");
  EXPECT_THAT(place.hosts, ElementsAre("n1", "n2"));
  EXPECT_THAT(place.slots_by_host, ElementsAre(3, 2));
}

// Nothing was said of the file.
TEST_F(Places, AListWithoutANumberSaysWhatItNames) {
  const std::string list = File("n1\nn1\nn2\n");
  NodePlace place = With({{"PBS_NODEFILE", list}, {"PBS_JOBID", "9.server"}});
  EXPECT_EQ(place.launched_by, "");
  EXPECT_EQ(place.of_list,
            "PBS_NODEFILE ('" + list + "') names n1, n2, and not this host, " + place.name);
  File("n1\n127.0.0.1\n");
  EXPECT_THAT(FindNode().of_list,
              HasSubstr("names n1, 127.0.0.1, and PBS_NODENUM does not say which this is"));
  EXPECT_EQ(With({{"PBS_NODENUM", "1"}}).of_list, "");
  unsetenv("PBS_NODENUM");
  EXPECT_EQ(With({{"PBS_NODEFILE", "/no/such/file"}}).of_list,
            "PBS_NODEFILE is '/no/such/file', which cannot be read");
}

// It was node 2 of 3, in a list of four.
TEST_F(Places, AListOfAnotherNumberOfMachinesIsRefused) {
  const auto why = [&](const Variables& variables) {
    try {
      With(variables);
      return std::string();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  const Variables step = {
      {"SLURM_PROCID", "2"},         {"SLURM_STEP_NUM_TASKS", "3"},     {"SLURM_NODEID", "2"},
      {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NODELIST", "n[1-4]"}, {"SLURM_JOB_ID", "7"}};
  const std::string said =
      "SLURM_STEP_NUM_NODES is 3, and SLURM_STEP_NODELIST names 4: n1, n2, n3, n4";
  EXPECT_THAT(why(step), HasSubstr(said));
  setenv("ORRERY_SECRET", "0123456789abcdef", 1);
  set_.push_back("ORRERY_SECRET");
  try {
    FindPlace();
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr(said));
  }
  TearDown();
  set_.clear();
  EXPECT_THAT(why({{"PBS_NODEFILE", File("n1\nn2\nn2\n")}, {"PBS_NODENUM", "1"}, {"NNODES", "3"}}),
              HasSubstr("NNODES is 3, and PBS_NODEFILE names 2: n1, n2"));
}

// As documented for --port, under every launcher.
TEST_F(Places, MasterPortGoesBeforeThePortOfTheJob) {
  const Variables srun = {
      {"SLURM_PROCID", "0"},         {"SLURM_STEP_NUM_TASKS", "2"},     {"SLURM_NODEID", "0"},
      {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_JOB_ID", "77"}};
  const Variables batch = {{"AWS_BATCH_JOB_NUM_NODES", "2"},
                           {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "0"},
                           {"AWS_BATCH_JOB_ID", "4f2a#1"},
                           {"AWS_BATCH_JOB_NODE_INDEX", "1"}};
  const Variables pbs = {{"PBS_NODENUM", "1"}, {"NNODES", "2"}, {"PBS_JOBID", "9.server"}};
  for (const Variables& job : {srun, batch, pbs}) {
    SCOPED_TRACE(With(job).launched_by);
    EXPECT_GE(FindNode().port, 20000);
    EXPECT_EQ(With({{"MASTER_PORT", "6001"}}).port, 6001);
    for (const char* bad : {"0", "65536", "abc", "-1", "6001x"}) {
      try {
        With({{"MASTER_PORT", bad}});
        ADD_FAILURE() << bad;
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("MASTER_PORT=" + std::string(bad) + " in the environment is not"));
      }
    }
    TearDown();
    set_.clear();
  }
  With({{"MASTER_PORT", "6001"}});
  EXPECT_EQ(NodeOfHosts({{"127.0.0.1", 2}}).port, 6001);
}

// The list may be on the first machine alone: the job script says the rest.
TEST_F(Places, PbsWithoutItsList) {
  const NodePlace place = With({{"PBS_NODEFILE", "/no/such/file"},
                                {"PBS_NODENUM", "1"},
                                {"NNODES", "3"},
                                {"MASTER_ADDR", "n1"}});
  EXPECT_EQ(place.launched_by, "PBS");
  EXPECT_EQ(place.nodes, 3);
  EXPECT_EQ(place.main, "n1");
}

TEST_F(Places, BatchTellsTheMainNodeNoAddress) {
  const Variables job = {{"AWS_BATCH_JOB_NUM_NODES", "3"},
                         {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "1"},
                         {"AWS_BATCH_JOB_ID", "4f2a#1"},
                         {"AWS_BATCH_JOB_NODE_INDEX", "1"}};
  const NodePlace main = With(job);
  EXPECT_EQ(main.launched_by, "AWS Batch");
  EXPECT_EQ(main.rank(), 0);
  EXPECT_EQ(main.main, "");
  const NodePlace other = With({{"AWS_BATCH_JOB_NODE_INDEX", "0"},
                                {"AWS_BATCH_JOB_ID", "4f2a#0"},
                                {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.7"}});
  EXPECT_EQ(other.rank(), 2);
  EXPECT_EQ(other.main, "10.0.0.7");
  EXPECT_EQ(other.port, main.port);
}

TEST_F(Places, KubernetesTorchrunMpirunAndScripts) {
  struct Case {
    Variables variables;
    const char* launcher;
    int64_t index, nodes;
    const char* main;
    int port;
  };
  const Case cases[] = {
      {{{"JOB_COMPLETION_INDEX", "2"},
        {"NNODES", "4"},
        {"MASTER_ADDR", "job-0.job"},
        {"MASTER_PORT", "29400"}},
       "Kubernetes",
       2,
       4,
       "job-0.job",
       29400},
      {{{"RANK", "9"},
        {"WORLD_SIZE", "16"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "8"},
        {"GROUP_RANK", "1"},
        {"GROUP_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "h0"},
        {"MASTER_PORT", "29400"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       "torchrun",
       1,
       2,
       "h0",
       29401},
      {{{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
        {"MASTER_ADDR", "h0"}},
       "mpirun",
       1,
       2,
       "h0",
       29500},
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
       "mpirun",
       0,
       2,
       "",
       29500},
      {{{"NODE_RANK", "3"}, {"NNODES", "4"}, {"MASTER_ADDR", "h0"}}, "a script", 3, 4, "h0", 29500},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.launcher);
    const NodePlace place = With(c.variables);
    EXPECT_EQ(place.launched_by, c.launcher);
    EXPECT_EQ(place.index, c.index);
    EXPECT_EQ(place.nodes, c.nodes);
    EXPECT_EQ(place.main, c.main);
    EXPECT_EQ(place.port, c.port);
    TearDown();
    set_.clear();
  }
}

TEST_F(Places, AHostfileHasThisMachineByAddress) {
  const NodePlace place = NodeOfHosts({{"192.0.2.77", 4}, {"127.0.0.1", 2}});
  EXPECT_EQ(place.index, 1);
  EXPECT_EQ(place.main, "192.0.2.77");
  EXPECT_EQ(NodeOfHosts({{"192.0.2.77", 4}}).index, -1);
}

// Its own line is found without a question to a name server for each line before it, which may take seconds a name; of hosts
// whose first labels are alike, the whole name decides.
TEST_F(Places, AHostfileHasThisMachineByNameBeforeAnyAddress) {
  const std::string own = comm::OwnHost();
  std::vector<HostSlots> hosts;
  for (int i = 0; i < 2000; ++i)
    hosts.push_back({fmt::format("no-such-host-{}.invalid", i), 1, ""});
  hosts.push_back({own + ".elsewhere", 1, ""});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(NodeOfHosts(hosts).index, 2000);
  hosts.push_back({own, 1, ""});
  EXPECT_EQ(NodeOfHosts(hosts).index, 2001);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(Places, HostfilesAreReadAsTheyAreWritten) {
  const std::vector<HostSlots> hosts = {{"10.0.0.1", 8, "ip-10-0-0-1 (index 0)"}, {"n2", 1}};
  const std::string path = testing::TempDir() + "/launch-hosts";
  WriteHostfile(path, HostfileText(hosts));
  const auto again = ReadHostfile(path);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].host, "10.0.0.1");
  EXPECT_EQ(SlotsOf(again), 9);
  EXPECT_THROW(WriteHostfile("/no/such/folder/hosts", "x"), InputError);
}

// What is wrong, its line, and what belongs there: a hostfile is what this command asks for.
TEST_F(Places, LinesOfHostfilesAreRefusedByWhatIsWrongWithThem) {
  const std::string path = testing::TempDir() + "/bad-hosts";
  const auto error = [&](const std::string& text) -> std::string {
    WriteHostfile(path, text);
    try {
      ReadHostfile(path);
    } catch (const InputError& refused) {
      return refused.what();
    }
    return "";
  };
  struct Bad {
    const char *text, *line, *said;
  };
  const Bad bad[] = {
      {"n1\nn2 slots=-1\n", ":2:1", "'slots=-1' is no count of slots"},
      {"n1 slots=0\n", ":1:1", "slots=N, N from 1 to 4096"},
      {"n1 slots=99999999999999999999\n", ":1:1", "is no count of slots"},
      {"n1 slots=8\nnode[1-4] slots=8\n", ":2:1", "'node[1-4]' is a list of hosts"},
      {"n1 slots=8 max_slots=4\n", ":1:1", "max_slots=4 is below slots=8"},
      {"n1 slots=8 max-slots=x\n", ":1:1", "max-slots=N"},
      {"# a\n\nn1 8\n", ":3:1", "'8' is no key of a host"},
      {"[::1] slots=2\n", ":1:1", "without brackets"},
      {"n1 slots=2\nn1 slots=2\n", ":2:1", "has n1 twice, first in line 1"},
      {"n1\nn1 slots=2\n", ":2:1", "has n1 twice"},
      {"-x slots=2\n", ":1:1", "this is no host"},
      {"n1 slots=2 slots=4\n", ":1:1", "n1 has slots twice"},
      {"\xef\xbb\xbfn1 slots=2\n", ":1:1", "begins with a byte order mark"},
  };
  for (const Bad& c : bad) {
    EXPECT_THAT(error(c.text), AllOf(HasSubstr(path + c.line), HasSubstr(c.said))) << c.text;
    EXPECT_THAT(error(c.text), Not(HasSubstr("plan discover"))) << c.text;
  }
}

// Open MPI: the most that it may start there, and a host once for each slot.
TEST_F(Places, HostfilesMayHaveLimitsAndAHostOncePerSlot) {
  const std::string path = testing::TempDir() + "/legal-hosts";
  WriteHostfile(path,
                "n1 slots=8 max_slots=16\r\nn2 max-slots=4 slots=4 # b\n::1 slots=2\nn3\nn3\n");
  const auto hosts = ReadHostfile(path);
  ASSERT_EQ(hosts.size(), 5u);
  EXPECT_EQ(hosts[1].host, "n2");
  EXPECT_EQ(SlotsOf(hosts), 16);
  // What goes to mpirun is what mpirun reads.
  EXPECT_THROW(ReadHostfileOfMpirun(path), InputError);
  WriteHostfile(path, "n1 slots=2\r\n");
  EXPECT_THROW(ReadHostfileOfMpirun(path), InputError);
  WriteHostfile(path, "n3\nn1 slots=2\nn3\n");
  const auto merged = ReadHostfileOfMpirun(path);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].slots, 2);
}

}  // namespace
}  // namespace orrery::launch
