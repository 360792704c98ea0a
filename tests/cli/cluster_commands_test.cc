// SPDX-License-Identifier: Apache-2.0
// discover, topo with failed links, check and watch as a user runs them: output, files, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

std::string Sample(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/discover/data/" + name;
}

class ClusterCommands : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // A prediction to watch against.
  std::string Predicted() const {
    const Outcome made =
        RunPlan({"predict", "--model", "gpt2-small", "--topology", "aws-p4d", "--nodes", "1",
                 "--global-batch", "64", "--json", Path("plan.json")});
    EXPECT_EQ(made.code, 0) << made.err;
    return Path("plan.json");
  }

  std::string Log(double milliseconds) const {
    std::string text;
    for (int step = 1; step <= 6; ++step)
      text += " iteration " + std::to_string(step) +
              "/ 100 | elapsed time per iteration (ms): " + std::to_string(milliseconds) +
              " | global batch size: 64 | lm loss: 1.0E+00 |\n";
    WriteText(Path("train.log"), text);
    return Path("train.log");
  }

  std::string folder_ = ScratchFolder();
};

// Whatever asks for another file: it says what this one is, and which command reads it.
TEST_F(ClusterCommands, AFileOfAClusterGivenToAnotherCommandNamesDiscover) {
  const std::string plan = Predicted(), log = Log(1000);
  for (const char* sample : {"topo-m.txt", "ibstat.txt", "nccl-log.txt", "topology.conf",
                             "hwloc.xml", "aws-topology.json", "nodes.txt"}) {
    const std::string file = Sample(sample);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"predict", "--topology", "aws-p4d", "--model", file},
          {"show", "--model", file},
          {"predict", "--model", "gpt2-small", "--topology", file},
          {"run", file},
          {"run", "--model", "linear-20-1", "--hostfile", file},
          {"launch", "--nodes", "2", "--hosts", file},
          {"validate", file},
          {"calibrate", file, "--topology", "aws-p4d"},
          {"open", file},
          {"diff", file, plan},
          {"sweep", file},
          {"simulate", "--scenario", file},
          {"bench", "--simulate", "--from", file},
          {"bench", "all_reduce", "--simulate", "--topology", "aws-p4d", "--gpu", file},
          {"bench", "all_reduce", "--simulate", "--topology", "aws-p4d", "--log", file},
          {"provision", "--model", "gpt2-small", "--tokens", "1e9", "--offers", file},
          {"predict", "--model", "gpt2-small", "--topology", "aws-p4d", "--framework", file},
          {"predict", "--model", "gpt2-small", "--topology", "aws-p4d", "--collectives", file},
          {"watch", log, "--against", file},
          {"watch", file, "--once", "--against", plan}}) {
      const Outcome outcome = RunPlan(words);
      EXPECT_EQ(outcome.code, 2) << words[0] << " " << sample;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("this is "), HasSubstr("plan discover ")))
          << words[0] << " " << words[1] << " " << sample;
    }
  }
  // By a bare name, and on one line.
  for (const char* words :
       {"provision --model gpt2-small --tokens 1e9 --offers nodes.txt", "validate aws.json"}) {
    const std::string here = Path("bare");
    const Outcome outcome = RunShell(
        "mkdir -p " + here + "; cd " + here + "; cp " + Sample("nodes.txt") + " .; tr -d '\\n' < " +
        Sample("aws-topology.json") + " > aws.json; \"$PLAN\" " + words + " 2>&1");
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("this is "), HasSubstr("plan discover "))) << words;
  }
}

TEST_F(ClusterCommands, AHostfileGivenToAnotherCommandNamesWhatStartsOnIt) {
  WriteText(Path("hosts"), "n1 slots=8\nn2 slots=8\n");
  const Outcome outcome =
      RunPlan({"predict", "--model", "gpt2-small", "--topology", Path("hosts")});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("this is a hostfile"), HasSubstr("plan discover "),
                                 HasSubstr("plan run --hostfile")));
  // To those two it is the right file, whatever is wrong in it.
  WriteText(Path("bad"), "n1 slots=8\nn2 slots=0\n");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "--model", "linear-20-1", "--hostfile", Path("bad")},
        {"launch", "--index", "0", "--hosts", Path("bad")}}) {
    const Outcome refused = RunPlan(words);
    EXPECT_EQ(refused.code, 2) << words[0];
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr(":2:1: error: 'slots=0'"), Not(HasSubstr("plan discover"))))
        << words[0];
  }
}

