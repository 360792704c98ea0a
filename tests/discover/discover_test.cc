// SPDX-License-Identifier: Apache-2.0
// Files of other programs become topologies: counts, links, rates, hosts, and what is assumed.
#include <fmt/format.h>

#include "model/discover/known_devices.h"
#include "model/hardware/catalog.h"
#include "model/hardware/cluster_file.h"
#include "tests/discover/testing.h"

namespace orrery::discover {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A node in the form of NCCL's XML: `sockets` of `switches` each, with so many GPUs and NICs.
std::string NodeXml(int sockets, int switches, int gpus, int nics, const std::string& nic_class,
                    const std::string& device, int links) {
  std::string text = "<system version=\"1\">\n";
  int bus = 1;
  for (int socket = 0; socket < sockets; ++socket) {
    text += fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\">\n", socket);
    for (int one = 0; one < switches; ++one) {
      text += fmt::format("<pci busid=\"ffff:ff:{:02x}.0\" class=\"0x060400\">\n", bus);
      for (int gpu = 0; gpu < gpus; ++gpu) {
        text += fmt::format(
            "<pci busid=\"{:04x}:00:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"{}\" "
            "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{}\" sm=\"90\">",
            bus, device, bus - 1);
        if (links > 0)
          text += fmt::format("<nvlink target=\"fffe:00:00.0\" count=\"{}\" tclass=\"0x068000\"/>",
                              links);
        text += "</gpu></pci>\n";
        ++bus;
      }
      for (int nic = 0; nic < nics; ++nic)
        text +=
            fmt::format("<pci busid=\"1{:03x}:{:02x}:00.0\" class=\"{}\"/>\n", bus, nic, nic_class);
      text += "</pci>\n";
    }
    text += "</cpu>\n";
  }
  return text + "</system>\n";
}

TEST(Discover, ReadsTheTreeOfANode) {
  const Discovered made =
      Discover({Made("node.xml", NodeXml(2, 2, 2, 1, "0x020700", "0x2330", 18))});
  const NodeSpec& node = made.spec.node;
  EXPECT_EQ(made.spec.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.nics.size(), 4u);
  EXPECT_EQ(node.intra, IntraLink::kNvSwitch);
  EXPECT_EQ(node.links_per_gpu, 18);
  EXPECT_EQ(made.spec.fabric_profile, "infiniband");
  EXPECT_NEAR(node.pcie_rate.value, 63.02e9, 1e7);
  ASSERT_EQ(node.pcie.size(), 4u);
  EXPECT_THAT(node.pcie[2].gpus, ElementsAre(4, 5));
  EXPECT_THAT(node.pcie[2].nics, ElementsAre(2));
  EXPECT_EQ(node.pcie[2].host, 1);
  // No source gives the rate of a NIC: the line says so.
  EXPECT_THAT(made.assumed, Contains(HasSubstr("node.nics")));
  EXPECT_THAT(made.yaml, HasSubstr("links_per_gpu: 18, per_link: 25GB/s}  # node.xml:1"));
}

TEST(Discover, EveryLineHasASourceOrIsAssumed) {
  for (const Discovered& made :
       {Discover({Sample("hwloc.xml")}), Discover({Sample("hwloc-grace.xml")}),
        Discover({Sample("topology.conf"), Sample("nodes.txt")}),
        Discover({Sample("aws-topology.json")}), Discover({Sample("nccl-log.txt")})}) {
    std::istringstream lines(made.yaml);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("#") || line.ends_with(":")) continue;
      const std::string key = line.substr(0, line.find(':'));
      if (key == "name" || key == "description" || key == "source" || key == "evidence" ||
          line == "  kind: named")
        continue;
      EXPECT_THAT(line, HasSubstr("  # ")) << made.yaml;
    }
  }
}

