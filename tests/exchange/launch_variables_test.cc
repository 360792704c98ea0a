// SPDX-License-Identifier: Apache-2.0
// What a user exports before a job arrives in the environment of every rank on every node, for each target with each
// launcher. Stand-ins play the launchers: they pass on what the real ones do, and nothing else.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "model/base/yaml_tree.h"
#include "model/exchange/train_script.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::variables {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;

constexpr int kNodes = 2, kGpus = 2;
constexpr const char* kAwkward = "a b'c\"d\\e$f\rg\x1bh";  // what quoting may break

// Each rank leaves its environment in a file of its own.
constexpr const char* kRank = "env -0 > \"$SAID/$HOST.${RANK:-$1}\"\n";
const std::map<std::string, std::string> kPrograms = {
    {"rank", kRank},
    {"python3", kRank},  // one process per GPU: RANK is set
    {"torchrun",
     "while [ $# -gt 0 ]; do [ \"$1\" != --nproc-per-node ] || each=$2; shift; done\n"
     "for ((i = 0; i < each; ++i)); do rank \"$i\"; done\n"},
    {"accelerate",
     "while [ $# -gt 0 ]; do\n"
     "  [ \"$1\" != --num_processes ] || all=$2\n  [ \"$1\" != --num_machines ] || nodes=$2\n"
     "  shift\ndone\nfor ((i = 0; i < all / nodes; ++i)); do rank \"$i\"; done\n"},
    {"hostname", "echo h0\n"},
    // The environment of a login, with what a command says.
    {"ssh",
     "shift 2; host=$1; shift\nenv -i PATH=\"$PATH\" SAID=\"$SAID\" HOST=\"$host\" \"$@\"\n"},
    {"scontrol", "printf 'h0\\nh1\\n'\n"},
    {"srun",
     "[[ \" $* \" == *' --export=ALL '* ]] || exit 9\n"
     "while [[ $1 == --* ]]; do shift; done\n"
     "for node in 0 1; do HOST=h$node SLURM_NODEID=$node \"$@\"; done\n"},
    {"pbsdsh",
     "node=$2; shift 3\nenv -i PATH=\"$PATH\" SAID=\"$SAID\" HOME=\"$PWD/home\" HOST=\"h$node\" "
     "\"$@\"\n"},
    {"mpirun",
     "names=()\nwhile [[ $1 == -* ]]; do\n  case $1 in\n    -x) names+=(\"$2\") ;;\n"
     "    -np) all=$2 ;;\n  esac\n  shift 2\ndone\n"
     "each=$((all / 2)); rank=0\nfor host in h0 h1; do for ((i = 0; i < each; ++i)); do\n"
     "  given=()\n  for name in \"${names[@]}\"; do given+=(\"$name=${!name}\"); done\n"
     "  env -i \"${given[@]}\" SAID=\"$SAID\" HOST=$host OMPI_COMM_WORLD_RANK=$rank "
     "OMPI_COMM_WORLD_SIZE=$all OMPI_COMM_WORLD_LOCAL_RANK=$i OMPI_COMM_WORLD_LOCAL_SIZE=$each "
     "\"$@\"\n  rank=$((rank + 1))\ndone; done\n"},
    {"aws",
     "while [ $# -gt 0 ]; do [ \"$1\" != --node-overrides ] || printf %s \"$2\" > overrides; "
     "shift; "
     "done\n"},
    {"kubectl",
     "for word in \"$@\"; do\n"
     "  case $word in --from-literal=*) printf '%s\\0' \"${word#--from-literal=}\" >> literals ;; "
     "esac\ndone\n"}};

void WriteProgram(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/bash\n" << text;
  fs::permissions(path, fs::perms::owner_all);
}

// NAME=VALUE, each closed by a zero byte.
Variables Parsed(const std::string& text) {
  Variables all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    all[one.substr(0, one.find('='))] = one.substr(one.find('=') + 1);
    begin = end + 1;
  }
  return all;
}

std::string Replaced(std::string text, const std::string& old, const std::string& now) {
  for (std::size_t at = text.find(old); at != std::string::npos;
       at = text.find(old, at + now.size()))
    text.replace(at, old.size(), now);
  return text;
}

struct Way {
  Target target;
  std::string launcher;
};