TEST_F(ClusterCommands, AJobGivenToAnotherCommandNamesFrom) {
  WriteText(Path("job.sh"), "#!/bin/bash\ntorchrun pretrain_gpt.py --num-layers 24\n");
  WriteText(Path("job.sbatch"), "#SBATCH -N 4\nmodule load cuda\n");
  WriteText(Path("plain.sh"), "TP=4\n  srun python pretrain_gpt.py --num-layers 24\n");
  WriteText(Path("ds.json"), R"({"train_batch_size": 8, "zero_optimization": {"stage": 1}})");
  WriteText(Path("plan.json"), "{\n  \"schema\": \"orrery.export/1\"\n}\n");
  for (const char* name : {"job.sh", "job.sbatch", "plain.sh", "ds.json", "plan.json"}) {
    const std::string file = Path(name);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"discover", file},
          {"topo", file},
          {"predict", "--model", "gpt2-small", "--topology", file}}) {
      const Outcome outcome = RunPlan(words);
      EXPECT_EQ(outcome.code, 2) << words[0] << " " << name;
      EXPECT_THAT(outcome.err, HasSubstr("plan predict --from " + file)) << words[0] << " " << name;
    }
  }
}

TEST_F(ClusterCommands, NotesDoNotHoldControlCharactersOfPaths) {
  const std::string folder = Path("out-a\x1b]0;pwn\x07");
  std::filesystem::create_directories(folder);
  WriteText(folder + "/train.sh",
            "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py --num-layers 24 --hidden-size "
            "1024 --num-attention-heads 16 --seq-length 1024 --micro-batch-size 1 "
            "--global-batch-size 8 $MORE\n");
  const Outcome outcome =
      RunPlan({"predict", "--topology", "aws-p5", "--from", folder + "/train.sh"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("$MORE"));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(outcome.out.find('\x07'), std::string::npos);
}

// In every program, and before it looks at anything else that is wrong.
TEST_F(ClusterCommands, AFolderThatIsMissingIsNamedBeforeTheWork) {
  const std::string file = Path("missing/folder/file");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"predict", "--model", "no-model", "--json", file},
        {"show", "--model", "no-model", "--json", file},
        {"--model", "no-model", "--html", file},
        {"sweep", "/no/such/study", "--out", file},
        {"discover", "/no/such/file", "--out", file},
        {"simulate", "--model", "no-model", "--trace", file},
        {"run", "--model", "linear-20-1", "--comm", "local", "--steps", "1", "--trace", file},
        {"run", "--model", "linear-20-1", "--comm", "local", "--steps", "1", "--json", file},
        {"validate", "/no/such/runs.csv", "--accuracy", file},
        {"calibrate", "/no/such/log", "--residuals", file},
        {"bench", "all_reduce", "--simulate", "--topology", "no-topology", "--json", file},
        {"bench", "all_reduce", "--comm", "local", "--json", file},
        {"bench", "gemm", "--output", file},
        {"check", "--json", file},
        {"launch", "--nodes", "2", "--out", file},
        {"topo", "no-topology", "--json", file}}) {
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 2) << words[0];
    EXPECT_EQ(outcome.out, "") << words[0];
    EXPECT_THAT(outcome.err, HasSubstr("cannot write '" + file + "': there is no folder '" +
                                       Path("missing/folder") + "'"))
        << words[0];
    // Alone: what else is wrong would be found by the work. Nodes that launch meet behind all flags.
    if (words[0] != "launch") {
      EXPECT_EQ(outcome.err.find("error: "), outcome.err.rfind("error: ")) << words[0];
    }
  }
  // Folders are made.
  WriteText(Path("file"), "x");
  const Outcome under =
      RunPlan({"export", "--to", "megatron", "--model", "no-model", "--out", Path("file/folder")});
  EXPECT_THAT(under.err, HasSubstr("cannot write '" + Path("file/folder") + "'"));
  const Outcome made = RunPlan({"export", "--to", "ddp", "--model", "gpt2-small", "--topology",
                                "aws-p4d", "--nodes", "1", "--out", Path("new/job")});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(ReadText(Path("new/job/train.sh")), HasSubstr("torchrun"));
  EXPECT_THAT(made.out, AllOf(HasSubstr("Layout: tp 1, pp 1, dp 8"), HasSubstr("step time ")));
}

