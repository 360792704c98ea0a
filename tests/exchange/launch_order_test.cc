// SPDX-License-Identifier: Apache-2.0
// The files of launchers give each node the NODE_RANK that the placement says, run with stand-ins for the launchers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

void WriteProgram(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
  fs::permissions(path, fs::perms::owner_all);
}

// `hosts`: that the topology names.
Bundle Placed(const std::vector<std::string>& hosts = {}) {
  Case layout =
      CaseOf(Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--tp", "8",
                      "--placement", "tp-cp-dp-pp:2,0,1,3", "--framework", "megatron"}));
  layout.hosts = hosts;
  Bundle bundle = MakeBundle(layout, kMegatron);
  bundle.name = "test-job";
  return bundle;
}

const Launcher& LauncherOf(const std::string& name) {
  return *std::ranges::find(Launchers(), name, &Launcher::name);
}

// Nodes h0 to h3; the stand-ins start train.sh as each launcher would, and train.sh says who is what.
class LaunchOrder : public testing::Test {
 protected:
  struct Job {
    std::string launcher, script;
    std::map<std::string, std::string> programs;
    std::string environment;
  };
  static auto AsPlaced() {
    return UnorderedElementsAre(Pair("h0", " 1 of h2"), Pair("h1", " 2 of h2"),
                                Pair("h2", " 0 of h2"), Pair("h3", " 3 of h2"));
  }

  struct Started {
    int status = 0;
    std::string log;
    std::map<std::string, std::string> said;  // by host
  };

  std::map<std::string, std::string> Run(const std::string& launcher, const std::string& script,
                                         const std::map<std::string, std::string>& programs,
                                         const std::string& environment) {
    const Started started = Start({launcher, script, programs, environment}, {});
    EXPECT_EQ(started.status, 0) << started.log;
    ExpectHostsChecked({launcher, script, programs, environment});
    return started.said;
  }

  // The order of a plan whose topology names hosts is compared with the launcher's.
  static void ExpectHostsChecked(const Job& job) {
    const Started same = Start(job, {"h0", "h1", "h2.cluster", "h3"});
    EXPECT_EQ(same.status, 0) << same.log;
    EXPECT_THAT(same.said, AsPlaced());
    const Started other = Start(job, {"h0", "h2", "h1", "h3"});
    EXPECT_NE(other.status, 0);
    EXPECT_THAT(other.said, testing::IsEmpty());
    EXPECT_THAT(other.log, AllOf(HasSubstr("node 1 is h1, in the plan it is h2"),
                                 HasSubstr("ORRERY_ANY_HOSTS=1")));
    Job anyway = job;
    anyway.environment = "ORRERY_ANY_HOSTS=1 " + job.environment;
    const Started forced = Start(anyway, {"h0", "h2", "h1", "h3"});
    EXPECT_EQ(forced.status, 0) << forced.log;
    EXPECT_THAT(forced.said, AsPlaced());
  }

  static Started Start(const Job& job, const std::vector<std::string>& named) {
    const auto& [launcher, script, programs, environment] = job;
    const Bundle bundle = Placed(named);
    const std::vector<std::string> paths =
        Write(LauncherOf(launcher).files(bundle, TargetFiles(bundle)));
    const fs::path folder = fs::path(paths.front()).parent_path();
    fs::create_directory(folder / "bin");
    for (const auto& [name, text] : programs)
      WriteProgram(folder / "bin" / name, "#!/bin/bash\n" + text);
    WriteProgram(folder / "train.sh",
                 "#!/bin/bash\necho \"$HOST ${NODE_RANK:-$((RANK / 8))} of $MASTER_ADDR\" >> "
                 "\"$(dirname \"$0\")/said\"\n");
    std::ofstream(folder / "hosts") << "h0 slots=8\nh1 slots=8\n# none\nh2 slots=8\nh3 slots=8\n";
    const std::string line =
        fmt::format("cd '{0}' && export PATH=\"$PWD/bin:$PATH\" {1} && bash {2} > log 2>&1",
                    folder.string(), environment, script);
    WriteProgram(folder / "go.sh", "#!/bin/bash\n" + line + "\n");
    Started started;
    started.status = std::system((folder / "go.sh").c_str());
    started.log = ReadAll((folder / "log").string());
    if (!fs::exists(folder / "said")) return started;
    std::istringstream lines(ReadAll((folder / "said").string()));
    for (std::string host, rest; lines >> host && std::getline(lines, rest);)
      started.said[host] = rest;
    return started;
  }
};

TEST_F(LaunchOrder, Torchrun) {
  EXPECT_THAT(
      Run("torchrun", "launch-torchrun.sh",
          {{"ssh", "shift 2; host=$1; shift; HOST=$host bash -c \"$*\"\n"}}, "HOSTFILE=hosts"),
      AsPlaced());
}

