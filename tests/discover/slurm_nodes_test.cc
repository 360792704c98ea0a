// SPDX-License-Identifier: Apache-2.0
// What `scontrol show node` says of GPUs: short names, slices, nodes without any.
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
  EXPECT_THAT(made.notes, Contains(HasSubstr("4 nodes have no GPUs and are left out, c1 is one")));
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

}  // namespace
}  // namespace orrery::discover