// One machine stands for as many as there are; an answer for more of them says how.
TEST_F(ClusterCommands, OneMachineStandsForMoreLikeIt) {
  WriteText(Path("topo.txt"),
            "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
            "GPU0\t X \tNV18\t0-63\t0\nGPU1\tNV18\t X \t0-63\t0\n");
  const auto plan_on = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"discover",       Path("topo.txt"), "--gpu",
                                      "h100-sxm5-80gb", "--out",          Path("mine.yaml")};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(RunPlan(words).code, 0);
    return RunPlan({"predict", "--model", "gpt2-medium", "--topology", Path("mine.yaml"), "--nodes",
                    "4", "--global-batch", "64"});
  };
  const Outcome one = plan_on({});
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, AllOf(HasSubstr("which has one"), HasSubstr("plan discover --nodes N")));
  EXPECT_EQ(plan_on({"--nodes", "4"}).code, 0);
}

TEST_F(ClusterCommands, WhatIsDiscoveredIsPlannedWith) {
  const Outcome made = RunPlan(
      {"discover", Sample("topology.conf"), Sample("nodes.txt"), "--out", Path("mine.yaml")});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("5 nodes x 8 h100-sxm5-80gb"), HasSubstr("assumed")));
  const Outcome predicted = RunPlan({"predict", "--model", "gpt2-medium", "--topology",
                                     Path("mine.yaml"), "--nodes", "4", "--global-batch", "64"});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  const Outcome typo = RunPlan({"topo", Path("mine.yaml"), "--failed", "leaf1-spines"});
  EXPECT_THAT(typo.err, HasSubstr("hint: did you mean 'leaf1-spine'")) << "each link once";
  EXPECT_EQ(typo.err.find("'leaf1-spine'"), typo.err.rfind("'leaf1-spine'"));
  const Outcome broken = RunPlan({"topo", Path("mine.yaml"), "--failed", "leaf1-spine", "--json"});
  ASSERT_EQ(broken.code, 0) << broken.err;
  const Json answer = Json::parse(broken.out);
  EXPECT_LT(answer["bisection"]["bytes_per_s"],
            answer["bisection_without_failures"]["bytes_per_s"]);
  EXPECT_EQ(answer["failed"].size(), 2u);
}

// In the summary, in the file and in JSON.
TEST_F(ClusterCommands, NicsThatAreLeftOutAreNamed) {
  WriteText(Path("lspci.txt"),
            "17:00.0 3D controller [0302]: NVIDIA H100 [10de:2330]\n"
            "18:00.0 Infiniband controller [0207]: Mellanox ConnectX-7 [15b3:1021]\n"
            "2b:00.0 Ethernet controller [0200]: Intel I350 [8086:1521]\n");
  const Outcome made = RunPlan({"discover", Path("lspci.txt"), "--out", Path("mine.yaml")});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string said = "ignored 2b:00.0: Ethernet without RDMA next to 1 NIC of infiniband";
  EXPECT_THAT(made.out, HasSubstr(said));
  EXPECT_THAT(ReadText(Path("mine.yaml")), HasSubstr(said));
  const Json json = Json::parse(RunPlan({"discover", Path("lspci.txt"), "--json"}).out);
  ASSERT_EQ(json["left_out"].size(), 1u);
  EXPECT_EQ(json["left_out"][0]["name"], "2b:00.0");
  EXPECT_EQ(json["left_out"][0]["why"], "Ethernet without RDMA next to 1 NIC of infiniband");
  EXPECT_EQ(json["left_out"][0]["source"], "lspci.txt:3");
}