TEST(Discover, ReadsBridgedPairs) {
  const Discovered made = Discover({Sample("bridges.xml")});
  EXPECT_EQ(made.spec.gpu, "a100-pcie-80gb");
  ASSERT_EQ(made.spec.node.mesh.size(), 1u);
  EXPECT_EQ(made.spec.node.mesh[0].count, 12);
  EXPECT_EQ(made.spec.node.nics.size(), 1u);
  EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 12.5e9);
  EXPECT_EQ(made.spec.node.cpu, HostKind::kAmd);
}

TEST(Discover, ReadsHwlocWithAndWithoutSwitches) {
  const Discovered made = Discover({Sample("hwloc.xml")}, {"mine", "", std::nullopt});
  EXPECT_EQ(made.spec.name, "mine");
  EXPECT_EQ(made.spec.gpu, "a100-sxm4-40gb");
  EXPECT_EQ(made.nearest, "aws-p4d");
  // Three GPUs, two of the EFA NICs; the Ethernet NIC beside them does not train.
  EXPECT_EQ(made.spec.node.gpus, 3);
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  ASSERT_EQ(made.spec.node.pcie.size(), 2u);
  EXPECT_THAT(made.spec.node.pcie[0].gpus, ElementsAre(0, 1));
  EXPECT_THAT(made.spec.node.pcie[1].nics, ElementsAre(1));
  EXPECT_EQ(made.spec.fabric_profile, "efa");
}

// HGX B200 and B300: InfiniBand devices that manage the NVLink switches stand next to the NICs.
TEST(Discover, ManagementDevicesAreNoNics) {
  const auto device = [](const char* bus, const char* type) {
    return fmt::format("<object type=\"PCIDev\" pci_busid=\"0000:{}:00.0\" pci_type=\"{} a1\"/>",
                       bus, type);
  };
  std::string text = "<topology version=\"2.0\"><object type=\"Machine\"><object type=\"Package\">";
  for (const char* bus : {"01", "02"}) text += device(bus, "0207 [15b3:1021] [15b3:0000]");
  for (const char* root : {"1", "2"}) {
    text += fmt::format(
        "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:[{}0-{}f]\">", root, root);
    for (const char* bus : {"1", "2"})
      text += device((root + std::string(bus)).c_str(), "0200 [1d0f:efa3] [1d0f:efa3]");
    text += device((std::string(root) + "3").c_str(), "0302 [10de:2901] [10de:1999]") + "</object>";
  }
  const Discovered made = Discover({Made("b200.xml", text + "</object></object></topology>")});
  EXPECT_EQ(made.spec.gpu, "b200-sxm-180gb");
  EXPECT_EQ(made.spec.fabric_profile, "efa");
  EXPECT_EQ(made.spec.node.nics.size(), 4u);
  EXPECT_THAT(made.notes,
              Contains("ignored 0000:01:00.0: infiniband next to 4 NICs of efa, not one "
                       "of training (b200.xml:1)"));
}

// Two CPUs of two GPUs each; some NICs are on ports without a GPU. The file does not show the links
// between GPUs and CPUs, and its machine is called what every guest is called.
TEST(Discover, ReadsNodesOfGrace) {
  const Discovered made = Discover({Sample("hwloc-grace.xml")});
  const NodeSpec& node = made.spec.node;
  EXPECT_EQ(made.spec.name, "discovered");
  EXPECT_EQ(made.nearest, "");  // no topology has so many NICs
  EXPECT_EQ(made.spec.gpu, "gb200-per-gpu");
  EXPECT_EQ(node.gpus, 4);
  EXPECT_EQ(node.nics.size(), 6u);
  EXPECT_EQ(node.cpu, HostKind::kArm);
  EXPECT_EQ(node.domain_nodes, 18);
  ASSERT_EQ(node.pcie.size(), 5u);
  EXPECT_THAT(node.pcie[0].gpus, ElementsAre(0));
  EXPECT_THAT(node.pcie[0].nics, ElementsAre(0));
  EXPECT_THAT(node.pcie[2].gpus, testing::IsEmpty());
  EXPECT_THAT(node.pcie[2].nics, ElementsAre(1, 2));
  EXPECT_EQ(node.pcie[3].host, 1);
  EXPECT_NEAR(node.pcie_rate.value, 63.02e9, 1e7);
  EXPECT_DOUBLE_EQ(node.gpu_to_host.value, 224e9);
  EXPECT_DOUBLE_EQ(node.between_hosts.value, 63e9);
  EXPECT_THAT(made.yaml, AllOf(HasSubstr("gpu_to_host: 224GB/s  # assumed: as "),
                               HasSubstr("rate not given by any source, count is of hwloc-grace")));
}

