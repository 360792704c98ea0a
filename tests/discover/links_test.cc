// SPDX-License-Identifier: Apache-2.0
// NVLinks that NCCL's logs and graphs show without their number, and the classes of nvidia-smi's matrix.
#include <fmt/format.h>

#include <tuple>

#include "tests/discover/testing.h"

namespace orrery::discover {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A log of one node whose GPUs, one on each bridge, have these links; "{}" is not said of any.
std::string Log(const std::vector<std::vector<std::string>>& links) {
  std::string text;
  const auto line = [&](const std::string& what) { text += "n0:1:9 [0] NCCL INFO " + what + "\n"; };
  line("comm 0x1 rank 0 nranks " + std::to_string(links.size()) +
       " cudaDev 0 nNodes 1 localRanks " + std::to_string(links.size()) + " localRank 0");
  line("=== System : maxBw 20.0 totalBw 240.0 ===");
  line("CPU/0-0 (1/1/2)");
  for (std::size_t gpu = 0; gpu < links.size(); ++gpu) {
    line(fmt::format("+ PCI[24.0] - PCI/0-{}000 (1000c01015b31979)", gpu + 1));
    line(fmt::format("              + PCI[24.0] - GPU/0-{}100 ({})", gpu + 1, gpu));
    for (const std::string& link : links[gpu]) line("                            + " + link);
  }
  line("==========================================");
  return text;
}

NodeSpec NodeOf(const std::string& log, const std::string& gpu) {
  return Discover({Made("job.log", log)}, {"", gpu, std::nullopt}).spec.node;
}

TEST(NcclLog, RatesOfSwitchesAreNumbersOfLinks) {
  const std::tuple<const char*, const char*, int> cases[] = {
      {"NVL[240.0] - NVS/0-0", "a100-sxm4-80gb", 12},
      {"NVL[264.0] - NVS/0", "a100-sxm4-40gb", 12},    // 2.10 to 2.17
      {"NVL[252.0] - NVS/0", "a100-sxm4-40gb", 12},    // up to 2.9
      {"NVL[396.0] - NVS/0", "h100-sxm5-80gb", 18},    // before 2.18, as an A100
      {"NVL[720.0] - NVS/0-0", "b200-sxm-180gb", 18},  // 2.25 to 2.27
      {"NVL[370.8] - NVS/0-0", "h100-sxm5-80gb", 18},
      {"NVL[360.0] - NVS/0", "h100-sxm5-80gb", 18},
      {"NVL[120.0] - NVS/0", "v100-sxm2-32gb", 6},
      {"NVL[721.8] - NVS/0-0", "b200-sxm-180gb", 18}};
  for (const auto& [link, gpu, count] : cases) {
    SCOPED_TRACE(link);
    const NodeSpec node = NodeOf(Log({{link}, {link}, {link}, {link}}), gpu);
    EXPECT_EQ(node.intra, IntraLink::kNvSwitch);
    EXPECT_EQ(node.links_per_gpu, count);
  }
}

TEST(NcclLog, RatesBetweenGpusAreAMesh) {
  const NodeSpec node = NodeOf(Log({{"NVL[20.0] - GPU/0-2100", "NVL[40.0] - GPU/0-3100"},
                                    {"NVL[20.0] - GPU/0-1100"},
                                    {"NVL[40.0] - GPU/0-1100"}}),
                               "v100-sxm2-16gb");
  EXPECT_EQ(node.intra, IntraLink::kCubeMesh);
  ASSERT_EQ(node.mesh.size(), 2u);
  EXPECT_EQ(node.mesh[0].b, 1);
  EXPECT_EQ(node.mesh[0].count, 1);
  EXPECT_EQ(node.mesh[1].b, 2);
  EXPECT_EQ(node.mesh[1].count, 2);
}

TEST(NcclLog, ItsLinksAreNamedWithTheirPlaceWhatTheGpuMayBe) {
  const std::string log =
      Log({{"NVL[240.0] - NVS/0-0"}, {"NVL[240.0] - NVS/0-0"}, {"NVL[240.0] - NVS/0-0"}});
  const Discovered known = Discover({Made("job.log", log)}, {"", "a100-sxm4-80gb", std::nullopt});
  EXPECT_THAT(known.yaml, HasSubstr("links_per_gpu: 12, per_link: 25GB/s}  # job.log:6"));
  EXPECT_THAT(known.assumed, Not(Contains(HasSubstr("scale_up"))));
  // Nobody names the GPU: NCCL's rate still tells links and their rate.
  const Discovered unknown = Discover({Made("job.log", log)});
  EXPECT_EQ(unknown.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_THAT(unknown.yaml, HasSubstr("links_per_gpu: 12, per_link: 25GB/s}  # job.log:6"));
  // No multiple of a link's rate.
  const Discovered odd =
      Discover({Made("job.log", Log({{"NVL[33.3] - NVS/0"}, {"NVL[33.3] - NVS/0"}, {}}))},
               {"", "a100-sxm4-80gb", std::nullopt});
  EXPECT_EQ(odd.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_THAT(odd.assumed, Contains(HasSubstr("node.scale_up")));
}

// 220 GB/s are 11 links of 20, or 10 of 22: the release decides.
TEST(NcclLog, ItsReleaseTellsWhatALinkCounts) {
  const std::string log = Log({{"NVL[220.0] - NVS/0"}, {"NVL[220.0] - NVS/0"}});
  const auto links = [&](const std::string& front) {
    return NodeOf(front + log, "a100-sxm4-80gb").links_per_gpu;
  };
  EXPECT_EQ(links("NCCL version 2.21.5+cuda12.4\n"), 11);
  EXPECT_EQ(links("n0:1:1 [0] NCCL INFO NCCL version 2.10.3+cuda11.3\n"), 10);
}

// Rates of NICs are those of their ports, of PCIe in NCCL's scale: 12 GB/s for 16 lanes of 8 GT/s.
TEST(NcclLog, ItsTreeHasTheRatesOfNicsAndPcie) {
  const std::string log =
      "n0:1:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB "
      "eth0:1.2.3.4<0>\n"
      "n0:1:9 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 nNodes 2 localRanks 2 localRank 0\n"
      "n0:1:9 [0] NCCL INFO === System : maxBw 25.0 totalBw 48.0 ===\n"
      "n0:1:9 [0] NCCL INFO CPU/0 (1/2/-1)\n"
      "n0:1:9 [0] NCCL INFO + PCI[24.0] - PCI/1000 (1000c01015b31979)\n"
      "n0:1:9 [0] NCCL INFO               + PCI[24.0] - GPU/2000 (0)\n"
      "n0:1:9 [0] NCCL INFO               + PCI[24.0] - NIC/3000\n"
      "n0:1:9 [0] NCCL INFO                             + NET[25.0] - NET/0 (a0/1/25.000000)\n"
      "n0:1:9 [0] NCCL INFO + PCI[24.0] - PCI/4000 (1000c01015b31979)\n"
      "n0:1:9 [0] NCCL INFO               + PCI[24.0] - GPU/5000 (1)\n"
      "n0:1:9 [0] NCCL INFO               + PCI[24.0] - NIC/6000\n"
      "n0:1:9 [0] NCCL INFO                             + NET[25.0] - NET/1 (a1/1/25.000000)\n"
      "n0:1:9 [0] NCCL INFO ==========================================\n";
  const Discovered made = Discover({Made("job.log", log)});
  EXPECT_NEAR(made.spec.node.nic_rate.value, 25e9, 1);
  EXPECT_NEAR(made.spec.node.pcie_rate.value, 31.5e9, 0.05e9);
  EXPECT_THAT(made.assumed, Not(Contains(HasSubstr("node.nics"))));
  EXPECT_THAT(made.assumed, Not(Contains(HasSubstr("node.pcie.rate"))));
}

std::string Graph(int gpus, const char* inside) {
  std::string text = fmt::format(
      "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" "
      "speedintra=\"20\" speedinter=\"20\" typeintra=\"{}\" typeinter=\"PIX\"><channel>",
      inside);
  for (int gpu = 0; gpu < gpus; ++gpu) text += fmt::format("<gpu dev=\"{}\"/>", gpu);
  return text + "</channel></graph></graphs>";
}

TEST(NcclGraph, WaysOverNvLinkAreNoPcie) {
  const auto of = [](int gpus, const char* inside, const char* gpu) {
    return Discover({Made("graph.xml", Graph(gpus, inside))}, {"", gpu, std::nullopt});
  };
  // As nodes of the catalogue with such GPUs have it.
  EXPECT_EQ(of(8, "NVL", "h100-sxm5-80gb").spec.node.links_per_gpu, 18);
  // None has five of them, or two.
  const Discovered five = of(5, "NVL", "a100-sxm4-80gb");
  EXPECT_EQ(five.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_EQ(five.spec.node.links_per_gpu, 12);
  EXPECT_THAT(five.assumed, Contains(HasSubstr("NVLinks (graph.xml:1), their number is not said")));
  const Discovered two = of(2, "NVB", "a100-pcie-40gb");
  EXPECT_EQ(two.spec.node.intra, IntraLink::kCubeMesh);
  ASSERT_EQ(two.spec.node.mesh.size(), 1u);
  const Discovered pcie = of(5, "PHB", "a100-sxm4-80gb");
  EXPECT_THAT(pcie.assumed, Contains(HasSubstr("no source shows other links")));
}

std::string TwoGpus(const std::string& path, const char* affinity) {
  return fmt::format(
      "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t{0}\t{1}\nGPU1\t{0}\t X "
      "\t{1}\n",
      path, affinity);
}

// The row had ended there: a machine of one GPU.
TEST(Matrix, APathThatItDoesNotKnowIsNoAffinity) {
  for (const char* path : {"NVS", "NVS/0", "NVL", "NV", "N/A", "LK4"})
    EXPECT_THAT(ErrorOf({Made("topo.txt", TwoGpus(path, "0-7\t0\tN/A"))}),
                HasSubstr(fmt::format("topo.txt:2:1: error: GPU0 to GPU1 is '{}', which is no path",
                                      path)));
  for (const char* path : {"NV1", "NV4", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"})
    EXPECT_EQ(Discover({Made("topo.txt", TwoGpus(path, "0-7\t0\tN/A"))}).spec.node.gpus, 2) << path;
}

TEST(Matrix, WithoutAffinitiesOnlyAPathAcrossSocketsTellsHostsApart) {
  const auto hosts = [](const char* path, const char* affinity) {
    return Discover({Made("topo.txt", TwoGpus(path, affinity))}).spec.node.hosts.size();
  };
  EXPECT_EQ(hosts("NV18", "N/A\tN/A\tN/A"), 1u);
  EXPECT_EQ(hosts("NV18", "0-7\tN/A\tN/A"), 1u);
  EXPECT_EQ(hosts("SYS", "N/A\tN/A\tN/A"), 2u);
  const Discovered apart =
      Discover({Made("topo.txt",
                     "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV4\t0-7\t0\n"
                     "GPU1\tNV4\tX\t8-15\t1\n")});
  EXPECT_EQ(apart.spec.node.hosts.size(), 2u);
}

// All links of an SXM module lead into switches, those of a card over a bridge.
TEST(Matrix, TwoGpusOfABoardWithSwitchesAreOnThem) {
  const auto of = [](const char* path, const char* gpu) {
    return Discover({Made("topo.txt", TwoGpus(path, "0-7\t0\tN/A"))}, {"", gpu, std::nullopt})
        .spec.node.intra;
  };
  EXPECT_EQ(of("NV18", "h100-sxm5-80gb"), IntraLink::kNvSwitch);
  EXPECT_EQ(of("NV12", "a100-sxm4-80gb"), IntraLink::kNvSwitch);
  EXPECT_EQ(of("NV4", "a100-sxm4-80gb"), IntraLink::kCubeMesh);  // four on a board without switches
  EXPECT_EQ(of("NV12", "a100-pcie-40gb"), IntraLink::kCubeMesh);
}

// GPUs with NVLinks and the NICs between them: only the way to a NIC tells the switch.
TEST(Matrix, DevicesBehindOneNicShareItsSwitch) {
  for (const std::string near : {"PIX", "PXB"}) {
    SCOPED_TRACE(near);
    const std::string n = near;
    const Discovered made =
        Discover({Made("topo.txt",
                       "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
                       "GPU0\tX\tNV12\tNV12\tNV12\t" +
                           n +
                           "\tSYS\t0-31\t0\n"
                           "GPU1\tNV12\tX\tNV12\tNV12\t" +
                           n +
                           "\tSYS\t0-31\t0\n"
                           "GPU2\tNV12\tNV12\tX\tNV12\tSYS\t" +
                           n +
                           "\t32-63\t1\n"
                           "GPU3\tNV12\tNV12\tNV12\tX\tSYS\t" +
                           n +
                           "\t32-63\t1\n"
                           "NIC0\t" +
                           n + "\t" + n +
                           "\tSYS\tSYS\tX\tSYS\n"
                           "NIC1\tSYS\tSYS\t" +
                           n + "\t" + n + "\tSYS\tX\n")},
                 {"", "a100-sxm4-40gb", std::nullopt});
    const NodeSpec& node = made.spec.node;
    ASSERT_EQ(node.pcie.size(), 2u) << made.yaml;
    EXPECT_THAT(node.pcie[0].gpus, ElementsAre(0, 1));
    EXPECT_THAT(node.pcie[0].nics, ElementsAre(0));
    EXPECT_GE(node.pcie[0].pcie_switch, 0);
    EXPECT_THAT(node.pcie[1].gpus, ElementsAre(2, 3));
    EXPECT_EQ(node.hosts.size(), 2u);
    EXPECT_EQ(node.links_per_gpu, 12);
  }
}

// PHB: by way of the CPU; NODE: by way of two bridges of one; SYS and, in older releases, SOC: to the other.
TEST(Matrix, WaysOverTheCpuShareNoSwitch) {
  for (const std::string far : {"SYS", "SOC"}) {
    const Discovered made = Discover({Made("topo.txt",
                                           "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\n"
                                           "GPU0\t X \t" +
                                               far + "\tPHB\t" + far +
                                               "\t0-9\n"
                                               "GPU1\t" +
                                               far + "\t X \t" + far +
                                               "\tNODE\t10-19\n"
                                               "mlx5_0\tPHB\t" +
                                               far + "\t X \t" + far +
                                               "\n"
                                               "mlx5_1\t" +
                                               far + "\tNODE\t" + far + "\t X \n")},
                                     {"", "v100-pcie-16gb", std::nullopt});
    const NodeSpec& node = made.spec.node;
    ASSERT_EQ(node.pcie.size(), 2u) << made.yaml;
    EXPECT_EQ(node.pcie[0].pcie_switch, -1);
    EXPECT_THAT(node.pcie[0].nics, ElementsAre(0));
    EXPECT_EQ(node.pcie[1].host, 1);
    EXPECT_EQ(node.intra, IntraLink::kPcie);
  }
}

// Switches below switches: the farther devices of one root are no farther than that.
TEST(Matrix, PixAndPxbOfOneRootMeet) {
  const Discovered made = Discover({Made("topo.txt",
                                         "        GPU0  GPU1  GPU2  NIC0  NIC1\n"
                                         "GPU0     X    PIX   PXB   PXB   NODE\n"
                                         "GPU1    PIX    X    PXB   PXB   NODE\n"
                                         "GPU2    PXB   PXB    X    PIX   NODE\n"
                                         "NIC0    PXB   PXB   PIX    X    NODE\n"
                                         "NIC1    NODE  NODE  NODE  NODE   X\n")},
                                   {"", "a100-pcie-80gb", std::nullopt});
  const NodeSpec& node = made.spec.node;
  ASSERT_EQ(node.pcie.size(), 2u) << made.yaml;
  EXPECT_THAT(node.pcie[0].gpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(node.pcie[0].nics, ElementsAre(0));
  EXPECT_EQ(node.pcie[1].pcie_switch, -1);
  EXPECT_EQ(node.hosts.size(), 1u);
}

}  // namespace
}  // namespace orrery::discover