// Every other host is on the other leaf: the hostfile numbers them, not the switches.
TEST_F(ClusterCommands, NodesAreNumberedAsTheHostfileHasThem) {
  WriteText(Path("topology.conf"),
            "SwitchName=leaf0 Nodes=node0,node2\nSwitchName=leaf1 Nodes=node1,node3\n"
            "SwitchName=spine Switches=leaf[0-1]\n");
  WriteText(Path("hosts"), "node0 slots=8\nnode1 slots=8\nnode2 slots=8\nnode3 slots=8\n");
  const Outcome made = RunPlan({"discover", Path("topology.conf"), Path("hosts"), "--gpu",
                                "h100-sxm5-80gb", "--out", Path("mine.yaml")});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("nodes 0 to 3 are node0, node1, node2, node3, "));
  const Outcome topo = RunPlan({"topo", Path("mine.yaml"), "--failed", "node1-leaf1"});
  ASSERT_EQ(topo.code, 0) << topo.err;
  EXPECT_THAT(topo.out, AllOf(HasSubstr("leaf1: node1 .. node3 (2 hosts, nodes 1,3)"),
                              HasSubstr("failed links: n1.nic0 -> leaf1, leaf1 -> n1.nic0"),
                              HasSubstr("node1 to node0: cut off")));
  const Json json = Json::parse(RunPlan({"topo", Path("mine.yaml"), "--json"}).out);
  EXPECT_EQ(json["hosts"], Json({"node0", "node1", "node2", "node3"}));
  EXPECT_THAT(json["numbering"].get<std::string>(), HasSubstr("nodes 0 to 3 are node0"));
  const Outcome slow =
      RunPlan({"predict", "--model", "gpt2-small", "--topology", Path("mine.yaml"), "--nodes", "4",
               "--global-batch", "64", "--dp", "32", "--slow-node", "1:2"});
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_THAT(slow.out, HasSubstr("node 1 (node1): kernels take 2 times as long"));
  const Outcome exported =
      RunPlan({"export", "--to", "megatron", "--launcher", "torchrun", "--model", "gpt2-small",
               "--topology", Path("mine.yaml"), "--nodes", "4", "--global-batch", "64", "--dp",
               "32", "--placement", "0,2,1,3", "--out", Path("job")});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(ReadText(Path("job/launch-torchrun.sh")),
              AllOf(HasSubstr("# Hosts: nodes 0 to 3 are node0, node1, node2, node3, "),
                    HasSubstr("PLACES=\"0 2 1 3\"")));
}

TEST_F(ClusterCommands, WrongInputIsExplained) {
  const std::string dump = Sample("bridges.xml");
  for (const auto& [arguments, said] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"topo", dump}, "plan discover"},
           {{"predict", "--model", "gpt2-small", "--topology", dump}, "a topology dump of NCCL"},
           {{"discover", "/no/such/file"}, "/no/such/file"},
           {{"discover", Sample("hosts"), "--nodes", "0"}, "--nodes"},
           {{"discover", Sample("hosts"), "--gpu", "h100"},
            "error: no GPU 'h100'\n  plan discover"},
           {{"discover", Sample("hosts"), "--out", "/no/such/folder/x.yaml"},
            "there is no folder '/no/such/folder'"},
           {{"topo", "aws-p4d", "--failed", "n0-n1"}, "no link 'n0-n1'"},
           {{"watch"}, "which log?"},
           {{"watch", dump}, "--against plan.json"},
           {{"watch", dump, "--against", dump, "--once"},
            "a topology dump of NCCL, not a prediction"},
           {{"watch", dump, "--against", dump, "--patience", "0"}, "--patience"},
           {{"check", "--tolerance", "2"}, "'2' is no share"},
           {{"check", "--topology", "aws-p4"}, "aws-p4d"},
           {{"check", "--disk", "/no/such/folder"}, "is no folder"}}) {
    const Outcome outcome = RunPlan(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments[0] << ": " << outcome.err << outcome.out;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(said));
  }
}

