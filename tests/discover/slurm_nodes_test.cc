// SPDX-License-Identifier: Apache-2.0
// What `scontrol show node` says of GPUs: short names, slices, nodes without any. What is wrong with a tree of switches.
#include <fmt/format.h>

#include <algorithm>

#include "model/hardware/cluster_file.h"
#include "model/hardware/summary.h"
#include "tests/discover/testing.h"

namespace orrery::discover {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const char kTwoH100Pcie[] =
    "<system version=\"1\"><cpu numaid=\"0\">\n"
    "<pci busid=\"0000:01:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2331\" "
    "link_speed=\"\" "
    "link_width=\"0\"><gpu dev=\"0\" sm=\"90\"/></pci>\n"
    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2331\" "
    "link_speed=\"\" "
    "link_width=\"0\"><gpu dev=\"1\" sm=\"90\"/></pci></cpu></system>";

SourcePtr SlurmNodes(const std::string& gres) {
  return Made("nodes.txt", "NodeName=n[1-2] Arch=x86_64\n   Gres=" + gres + "\n   State=IDLE\n");
}

TEST(Discover, SaysWhatAShortNameOfAGpuMayMean) {
  const Discovered a100 = Discover({SlurmNodes("gpu:a100:8(S:0-1)")});
  EXPECT_EQ(a100.spec.gpu, "a100-sxm4-40gb");
  EXPECT_THAT(a100.assumed,
              Contains(HasSubstr("gpu: 'a100' (nodes.txt:1) may also be a100-sxm4-80gb or "
                                 "a100-pcie-40gb or a100-pcie-80gb: --gpu NAME")));
  EXPECT_EQ(Discover({SlurmNodes("gpu:nvidia_a100-sxm4-80gb:4")}).spec.gpu, "a100-sxm4-80gb");
  EXPECT_EQ(Discover({SlurmNodes("gpu:a100_80g:no_consume:4")}).spec.gpu, "a100-sxm4-80gb");
  EXPECT_EQ(Discover({SlurmNodes("gpu:Tesla_V100-PCIE-16GB:2")}).spec.gpu, "v100-pcie-16gb");
  EXPECT_EQ(Discover({SlurmNodes("gpu:nvidia_h100_80gb_hbm3:8")}).spec.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(Discover({SlurmNodes("gpu:rtx_3090:8")}).spec.gpu, "rtx-3090");
  EXPECT_EQ(Discover({SlurmNodes("gpu:rtx3090:8")}).spec.gpu, "rtx-3090");
  EXPECT_EQ(Discover({SlurmNodes("gpu:a10:8")}).spec.gpu, kUnknownGpu);
}

TEST(Discover, DecidesAShortNameByOtherSources) {
  const SourcePtr nodes = SlurmNodes("gpu:h100:2");
  const SourcePtr xml = Made("a.xml", kTwoH100Pcie);
  const Discovered pcie = Discover({nodes, xml});
  EXPECT_EQ(pcie.spec.gpu, "h100-pcie-80gb");
  EXPECT_THAT(pcie.yaml, HasSubstr("gpu: h100-pcie-80gb  # a.xml"));
  EXPECT_EQ(Discover({nodes}, {"", "h100-nvl-94gb", std::nullopt}).spec.gpu, "h100-nvl-94gb");
  EXPECT_THAT(ErrorOf({nodes}, {"", "a100-sxm4-80gb", std::nullopt}),
              AllOf(HasSubstr("nodes.txt:1"), HasSubstr("'h100' here, but --gpu says")));
  EXPECT_THAT(ErrorOf({SlurmNodes("gpu:a100:2"), xml}),
              HasSubstr("the GPU is 'a100' here, but a.xml:2 says h100-pcie-80gb"));
  EXPECT_THAT(ErrorOf({SlurmNodes("gpu:a100_1g.5gb:7")}), HasSubstr("slices of GPUs (MIG)"));
}

TEST(Discover, LeavesOutSlicesNextToWholeGpus) {
  for (const char* gres : {"gpu:a100:4,gpu:1g.10gb:7,shard:8", "gpu:a100_1g.10gb:7,gpu:a100:4"}) {
    const Discovered made = Discover({SlurmNodes(gres)});
    EXPECT_EQ(made.spec.node.gpus, 4) << gres;
    EXPECT_THAT(made.notes, Contains(HasSubstr("ignored 7 slices of GPUs (MIG) of type '")));
  }
}

TEST(Discover, LeavesOutNodesWithoutGpus) {
  const Discovered made =
      Discover({Made("t.conf",
                     "SwitchName=a Nodes=n[1-2],login\nSwitchName=b Nodes=c[1-3]\n"
                     "SwitchName=top Switches=a,b\n"),
                Made("nodes.txt",
                     "NodeName=n1 Arch=x86_64\n Gres=gpu:h100:8\nNodeName=n2 Arch=x86_64\n"
                     " Gres=gpu:h100:8\nNodeName=login Arch=x86_64\n Gres=(null)\n"
                     "NodeName=c[1-3] Arch=x86_64\n Gres=craynetwork:4\n")});
  EXPECT_EQ(made.spec.nodes, 2);
  EXPECT_THAT(made.spec.fabric.hosts, ElementsAre("n1", "n2"));
  EXPECT_THAT(made.notes, Contains(HasSubstr("ignored 4 nodes without GPUs, such as c1")));
}

TEST(Discover, LeavesOutNodesWithOtherGpusThanMost) {
  const Discovered made = Discover(
      {Made("t.conf",
            "SwitchName=a Nodes=n[1-3],odd\nSwitchName=b Nodes=c1\nSwitchName=top Switches=a,b\n"),
       Made("nodes.txt",
            "NodeName=odd Arch=x86_64 Gres=gpu:h100:4(S:0)\nNodeName=n1 Arch=x86_64 "
            "Gres=gpu:h100:8(S:0-1)\nNodeName=n[2-3] Arch=x86_64 Gres=gpu:h100:8\n"
            "NodeName=c1 Arch=x86_64 Gres=(null)\n")});
  EXPECT_EQ(made.spec.node.gpus, 8);
  EXPECT_THAT(made.spec.fabric.hosts, ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(made.notes, Contains(HasSubstr("ignored a node whose GPUs differ from those of most "
                                             "nodes: odd has gpu:h100:4; run plan discover")));
  EXPECT_THAT(made.notes, Contains(HasSubstr("ignored c1: it has no GPUs")));
  // As many of each: nobody can tell which of them is the cluster.
  EXPECT_THAT(ErrorOf({Made("n.txt", "NodeName=a Gres=gpu:h100:4\nNodeName=b Gres=gpu:h100:8\n")}),
              AllOf(HasSubstr("n.txt:2"), HasSubstr("8 GPUs in a node here")));
}

// Down, drained or silent: no job gets them. Nodes that save power start when one asks.
TEST(Discover, LeavesOutNodesWhereSlurmStartsNoJob) {
  const std::string text =
      "NodeName=a1 Gres=gpu:h100:8\n   State=IDLE\n"
      "NodeName=a2 Gres=gpu:h100:8\n   State=IDLE+DRAIN\n   Reason=Xid 79 on GPU 3 "
      "[root@2026-03-01T10:00:00]\n"
      "NodeName=a3 Gres=gpu:h100:8\n   State=IDLE+CLOUD+POWERED_DOWN~\n"
      "NodeName=a4 Gres=gpu:h100:8\n   State=DOWN*\n   Reason=Not responding [slurm@x]\n"
      "NodeName=a5 Gres=gpu:h100:8\n   State=MIXED*\n";
  const Discovered made = Discover({Made("nodes.txt", text)});
  EXPECT_EQ(made.spec.nodes, 2);
  EXPECT_THAT(made.notes,
              testing::IsSupersetOf(
                  {"ignored a2, where Slurm starts no job: IDLE+DRAIN: Xid 79 on GPU 3 "
                   "(nodes.txt:3)",
                   "ignored a4, where Slurm starts no job: DOWN*: Not responding (nodes.txt:8)",
                   "ignored a5, where Slurm starts no job: MIXED* (nodes.txt:11)"}));
  for (const char* state :
       {"FUTURE", "UNKNOWN", "INVALID_REG", "IDLE+INVALID_REG", "IDLE+MAINT+RESERVED"}) {
    const Discovered other =
        Discover({Made("nodes.txt",
                       "NodeName=a1 Gres=gpu:h100:8 State=IDLE\nNodeName=a[2-5] Gres=gpu:h100:8 "
                       "State=" +
                           std::string(state) + "\n")});
    EXPECT_EQ(other.spec.nodes, 1) << state;
    EXPECT_THAT(other.notes, Contains(HasSubstr("ignored a2, where Slurm starts no job: " +
                                                std::string(state))));
  }
  // A hostfile is what the job gets; a cluster that is all drained is still that cluster.
  const Discovered listed =
      Discover({Made("hosts", "a1 slots=8\na2 slots=8\n"), Made("nodes.txt", text)});
  EXPECT_THAT(
      listed.notes,
      Contains("a2 stays, as a hostfile lists it: IDLE+DRAIN: Xid 79 on GPU 3 (nodes.txt:3)"));
  EXPECT_THAT(listed.yaml, HasSubstr("nodes: 3  # hosts:1, nodes.txt:6"));
  const Discovered drained =
      Discover({Made("nodes.txt", "NodeName=a[1-4] Gres=gpu:h100:8\n   State=IDLE+DRAIN\n")});
  EXPECT_EQ(drained.spec.nodes, 4);
}

// One that a job gets is not passed over because it is of another kind.
TEST(Discover, ListedNodesOfOtherGpusAreRefusedAtTheirLine) {
  try {
    Discover({Made("hosts", "a1\na2\na3\n"),
              Made("nodes.txt", "NodeName=a[1-2] Gres=gpu:h100:8\nNodeName=a3 Gres=gpu:h100:4\n")});
    FAIL() << "taken";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("hosts:3:1"), HasSubstr("a3 has gpu:h100:4, other nodes 8 GPUs")));
  }
}

TEST(Discover, ReadsRangesInHostfiles) {
  const Discovered made =
      Discover({Made("hosts", "# two racks\nnode[01-03,7] slots=8\ngpu-b[1-2]:8\n"),
                Made("nodes.txt", "NodeName=node01 Gres=gpu:h100:8\n")});
  EXPECT_EQ(made.spec.nodes, 6);
  EXPECT_THAT(ErrorOf({Made("hosts", "node[3-1] slots=8\n")}), HasSubstr("hosts:1"));
}

// The last line is cut, and two processes wrote into one line.
TEST(Discover, TakesNothingOfPartsOfLinesInALogOfNccl) {
  const std::string whole =
      "a1:10:20 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
      "a1:10:20 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
      "a2:11:21 [0] NCCL INFO comm 0x2 rank 8 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL "
      "0\n";
  const auto nodes = [&](const std::string& more) {
    const Discovered made =
        Discover({Made("x.log", whole + more)}, {"", "h100-sxm5-80gb", std::nullopt});
    return fmt::format("{} x {}", made.spec.nodes, made.spec.node.gpus);
  };
  EXPECT_EQ(nodes(""), "2 x 8");
  EXPECT_EQ(nodes("a2:11:22 [1] NCCL INFO comm 0x3 rank 9 nRanks 16 nNodes 1"), "2 x 8");
  EXPECT_EQ(nodes("a1:10:2a2:11:22 [1] NCCL INFO comm 0x3 rank 9 nRanks 16 nNodes 16\n"), "2 x 8");
  EXPECT_EQ(nodes("a2:11:22 [1] NCCL INFO comm 0x3 rank 9 nRanks 1a1:10:25 [5] NCCL INFO rank 5 "
                  "nRanks 16 nNodes 4\n"),
            "2 x 8");
}

TEST(Discover, SaysWhatIsWrongWithRangesOfHosts) {
  EXPECT_THAT(ErrorOf({Made("hosts", "a\nnode[] slots=8\n")}),
              AllOf(HasSubstr("hosts:2"), HasSubstr("'node[]' is no list of hosts")));
  EXPECT_THAT(ErrorOf({Made("hosts", "node[01-04 slots=8\n")}),
              AllOf(HasSubstr("hosts:1"), HasSubstr("the '[' of 'node[01-04' is never closed")));
  EXPECT_THAT(ErrorOf({Made("hosts", "node[1-99999999]\n")}),
              AllOf(HasSubstr("it is too large"), HasSubstr("65536")));
  EXPECT_EQ(Discover({Made("hosts", "n[1-3],m[1-2] slots=8\n"),
                      Made("nodes.txt", "NodeName=n1 Gres=gpu:h100:8\n")})
                .spec.nodes,
            5);
}

std::string LogOf(const std::vector<std::pair<std::string, int>>& hosts, const std::string& local) {
  std::string log;
  int rank = 0, all = 0;
  for (const auto& [host, ranks] : hosts) all += ranks;
  for (const auto& [host, ranks] : hosts) {
    for (int i = 0; i < ranks; ++i)
      log += fmt::format(
          "{}:1:1 [{}] NCCL INFO comm 0x{} rank {} nRanks {}{} MNNVL 0\n", host, i, rank + 10, rank,
          all, local.empty() ? "" : fmt::format(fmt::runtime(local), hosts.size(), ranks)),
          ++rank;
  }
  return log;
}

TEST(Discover, RefusesALogWhoseNodesDiffer) {
  for (const char* local : {" nNodes {} localRanks {}", ""})
    EXPECT_THAT(ErrorOf({Made("x.log", LogOf({{"a", 8}, {"b", 4}}, local))},
                        {"", "h100-sxm5-80gb", std::nullopt}),
                HasSubstr("nodes of a topology are equal"))
        << local;
  EXPECT_THAT(ErrorOf({Made("x.log", LogOf({{"a", 8}, {"b", 4}}, " nNodes {} localRanks {}"))}),
              AllOf(HasSubstr("x.log:9"), HasSubstr("4 ranks on this node, but x.log:1 says 8")));
  EXPECT_THAT(ErrorOf({Made("y.log",
                            "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 12 nNodes 2 "
                            "localRanks 8 localRank 0\n")}),
              HasSubstr("12 ranks on 2 nodes, 8 of them on this one"));
}

// Of syslog, clocks, srun, mpirun and torchrun: the host is in NCCL's own front.
TEST(Discover, FindsHostsBehindAnyPrefix) {
  for (const char* prefix :
       {"", "Mar 12 10:02:08 ", "Mar 12 10:02:08 login prog[77]: ", "2024-01-01 10:00:00 [0]: ",
        "[default0]:", "[rank3]: ", "3: ", "[1,0]<stdout>:", "[pod/a/b] ", "10:02:08:1:2: "}) {
    std::string text;
    for (int rank = 0; rank < 16; ++rank)
      text += fmt::format(
          "{}node{:02}:10{}:2000 [{}] NCCL INFO comm 0x55 rank {} nranks 16 "
          "cudaDev {} busId 7000 - Init START\n",
          prefix, rank / 8, rank, rank % 8, rank, rank % 8);
    const Discovered made = Discover({Made("x.log", text)}, {"", "h100-sxm5-80gb", std::nullopt});
    EXPECT_EQ(fmt::format("{} x {}", made.spec.nodes, made.spec.node.gpus), "2 x 8") << prefix;
    EXPECT_THAT(made.spec.fabric.hosts, testing::ElementsAre("node00", "node01")) << prefix;
  }
}

TEST(Discover, SaysThatALogIsCut) {
  const Choices h100{"", "h100-sxm5-80gb", std::nullopt};
  const std::string front = "a:1:1 [0] NCCL INFO ";
  std::string tree =
      front + "=== System : maxBw 48.0 totalBw 240.0 ===\n" + front + "CPU/0 (1/1/2)\n";
  for (int i = 1; i <= 8; ++i)
    tree += front + fmt::format("+ PCI[48.0] - GPU/{}000 ({})\n", i, i - 1);
  const Discovered cut = Discover(
      {Made("x.log", tree + front + "=====\n" + front + "comm 0x5 rank 0 nranks 16 cudaDev 0 nvm")},
      h100);
  EXPECT_EQ(fmt::format("{} x {}", cut.spec.nodes, cut.spec.node.gpus), "2 x 8");
  EXPECT_THAT(cut.yaml, AllOf(HasSubstr("nodes: 2  # 16 ranks of x.log:12, 8 on a node"),
                              HasSubstr("the log is cut"), HasSubstr("x.log:12"),
                              HasSubstr("assumed: the log is cut before NICs")));
  const Discovered inside = Discover({Made("y.log", tree)}, h100);
  EXPECT_THAT(inside.yaml,
              AllOf(HasSubstr("nodes: 1  # assumed"), HasSubstr("the log is cut before NICs")));
}

TEST(Discover, ReadsSlurmsTopologyAsYaml) {
  const std::string tree =
      "- topology: flat\n  flat: true\n- topology: racks\n  cluster_default: true\n  tree:\n"
      "    switches:\n      - switch: root\n        children: s[1-2]\n      - switch: s1\n"
      "        nodes: n[1-2]\n      - switch: s2\n        nodes: n3\n";
  const SourcePtr nodes = Made("nodes.txt", "NodeName=n[1-3] Gres=gpu:h100:8 State=IDLE\n");
  const Discovered made = Discover({Made("topology.yaml", tree), nodes});
  EXPECT_THAT(made.spec.fabric.hosts, ElementsAre("n1", "n2", "n3"));
  EXPECT_EQ(made.spec.fabric.switches.size(), 3u);
  EXPECT_THAT(made.notes, Contains(HasSubstr("2 topologies, of which racks is read")));
  EXPECT_THAT(ErrorOf({Made("t.yaml", "- topology: a\n  flat: true\n"), nodes}),
              AllOf(HasSubstr("t.yaml:1"), HasSubstr("without a tree")));
  EXPECT_THAT(
      ErrorOf({Made("t.yaml", "- topology: a\n  tree:\n    switches:\n      - nodes: n1\n")}),
      HasSubstr("t.yaml:4"));
}

// With the GPU known nothing else is missing: the line of the user's file is named all the same.
TEST(Discover, SwitchesWithoutNodesAreNamedAtTheirLine) {
  const Choices h100 = {"", "h100-sxm5-80gb", std::nullopt};
  EXPECT_THAT(
      ErrorOf({Made("t.conf", "# tree\nSwitchName=a Switches=b\nSwitchName=b Switches=a\n")}, h100),
      AllOf(HasSubstr("t.conf:2"), HasSubstr("the switches above 'a' form a loop")));
  EXPECT_THAT(ErrorOf({Made("t.conf", "SwitchName=top Switches=leaf[0-1]\n")}, h100),
              AllOf(HasSubstr("t.conf:1"), HasSubstr("'leaf0' is described nowhere")));
  EXPECT_THAT(ErrorOf({Made("t.conf", "SwitchName=a Switches=a\n"), Sample("topo-m.txt")}, h100),
              HasSubstr("t.conf:1"));
}

TEST(Discover, TheMachinesNameSaysItsGpu) {
  EXPECT_THAT(ErrorOf({Sample("aws-topology.json")}, {"", "h100-sxm5-80gb", std::nullopt}),
              AllOf(HasSubstr("aws-topology.json:2"), HasSubstr("p4d.24xlarge here, which has "
                                                                "a100-sxm4-40gb")));
  const Discovered made =
      Discover({Sample("aws-topology.json")}, {"", "a100-sxm4-40gb", std::nullopt});
  EXPECT_EQ(std::ranges::count(made.assumed, "node.pcie.tree: as aws-p4d"), 1);  // of many lines
}

// A word per line may be anything: it is called a hostfile where one is wanted, and a script never is.
TEST(Discover, WordsAndScriptsAreNoHostfiles) {
  const auto refused = [](const std::string& text) {
    try {
      RefuseMachineFile(Made("x", text), "a log");
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("Call\nme\nIshmael\n"), "");
  EXPECT_THAT(refused("node0\nnode1\n"), HasSubstr("this is a hostfile"));
  EXPECT_THAT(refused("alpha slots=2\nbeta slots=2\n"), HasSubstr("this is a hostfile"));
  EXPECT_THAT(refused("#SBATCH --nodes=2\nhostname\n"), HasSubstr("this is a job's script"));
  EXPECT_EQ(KindOfClusterFile(*Made("x", "#PBS -l select=2\nwait\n")), ClusterFile::kNone);
  EXPECT_EQ(KindOfClusterFile(*Made("x", "alpha\nbeta\n")), ClusterFile::kHostfile);
}

}  // namespace
}  // namespace orrery::discover