TEST_F(LaunchOrder, Slurm) {
  EXPECT_THAT(Run("slurm", "job.sbatch",
                  {{"scontrol", "printf 'h0\\nh1\\nh2\\nh3\\n'\n"},
                   {"srun",
                    "while [[ $1 == --* ]]; do shift; done\n"
                    "for node in 0 1 2 3; do HOST=h$node SLURM_NODEID=$node \"$@\"; done\n"}},
                  "SLURM_SUBMIT_DIR=\"$PWD\" SLURM_JOB_ID=7 SLURM_JOB_NODELIST='h[0-3]' "
                  "SLURM_JOB_NUM_NODES=4"),
              AsPlaced());
}

TEST_F(LaunchOrder, Pbs) {
  EXPECT_THAT(Run("pbs", "job.pbs", {{"pbsdsh", "node=$2; shift 3; HOST=h$node \"$@\"\n"}},
                  "PBS_O_WORKDIR=\"$PWD\" PBS_JOBID=7.here PBS_NODEFILE=\"$PWD/nodes\"; "
                  "printf 'h0\\nh1\\nh2\\nh3\\n' > nodes"),
              AsPlaced());
}

// Each node is started by itself and knows its own name alone.
TEST_F(LaunchOrder, TorchrunByHand) {
  const std::vector<std::string> hosts = {"h0", "h1", "h2", "h3"};
  const auto start = [&](const std::string& host, const std::string& rank) {
    return Start({"torchrun",
                  "launch-torchrun.sh",
                  {{"hostname", "echo " + host + "\n"}},
                  "HOST=" + host + " " + rank + " MASTER_ADDR=h2"},
                 hosts);
  };
  for (const char* rank : {"NODE_RANK=0", "PET_NODE_RANK=0", ""}) {
    EXPECT_EQ(start("h2.cluster", rank).status, 0) << rank;
    const Started other = start("h0", rank);
    EXPECT_NE(other.status, 0) << rank;
    EXPECT_THAT(other.log, HasSubstr("node 2 is h0, in the plan it is h2"));
  }
  EXPECT_EQ(start("h1", "NODE_RANK=2").status, 0);
  EXPECT_NE(start("h1", "NODE_RANK=1").status, 0);
}

TEST_F(LaunchOrder, WithoutAPlacementOrNamesNothingIsCompared) {
  for (const Launcher& launcher : Launchers()) {
    Bundle bundle = Placed();
    EXPECT_EQ(HostsCheck(bundle, "file"), "");
    bundle = Placed({"h0", "h1", "h2", "h3"});
    bundle.layout.strategy.placement = nullptr;
    for (const File& file : launcher.files(bundle, TargetFiles(bundle)))
      EXPECT_THAT(file.text, Not(HasSubstr("ORRERY_ANY_HOSTS"))) << file.name;
  }
}

// A program per node, ranks numbered through them.
TEST_F(LaunchOrder, Mpirun) {
  const char* const kMpirun =
      "rank=0\nwhile [ $# -gt 0 ]; do\n"
      "  case $1 in\n"
      "    --bind-to | -x) shift 2 ;;\n"
      "    -np) count=$2; shift 2 ;;\n"
      "    --host) host=${2%:*}; shift 2 ;;\n"
      "    :) shift ;;\n"
      "    *) for ((i = 0; i < count; ++i)); do HOST=$host OMPI_COMM_WORLD_RANK=$rank "
      "OMPI_COMM_WORLD_SIZE=32 OMPI_COMM_WORLD_LOCAL_RANK=$i OMPI_COMM_WORLD_LOCAL_SIZE=$count "
      "bash \"$1\"; rank=$((rank + 1)); done; shift ;;\n"
      "  esac\ndone\n";
  EXPECT_THAT(Run("mpirun", "launch-mpirun.sh", {{"mpirun", kMpirun}}, "HOSTFILE=hosts"),
              AsPlaced());
}

TEST(LaunchOrderInClouds, TheMainNodeIsThatOfTheFirstPlace) {
  const Bundle bundle = Placed();
  for (const File& file : LauncherOf("aws-batch").files(bundle, TargetFiles(bundle))) {
    if (file.name != "job-definition.json") continue;
    const auto job = nlohmann::json::parse(file.text);
    EXPECT_EQ(job["nodeProperties"]["mainNode"], 2);
    EXPECT_THAT(file.text, HasSubstr("1 2 0 3"));
  }
  for (const File& file : LauncherOf("kubernetes").files(bundle, TargetFiles(bundle))) {
    if (file.name != "job.yaml") continue;
    EXPECT_THAT(file.text, HasSubstr("value: test-job-2.test-job\n"));
    EXPECT_THAT(file.text,
                HasSubstr("places=(1 2 0 3); NODE_RANK=${places[$JOB_COMPLETION_INDEX]}"));
  }
}

TEST(LaunchOrderInClouds, NothingOfAPlacementIsMissing) {
  EXPECT_THAT(Placed().Missing(), testing::IsEmpty());
}

}  // namespace
}  // namespace orrery::exchange