// The driver's name where the PCI id is not known; 64 GT/s as hwloc 2.10 writes it.
TEST(Discover, ReadsNewGpusAndLinksOfHwloc) {
  const char* text =
      "<topology version=\"2.0\"><object type=\"Machine\"><object type=\"Package\">"
      "<object type=\"PCIDev\" pci_busid=\"0000:58:00.0\" pci_type=\"0302 [10de:ffff] [10de:20e6] "
      "a1\" pci_link_speed=\"126.030769\"><object type=\"OSDev\" name=\"card0\" "
      "osdev_type=\"1\"/><object type=\"OSDev\" name=\"opencl0d0\" osdev_type=\"5\"><info "
      "name=\"GPUModel\" value=\"NVIDIA B300 SXM6 AC\"/></object></object>"
      "<object type=\"PCIDev\" pci_busid=\"0000:ab:00.0\" pci_type=\"0680 [10de:22a3] [10de:1796] "
      "a1\" pci_link_speed=\"3.938462\"/></object></object></topology>";
  const Discovered made = Discover({Made("b300.xml", text)});
  EXPECT_EQ(made.spec.gpu, "b300-sxm-288gb");
  EXPECT_NEAR(made.spec.node.pcie_rate.value, PcieRate("64.0 GT/s PCIe", 16).value, 1e7);
  EXPECT_THAT(made.notes, Contains("1 NVLink switch (b300.xml:1)"));
}

// A machine whose name is not known tells nothing of its network.
TEST(Discover, UnknownNamesOfMachinesTellNoNetwork) {
  std::string text =
      "<topology version=\"2.0\"><object type=\"Machine\"><info name=\"DMIProductName\" "
      "value=\"Model 9000\"/>";
  for (int i = 1; i <= 8; ++i)
    text += fmt::format(
        "<object type=\"PCIDev\" pci_busid=\"0000:{}0:00.0\" pci_type=\"0302 [10de:2330] "
        "[10de:16c1] a1\"/>",
        i);
  const Discovered made = Discover({Made("h100.xml", text + "</object></topology>")});
  EXPECT_EQ(made.spec.name, "model-9000");
  EXPECT_EQ(made.spec.node.gpus, 8);
  EXPECT_TRUE(made.spec.node.nics.empty());
  EXPECT_EQ(made.spec.fabric_profile, "nvlink-only");
}

TEST(Discover, TellsGraceHopperFromHopper) {
  EXPECT_EQ(GpuOfName("NVIDIA GH200 480GB"), "gh200-96gb");
  EXPECT_EQ(GpuOfName("NVIDIA GH200 120GB"), "gh200-96gb");
  EXPECT_EQ(GpuOfName("NVIDIA GH200 144G HBM3e"), "");
  EXPECT_EQ(GpuOfName("NVIDIA H200"), "h200-sxm-141gb");
}