class LaunchVariables : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    const Target target = GetParam().target;
    bundle_ = MakeBundle(
        CaseOf(Resolve({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2",
                        "--gpus-per-node", "2", "--framework", InfoOf(target).framework})),
        target);
    bundle_.name = "test-job";
    const auto& launcher = *std::ranges::find(Launchers(), GetParam().launcher, &Launcher::name);
    files_ = launcher.files(bundle_, TargetFiles(bundle_));
    folder_ = fs::path(Write(files_).front()).parent_path();
    for (const auto& [name, text] : kPrograms) WriteProgram(folder_ / "bin" / name, text);
    fs::create_directories(folder_ / "said");
    for (const File& file : files_) fs::permissions(folder_ / file.name, fs::perms::owner_all);
    // What train.sh looks for in the folders of programs.
    for (const char* name :
         {"pretrain_gpt.py", "scripts/training/run_recipe.py", "torchtitan/train.py"})
      WriteProgram(folder_ / "programs" / name, "");
    std::ofstream(folder_ / "hosts") << "h0 slots=2\nh1 slots=2\n";
    fs::create_directories(folder_ / "home");  // a login shell sets PATH anew
    std::ofstream(folder_ / "home/.bash_profile")
        << "PATH=\"" << (folder_ / "bin").string() << ":$PATH\"\n";
    std::ofstream(folder_ / "nodes") << "h0\nh1\n";
    for (const std::string& name : VariablesOf(target))
      wanted_[name] = name.ends_with("_PATH") ? (folder_ / "programs").string() : kAwkward;
    wanted_["NCCL_DEBUG"] = kAwkward;
    wanted_["MY_OWN"] = kAwkward;
    if (target == kTitan) wanted_.erase("PYTHONPATH");  // train.sh puts its own in front
  }

  std::string Exports() const {
    std::string text = "export ORRERY_PASS=MY_OWN";
    for (const auto& [name, value] : wanted_) text += " " + name + "=" + ShellWord(value);
    return text + "\n";
  }

  // In a clean environment with the stand-ins in front.
  void Shell(const std::string& text) {
    WriteProgram(folder_ / "go.sh",
                 fmt::format("cd '{0}' && export PATH=\"$PWD/bin:$PATH\" SAID=\"$PWD/said\"\n{1}",
                             folder_.string(), text));
    const std::string line =
        fmt::format("env -i PATH=\"$PATH\" {0}/go.sh > {0}/log 2>&1", folder_.string());
    ASSERT_EQ(std::system(line.c_str()), 0) << ReadAll((folder_ / "log").string());
  }

  // Each node of a job in the cloud starts `command` with these variables and with its own number.
  void Containers(const Variables& all, const std::string& command, const char* number) {
    std::string text;
    for (int node = 0; node < kNodes; ++node) {
      text += fmt::format("mkdir -p c{0} && env -i PATH=\"$PATH\" SAID=\"$SAID\" HOST=h{0} {1}={0}",
                          node, number);
      for (const auto& [name, value] : all) text += " " + name + "=" + ShellWord(value);
      text +=
          " bash -c " +
          ShellWord(Replaced(command, "/tmp/job", fmt::format("{}/c{}", folder_.string(), node))) +
          " || exit 1\n";
    }
    Shell(text);
  }

  void RunBatch() {
    Shell(Exports() + "JOB_QUEUE=q ./submit.sh");
    const auto container = nlohmann::json::parse(
        ReadAll((folder_ / "job-definition.json")
                    .string()))["nodeProperties"]["nodeRangeProperties"][0]["container"];
    const auto overrides = nlohmann::json::parse(ReadAll((folder_ / "overrides").string()));
    Variables all = {{"AWS_BATCH_JOB_NUM_NODES", "2"},
                     {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "0"},
                     {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.1"}};
    for (const auto& one : container["environment"]) all[one["name"]] = one["value"];
    for (const auto& one :
         overrides["nodePropertyOverrides"][0]["containerOverrides"]["environment"])
      all[one["name"]] = one["value"];
    Containers(all, container["command"][2], "AWS_BATCH_JOB_NODE_INDEX");
  }

  static const YamlTree& At(const YamlTree& tree, const std::string& key) {
    return *std::ranges::find(tree.members, key, &YamlTree::Member::key)->value;
  }

  void RunKubernetes() {
    Shell(Exports() + "./submit.sh");
    const std::string text = ReadAll((folder_ / "job.yaml").string());
    Diagnostics diagnostics;
    const auto job =
        ReadYaml(SourceOf("job.yaml", text.substr(text.rfind("---\n") + 4)), &diagnostics);
    ASSERT_TRUE(job != nullptr);
    const YamlTree& container =
        *At(At(At(At(*job, "spec"), "template"), "spec"), "containers").elements.front();
    EXPECT_EQ(At(At(*At(container, "envFrom").elements.front(), "configMapRef"), "name").text,
              "test-job-env");
    Variables all = Parsed(ReadAll((folder_ / "literals").string()));
    for (const auto& one : At(container, "env").elements)
      all[At(*one, "name").text] = At(*one, "value").text;
    Containers(all, Replaced(At(container, "command").elements[2]->text, "/job", folder_.string()),
               "JOB_COMPLETION_INDEX");
  }

  Bundle bundle_;
  std::vector<File> files_;
  fs::path folder_;
  Variables wanted_;
};

TEST_P(LaunchVariables, ArriveAtEveryRankOfEveryNode) {
  const std::string& launcher = GetParam().launcher;
  if (launcher == "torchrun") Shell(Exports() + "HOSTFILE=hosts ./launch-torchrun.sh");
  if (launcher == "mpirun") Shell(Exports() + "HOSTFILE=hosts ./launch-mpirun.sh");
  if (launcher == "slurm")
    Shell(Exports() +
          "export SLURM_SUBMIT_DIR=\"$PWD\" SLURM_JOB_ID=7 SLURM_JOB_NODELIST='h[0-1]' "
          "SLURM_JOB_NUM_NODES=2\n./job.sbatch");
  if (launcher == "pbs") {
    EXPECT_THAT(ReadAll((folder_ / "job.pbs").string()), testing::HasSubstr("#PBS -V\n"));
    Shell(Exports() +
          "export PBS_O_WORKDIR=\"$PWD\" PBS_JOBID=7.here PBS_NODEFILE=\"$PWD/nodes\"\n./job.pbs");
  }
  if (launcher == "aws-batch") RunBatch();
  if (launcher == "kubernetes") RunKubernetes();
  int ranks = 0;
  std::map<std::string, int> of_host;
  for (const auto& entry : fs::directory_iterator(folder_ / "said")) {
    const Variables got = Parsed(ReadAll(entry.path().string()));
    ++ranks;
    ++of_host[entry.path().stem().string()];
    for (const auto& [name, value] : wanted_) {
      const auto at = got.find(name);
      EXPECT_TRUE(at != got.end()) << entry.path().filename() << " lacks " << name;
      if (at != got.end()) {
        EXPECT_EQ(at->second, value) << entry.path().filename() << " " << name;
      }
    }
  }
  EXPECT_EQ(ranks, kNodes * kGpus) << ReadAll((folder_ / "log").string());
  EXPECT_EQ(of_host.size(), kNodes);
}

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const TargetInfo& target : Targets()) {
    for (const Launcher& launcher : Launchers()) ways.push_back({target.target, launcher.name});
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Every, LaunchVariables, testing::ValuesIn(Ways()), [](const auto& way) {
  std::string name = std::string(InfoOf(way.param.target).name) + "_" + way.param.launcher;
  std::ranges::replace(name, '-', '_');
  return name;
});

// A variable that train.sh reads and no list names would stay behind.
TEST(LaunchVariablesOfScripts, EveryOneIsListed) {
  const std::vector<std::string> of_launchers = {"NNODES",      "GPUS_PER_NODE", "NODE_RANK",
                                                 "MASTER_ADDR", "MASTER_PORT",   "RANK"};
  const std::regex read("\\$\\{([A-Z_]+):[-?]");
  for (const TargetInfo& target : Targets()) {
    const Bundle bundle =
        MakeBundle(CaseOf(Resolve({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "2",
                                   "--framework", target.framework})),
                   target.target);
    const std::vector<std::string> listed = VariablesOf(target.target);
    for (const File& file : TargetFiles(bundle)) {
      if (file.name != "train.sh") continue;
      for (std::sregex_iterator at(file.text.begin(), file.text.end(), read), end; at != end;
           ++at) {
        const std::string name = (*at)[1];
        EXPECT_TRUE(std::ranges::find(listed, name) != listed.end() ||
                    std::ranges::find(of_launchers, name) != of_launchers.end())
            << target.name << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace orrery::exchange::variables
