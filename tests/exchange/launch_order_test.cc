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
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

void WriteProgram(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
  fs::permissions(path, fs::perms::owner_all);
}

Bundle Placed() {
  Bundle bundle = MakeBundle(
      CaseOf(Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--tp", "8",
                      "--placement", "tp-cp-dp-pp:2,0,1,3", "--framework", "megatron"})),
      kMegatron);
  bundle.name = "test-job";
  return bundle;
}

const Launcher& LauncherOf(const std::string& name) {
  return *std::ranges::find(Launchers(), name, &Launcher::name);
}

// Nodes h0 to h3; the stand-ins start train.sh as each launcher would, and train.sh says who is what.
class LaunchOrder : public testing::Test {
 protected:
  std::map<std::string, std::string> Run(const std::string& launcher, const std::string& script,
                                         const std::map<std::string, std::string>& programs,
                                         const std::string& environment) {
    const Bundle bundle = Placed();
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
    EXPECT_EQ(std::system((folder / "go.sh").c_str()), 0) << ReadAll((folder / "log").string());
    std::map<std::string, std::string> said;
    std::istringstream lines(ReadAll((folder / "said").string()));
    for (std::string host, rest; lines >> host && std::getline(lines, rest);) said[host] = rest;
    return said;
  }
  static auto AsPlaced() {
    return UnorderedElementsAre(Pair("h0", " 1 of h2"), Pair("h1", " 2 of h2"),
                                Pair("h2", " 0 of h2"), Pair("h3", " 3 of h2"));
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