TEST(Discover, TakesNicsWithoutGpusFromTheNamedMachine) {
  std::string text = "<!-- Made for `p5.48xlarge`. --><system version=\"1\">";
  const auto cpu = [&](int host, int switches, int nics) {
    text += fmt::format("<cpu numaid=\"{}\">", host);
    for (int s = 0; s < switches; ++s) {
      text += fmt::format("<pci busid=\"0000:{}{}:00.0\">", host, s);
      for (int n = 0; n < nics; ++n)
        text += fmt::format("<pci busid=\"000{}:{}{}:00.0\"/>", host + 1, s, n);
      text += "</pci>";
    }
    text += "</cpu>";
  };
  const std::string empty = text;
  cpu(0, 4, 4);
  cpu(1, 4, 4);
  const Discovered made = Discover({Made("p5.xml", text + "</system>")});
  EXPECT_EQ(made.nearest, "aws-p5");
  EXPECT_EQ(made.spec.fabric_profile, "efa-rdma");
  EXPECT_EQ(made.spec.node.gpus, 8);
  EXPECT_EQ(made.spec.node.nics.size(), 32u);
  EXPECT_THAT(made.notes, Contains(HasSubstr("32 devices without a class: taken for the NICs")));
  text = empty;
  cpu(0, 4, 8);
  EXPECT_THAT(ErrorOf({Made("p5.xml", text + "</system>")}), HasSubstr("whose class is not said"));
}

TEST(Discover, TakesDevicesWithoutAClassFromTheNamedMachine) {
  const Discovered made = Discover({Sample("provider.xml")});
  EXPECT_EQ(made.nearest, "aws-g5-48xl");
  EXPECT_EQ(made.spec.node.gpus, 8);
  EXPECT_EQ(made.spec.node.nics.size(), 1u);
  EXPECT_THAT(made.notes, Contains(HasSubstr("9 devices without a class")));
  EXPECT_THAT(made.spec.node.pcie.back().nics,
              ElementsAre(0));  // on the second CPU, as the file says
  EXPECT_THAT(ErrorOf({Made("x.xml",
                            "<system version=\"1\"><cpu numaid=\"0\"><pci "
                            "busid=\"0000:00:16.0\"/></cpu></system>")}),
              HasSubstr("add the output of lspci -nn"));
}