TEST_F(ClusterCommands, AJobOutsideItsIntervalEndsWithFour) {
  const std::string plan = Predicted();
  const double step = Json::parse(ReadText(plan))["prediction"]["step_time_s"].get<double>() * 1e3;
  const Outcome fine = RunPlan({"watch", Log(step), "--against", plan, "--once"});
  EXPECT_EQ(fine.code, 0) << fine.out << fine.err;
  EXPECT_THAT(fine.out, HasSubstr("inside"));
  const Outcome slow = RunPlan({"watch", Log(2 * step), "--against", plan, "--once", "--json"});
  EXPECT_EQ(slow.code, 4) << slow.out << slow.err;
  const Json event = Json::parse(slow.out.substr(0, slow.out.find('\n')));
  EXPECT_EQ(event["since_step"], 2);
  EXPECT_EQ(event["side"], "slower");
  // Following: the log is there, does not grow, and is outside.
  EXPECT_EQ(RunPlan({"watch", Path("train.log"), "--against", plan, "--stop"}).code, 4);
  EXPECT_EQ(RunPlan({"watch", Log(step), "--against", plan, "--idle", "1s"}).code, 0);
  // A log that has yet to come is waited for; one that never comes, or is no text, is an error.
  const Outcome never = RunPlan({"watch", Path("later.log"), "--against", plan, "--idle", "1s"});
  EXPECT_EQ(never.code, 2);
  EXPECT_THAT(never.err, HasSubstr("is not there yet: waiting for it"));
  EXPECT_THAT(never.err, HasSubstr("it never came"));
  EXPECT_EQ(RunPlan({"watch", Path("no/later.log"), "--against", plan}).code, 2);
  std::ofstream(Path("binary.log")) << "an executable" << '\0' << "perhaps";
  const Outcome binary = RunPlan({"watch", Path("binary.log"), "--against", plan});
  EXPECT_EQ(binary.code, 2);
  EXPECT_THAT(binary.err, HasSubstr("NUL bytes"));
}

TEST_F(ClusterCommands, ANodeIsChecked) {
  const Outcome healthy = RunPlan({"check", "--json"});
  ASSERT_EQ(healthy.code, 0) << healthy.out << healthy.err;
  const Json answer = Json::parse(healthy.out);
  EXPECT_EQ(answer["schema"], "orrery.check/1");
  EXPECT_GT(answer["nodes"][0]["memory_bytes_per_s"], 0);
  const Outcome slow = RunPlan({"check", "--compute", "1000TFLOP/s"});
  EXPECT_EQ(slow.code, 4) << slow.out << slow.err;
  EXPECT_THAT(slow.out, AllOf(HasSubstr("outside"), HasSubstr("bad: ")));
}

// NCCL_ALGO says Tree and NVLSTree; PAT and CollNet have no price.
TEST_F(ClusterCommands, BenchTakesAlgorithmsAsNcclSpellsThem) {
  const auto bench = [](const std::string& algorithm) {
    return RunPlan({"bench", "--simulate", "all_reduce", "-b", "1M", "-e", "1M", "--topology",
                    "dgx-h100", "--nodes", "2", "--algorithm", algorithm});
  };
  EXPECT_EQ(bench("NVLSTree").out, bench("nvls-tree").out);
  EXPECT_EQ(bench("TREE").code, 0);
  for (const char* none : {"PAT", "collnet", "CollNetDirect"}) {
    const Outcome refused = bench(none);
    EXPECT_EQ(refused.code, 2) << none;
    EXPECT_THAT(refused.err, HasSubstr("has no price here")) << none;
  }
  const Outcome gather =
      RunPlan({"bench", "--simulate", "reduce_scatter", "-b", "1M", "-e", "1M", "--topology",
               "dgx-h100", "--nodes", "4", "--gpus-per-node", "1"});
  EXPECT_THAT(gather.out, AllOf(HasSubstr("chooses: pat"), HasSubstr("have no price here")));
}
}  // namespace
}  // namespace orrery