TEST(Discover, TakesTheMachineFromTheNameOfAwsFiles) {
  const Discovered made =
      Discover({Made("/x/p5.48xl-topo.xml", NodeXml(2, 4, 1, 4, "0x020000", "0xffff", 0))});
  EXPECT_EQ(made.nearest, "aws-p5");
  EXPECT_EQ(made.spec.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(made.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_EQ(made.spec.node.nics.size(), 32u);
}

TEST(Discover, TakesTheSeriesFromTheNameOfAzureFiles) {
  const auto file = [](const char* name, int switches, int gpus) {
    return Made(name, NodeXml(2, switches, gpus, 1, "0x020700", "0xffff", 0));
  };
  const Discovered a100 = Discover({file("/x/ndv4-topo.xml", 4, 1)});
  EXPECT_EQ(a100.spec.name, "ndv4");
  EXPECT_EQ(a100.nearest, "azure-nd-a100-40");
  EXPECT_EQ(a100.spec.gpu, "a100-sxm4-40gb");
  EXPECT_EQ(a100.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_EQ(a100.spec.node.nics.size(), 8u);
  EXPECT_DOUBLE_EQ(a100.spec.node.nic_rate.value, 25e9);
  // Files of that name are on machines with either GPU: the line says so, --gpu decides.
  EXPECT_THAT(a100.assumed, Contains("gpu: as azure-nd-a100-40; ndv4 may be azure-nd-a100-80, too: "
                                     "--gpu a100-sxm4-80gb"));
  const Discovered larger =
      Discover({file("ndv4-topo.xml", 4, 1)}, {"", "a100-sxm4-80gb", std::nullopt});
  EXPECT_EQ(larger.nearest, "azure-nd-a100-80");
  EXPECT_THAT(larger.yaml, Not(HasSubstr("may be")));

  const Discovered h100 = Discover({file("images_topology_ndv5-topo.xml", 4, 1)});
  EXPECT_EQ(h100.spec.gpu, "h100-sxm5-80gb");
  EXPECT_DOUBLE_EQ(h100.spec.node.nic_rate.value, 50e9);
  EXPECT_THAT(h100.yaml, HasSubstr("ndv5 may be azure-nd-h200, too: --gpu h200-sxm-141gb"));

  const Discovered v100 = Discover({file("ndv2-topo.xml", 1, 4)});
  EXPECT_EQ(v100.spec.gpu, "v100-sxm2-32gb");
  EXPECT_EQ(v100.spec.node.intra, IntraLink::kCubeMesh);
  EXPECT_DOUBLE_EQ(v100.spec.node.nic_rate.value, 12.5e9);
  EXPECT_EQ(Discover({file("ndvx-topo.xml", 1, 4)}).spec.gpu, kUnknownGpu);
}

// A series without a topology: its GPU is in the file, the PCIe link of such a GPU is its vendor's.
TEST(Discover, ReadsTheSeriesOfAzureWithoutATopology) {
  const Discovered made = Discover({Made(
      "ncv4-topo.xml",
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0001:00:00.0\" class=\"0x030200\" "
      "vendor=\"0x10de\" device=\"0x20b5\" link_speed=\"\" link_width=\"0\"><gpu dev=\"0\" "
      "sm=\"80\"/></pci></cpu></system>")});
  EXPECT_EQ(made.spec.name, "ncv4");
  EXPECT_EQ(made.nearest, "");
  EXPECT_EQ(made.spec.gpu, "a100-pcie-80gb");
  EXPECT_NEAR(made.spec.node.pcie_rate.value, 31.51e9, 1e7);
  EXPECT_THAT(made.assumed, Contains(HasSubstr("node.pcie.rate: 16 lanes of such a GPU")));
}

TEST(Discover, TakesTheMeshOfTheSameNode) {
  const Discovered made = Discover({Made("v2.xml", NodeXml(2, 1, 4, 0, "0x020700", "0x1db5", 0))});
  EXPECT_EQ(made.spec.gpu, "v100-sxm2-32gb");
  EXPECT_EQ(made.spec.node.intra, IntraLink::kCubeMesh);
  EXPECT_THAT(made.assumed, Contains(HasSubstr("node.scale_up")));
}

TEST(Discover, KeepsTheNamesOfHosts) {
  const Discovered made = Discover({Sample("hosts")}, {"", "h100-sxm5-80gb", std::nullopt});
  EXPECT_THAT(made.spec.fabric.hosts, ElementsAre("node0", "node1"));
  // Eight H100 in a node are on switches; which network they have is not known.
  EXPECT_EQ(made.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_THAT(made.assumed, Contains(HasSubstr("node.scale_up: as ")));
}

// NVLinks hide the ways over PCIe, and old drivers have no column of NUMA nodes.
TEST(Discover, PlacesGpusOfTheMatrixByTheirCpus) {
  const Discovered made = Discover({Made("topo.txt",
                                         "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\n"
                                         "GPU0\t X \tNV12\tNV12\tNV12\tPXB\t0-63\n"
                                         "GPU1\tNV12\t X \tNV12\tNV12\tSYS\t0-63\n"
                                         "GPU2\tNV12\tNV12\t X \tNV12\tSYS\t64-127\n"
                                         "GPU3\tNV12\tNV12\tNV12\t X \tSYS\t64-127\n"
                                         "mlx5_0\tPXB\tSYS\tSYS\tSYS\t X \n")});
  EXPECT_EQ(made.spec.node.hosts.size(), 2u);
}

TEST(Discover, ReadsLspciInItsForms) {
  const Discovered lines = Discover({Sample("lspci.txt")});
  EXPECT_EQ(lines.spec.gpu, "h100-sxm5-80gb");
  EXPECT_THAT(lines.notes, Contains(AllOf(HasSubstr("0000:12:00.0"), HasSubstr("31.5 of 63"))));
  const Discovered records = Discover({Sample("lspci-vmm.txt")});
  EXPECT_EQ(records.spec.gpu, "a100-sxm4-80gb");
  EXPECT_EQ(records.spec.node.gpus, 2);
  EXPECT_EQ(records.spec.node.hosts.size(), 2u);
  const Discovered tree = Discover({Sample("lspci-tv.txt")});
  ASSERT_EQ(tree.spec.node.pcie.size(), 2u);
  EXPECT_THAT(tree.spec.node.pcie[0].gpus, ElementsAre(0));
  EXPECT_THAT(tree.spec.node.pcie[0].nics, ElementsAre(0));
}

TEST(Discover, ReadsTheLogOfAJob) {
  const Discovered made = Discover({Sample("nccl-log.txt")}, {"", "a100-sxm4-80gb", std::nullopt});
  EXPECT_EQ(made.spec.nodes, 2);
  EXPECT_EQ(made.spec.node.gpus, 2);
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  EXPECT_EQ(made.spec.fabric_profile, "infiniband");
  ASSERT_EQ(made.spec.node.pcie.size(), 2u);
  EXPECT_THAT(made.spec.node.pcie[1].nics, ElementsAre(1));
}

TEST(Discover, ReadsSlurmsUnequalLeaves) {
  const Discovered made = Discover({Sample("topology.conf"), Sample("nodes.txt")});
  EXPECT_EQ(made.spec.fabric.kind, FabricKind::kNamed);
  EXPECT_THAT(made.spec.fabric.hosts, ElementsAre("node0", "node2", "node3", "node4", "node5"));
  ASSERT_EQ(made.spec.fabric.switches.size(), 4u);
  EXPECT_EQ(made.spec.fabric.switches[1].hosts.size(), 2u);
  EXPECT_EQ(made.spec.gpu, "h100-sxm5-80gb");
  EXPECT_THAT(made.notes,
              Contains("ignored node1, where Slurm starts no job: DOWN+DRAIN (nodes.txt:4)"));
  // The network of a machine is not guessed from its GPU.
  EXPECT_EQ(made.spec.fabric_profile, "tcp");
}

// Launchers take hosts in the order of the hostfile, however the switches are cabled.
TEST(Discover, NumbersHostsAsTheHostfileDoes) {
  const SourcePtr cables = Made("topology.conf",
                                "SwitchName=leaf0 Nodes=node0,node2,node10\n"
                                "SwitchName=leaf1 Nodes=node1,node3\n"
                                "SwitchName=spine Switches=leaf[0-1]\n");
  const Choices h100{"", "h100-sxm5-80gb", std::nullopt};
  const Discovered listed = Discover(
      {cables, Made("hosts", "node3 slots=8\nnode0 slots=8\nnode1 slots=8\nnode3 slots=8\n")},
      h100);
  // Those that the hostfile leaves out come last.
  EXPECT_THAT(listed.spec.fabric.hosts, ElementsAre("node3", "node0", "node1", "node2", "node10"));
  EXPECT_THAT(listed.spec.fabric.switches[0].hosts, ElementsAre(1, 3, 4));
  EXPECT_THAT(listed.yaml, HasSubstr("hosts: [node3, node0, node1, node2, node10]  # nodes 0, 1, "
                                     "...: the order of hosts:1"));
  const Discovered named =
      Discover({cables, Made("nodes.txt", "NodeName=node0 Gres=gpu:h100:8\n")}, h100);
  EXPECT_THAT(named.spec.fabric.hosts, ElementsAre("node0", "node1", "node2", "node3", "node10"));
  EXPECT_THAT(named.yaml, HasSubstr("natural order of host names"));
  const Discovered one =
      Discover({Made("hosts", "b slots=8\na slots=8\n")}, {"", "h100-sxm5-80gb", std::nullopt});
  EXPECT_THAT(one.spec.fabric.hosts, ElementsAre("b", "a"));
}

TEST(Discover, ReadsAwsInstances) {
  const Discovered made = Discover({Sample("aws-topology.json")});
  EXPECT_EQ(made.nearest, "aws-p4d");
  EXPECT_EQ(made.spec.nodes, 3);
  EXPECT_EQ(made.spec.fabric.switches.size(), 5u);
  EXPECT_EQ(made.spec.node.nics.size(), 4u);
}

TEST(Discover, NamesUnknownGpus) {
  const Discovered made =
      Discover({Made("node.xml", NodeXml(1, 1, 2, 1, "0x020700", "0x1234", 0))});
  EXPECT_EQ(made.spec.gpu, kUnknownGpu);
  EXPECT_THAT(made.yaml, AllOf(HasSubstr("10de:1234"), HasSubstr("--gpu NAME")));
}

TEST(Discover, RefusesContradictionsWithBothPlaces) {
  const SourcePtr h100 = Made("a.xml", NodeXml(2, 2, 2, 1, "0x020700", "0x2330", 18));
  const SourcePtr a100 = Made("b.xml", NodeXml(2, 2, 2, 1, "0x020700", "0x20b2", 12));
  EXPECT_THAT(ErrorOf({h100, a100}),
              AllOf(HasSubstr("b.xml:4"), HasSubstr("a.xml:4 says h100-sxm5-80gb")));
  EXPECT_THAT(ErrorOf({h100, Sample("topo-m.txt")}),
              AllOf(HasSubstr("2 NICs here, but a.xml:1 says 4"), HasSubstr("topo-m.txt:2")));
  EXPECT_THAT(ErrorOf({Sample("topology.conf"), Made("hosts", "node0 slots=8\nnode9 slots=8\n")}),
              AllOf(HasSubstr("hosts:2"), HasSubstr("'node9' is on no switch")));
  EXPECT_THAT(ErrorOf({Made("t.conf", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n")}),
              testing::AnyOf(HasSubstr("loop"), HasSubstr("GPUs")));
  EXPECT_THAT(ErrorOf({Made("hosts", "n0 slots=8\nn1 slots=4\n")}), HasSubstr("hosts:2"));
  EXPECT_THAT(ErrorOf({h100}, {"", "a100-sxm4-80gb", std::nullopt}), HasSubstr("--gpu"));
}

TEST(Discover, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(ErrorOf({Made("x", "hello: world\nthis is no cluster\n")}),
              HasSubstr("nothing in this file describes a cluster"));
  EXPECT_THAT(ErrorOf({Made("t.conf", "SwitchName=a Nodes=n[0-99999999]\n")}),
              HasSubstr("no range of hosts"));
  EXPECT_THAT(ErrorOf({Made("t.conf", "SwitchName=a]},{b Nodes=node[0-1]\n"), Sample("hosts")}),
              HasSubstr("no name of a host or switch"));
  EXPECT_THAT(ErrorOf({Made("bomb.xml", "<!DOCTYPE system [<!ENTITY a \"aaaa\">]><system/>")}),
              HasSubstr("declares an entity"));
}

TEST(Discover, TopologyCommandsNameTheRightCommand) {
  const std::pair<const char*, const char*> files[] = {
      {"bridges.xml", "this is a topology dump of NCCL"}, {"hosts", "this is a hostfile"}};
  for (const auto& [file, what] : files) {
    try {
      LoadTopology(std::string(ORRERY_SOURCE_DIR) + "/tests/discover/data/" + file);
      ADD_FAILURE() << file;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(what), HasSubstr("plan discover")));
    }
  }
}

TEST(Discover, ATopologyOfItsOwnIsNoSource) {
  EXPECT_THAT(ErrorOf({Made("mine.yaml", Discover({Sample("provider.xml")}).yaml)}),
              HasSubstr("this is a topology already, as plan discover writes one"));
}

}  // namespace
}  // namespace orrery::discover
