// SPDX-License-Identifier: Apache-2.0
// NICs of a node: ports that are down, bonds, and what logs say of those in use.
#include <fmt/format.h>

#include <tuple>

#include "model/hardware/catalog.h"
#include "model/hardware/summary.h"
#include "tests/discover/testing.h"

namespace orrery::discover::nics {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

TEST(DiscoverNics, ReadsTheMatrixAndIbstat) {
  const Discovered made =
      Discover({Sample("topo-m.txt"), Sample("ibstat.txt")}, {"", "h100-sxm5-80gb", std::nullopt});
  EXPECT_EQ(made.spec.node.gpus, 4);
  EXPECT_EQ(made.spec.node.intra, IntraLink::kNvSwitch);
  EXPECT_EQ(made.spec.node.links_per_gpu, 18);
  EXPECT_EQ(made.spec.node.nics.size(), 1u);  // the other one is down
  EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 50e9);
  EXPECT_EQ(made.spec.node.hosts.size(), 2u);
  EXPECT_THAT(made.notes, Contains(AllOf(HasSubstr("mlx5_1 port 1 is in state Down"),
                                         HasSubstr("(ibstat.txt:13)"))));
}

TEST(DiscoverNics, CountsAPortThatIsDownAsNoNic) {
  const auto port = [](int number, const char* state, const char* link) {
    return fmt::format(
        "\tPort {}:\n\t\tState: {}\n\t\tPhysical state: {}\n\t\tRate: 400\n"
        "\t\tLink layer: InfiniBand\n",
        number, state, link);
  };
  const auto with = [&](const std::string& first, const std::string& second) {
    return Discover({Sample("topo-m.txt"),
                     Made("ibstat.txt", "CA 'mlx5_0'\n" + first + "CA 'mlx5_1'\n" + second)},
                    {"", "h100-sxm5-80gb", std::nullopt});
  };
  const std::string up = port(1, "Active", "LinkUp");
  EXPECT_EQ(with(up, up).spec.node.nics.size(), 2u);
  EXPECT_EQ(with(up, port(1, "Initializing", "LinkUp")).spec.node.nics.size(), 1u);
  for (const char* link : {"Polling", "Disabled"}) {
    const Discovered made = with(port(1, "Down", link), up);
    EXPECT_EQ(made.spec.node.nics.size(), 1u) << link;
    EXPECT_THAT(made.notes, Contains(HasSubstr("mlx5_0 port 1 is not linked")));
  }
  // Of two ports one is enough, whichever comes last.
  const Discovered both = with(up + port(2, "Down", "Polling"), up);
  EXPECT_EQ(both.spec.node.nics.size(), 2u);
  EXPECT_DOUBLE_EQ(both.spec.node.nic_rate.value, 50e9);
  EXPECT_THAT(both.notes, Contains(HasSubstr("mlx5_0 port 2 is not linked")));
  const std::string down = port(1, "Down", "Disabled");
  EXPECT_EQ(with(down, down).spec.node.nics.size(), 0u);
  EXPECT_THAT(ErrorOf({Sample("topo-m.txt"), Made("hosts", "a slots=4\nb slots=4\n"),
                       Made("ibstat.txt", "CA 'mlx5_0'\n" + down)},
                      {"", "h100-sxm5-80gb", std::nullopt}),
              HasSubstr("ibstat.txt:5:1: error: no port here is active"));
}

TEST(DiscoverNics, ABondOfEthernetIsNoNicOfTraining) {
  std::string topo =
      "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV18\tPIX\tNODE\tNODE\t0-7\t0\n"
      "GPU1\tNV18\t X \tNODE\tPIX\tNODE\t0-7\t0\n"
      "NIC0\tPIX\tNODE\t X \tNODE\tNODE\n"
      "NIC1\tNODE\tPIX\tNODE\t X \tNODE\n"
      "NIC2\tNODE\tNODE\tNODE\tNODE\t X \n"
      "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n  NIC2: mlx5_bond_0\n";
  const auto nic = [](const char* name, int rate, const char* layer) {
    return fmt::format(
        "CA '{}'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: {}\n"
        "\t\tLink layer: {}\n",
        name, rate, layer);
  };
  const Discovered made = Discover(
      {Made("topo.txt", topo),
       Made("ibstat.txt", nic("mlx5_0", 400, "InfiniBand") + nic("mlx5_1", 400, "InfiniBand") +
                              nic("mlx5_bond_0", 100, "Ethernet"))},
      {"", "h100-sxm5-80gb", std::nullopt});
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 50e9);
  EXPECT_EQ(made.spec.fabric_profile, "infiniband");
  EXPECT_THAT(made.notes,
              Contains("ignored mlx5_bond_0: roce next to 2 NICs of infiniband, not one "
                       "of training (topo.txt:6)"));
  ASSERT_EQ(made.left_out.size(), 1u);
  EXPECT_EQ(made.left_out[0].name, "mlx5_bond_0");
  EXPECT_EQ(made.left_out[0].why, "roce next to 2 NICs of infiniband");
}

// Ports alone, the one of storage first: it is no NIC, and its network is not that of the cluster.
TEST(DiscoverNics, AnEthernetPortNextToInfinibandIsNamed) {
  std::string text;
  for (const auto& [name, rate, layer] : {std::tuple("mlx5_0", 400, "Ethernet"),
                                          {"mlx5_1", 400, "InfiniBand"},
                                          {"mlx5_2", 400, "InfiniBand"}})
    text += fmt::format(
        "CA '{}'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: {}\n"
        "\t\tLink layer: {}\n",
        name, rate, layer);
  const Discovered made =
      Discover({Made("hosts", "a slots=2\nb slots=2\n"), Made("ibstat.txt", text)},
               {"", "h100-sxm5-80gb", std::nullopt});
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  EXPECT_EQ(made.spec.fabric_profile, "infiniband");
  EXPECT_THAT(made.notes, Contains("ignored mlx5_0: roce next to 2 NICs of infiniband, not one of "
                                   "training (ibstat.txt:5)"));
}

// Of every source: what is plain Ethernet, and what has a network of its own.
TEST(DiscoverNics, EveryNicThatIsLeftOutIsNamed) {
  std::string text =
      "00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]\n"
      "17:00.0 3D controller [0302]: NVIDIA Corporation H100 [10de:2330]\n"
      "18:00.0 Infiniband controller [0207]: Mellanox Technologies ConnectX-7 [15b3:1021]\n"
      "19:00.0 Infiniband controller [0207]: Mellanox Technologies ConnectX-7 [15b3:1021]\n"
      "2a:00.0 Ethernet controller [0200]: Mellanox Technologies ConnectX-6 [15b3:101d]\n"
      "2b:00.0 Ethernet controller [0200]: Intel Corporation I350 [8086:1521]\n";
  const Discovered made = Discover({Made("lspci.txt", text)});
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  EXPECT_THAT(made.notes,
              testing::IsSupersetOf(
                  {testing::StartsWith("ignored 2a:00.0: Ethernet, or of a network that no source "
                                       "names, next to 2 NICs of infiniband"),
                   testing::StartsWith("ignored 2b:00.0: Ethernet without RDMA next to 2 NICs of "
                                       "infiniband")}));
  EXPECT_EQ(made.left_out.size(), 2u);
  EXPECT_THAT(made.yaml, HasSubstr("# seen: ignored 2b:00.0: Ethernet without RDMA"));
}

// NCCL's XML of four GPUs, a NIC each: "400 1" is its rate in Gbps and its gdr.
std::string NcclXml(const char* kind, const std::vector<std::pair<int, int>>& nics) {
  std::string text =
      "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" "
      "vendor=\"GenuineIntel\">\n";
  for (int i = 0; i < 4; ++i)
    text += fmt::format(
        "<pci busid=\"0000:1{0}:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\" "
        "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{0}\" sm=\"90\" "
        "rank=\"{0}\"/></pci>\n",
        i);
  for (std::size_t i = 0; i < nics.size(); ++i)
    text += fmt::format(
        "<pci busid=\"0000:3{0}:00.0\" class=\"{1}\" vendor=\"0x15b3\" device=\"0x1021\" "
        "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><nic><net name=\"mlx5_{0}\" "
        "dev=\"{0}\" speed=\"{2}\" port=\"1\" gdr=\"{3}\"/></nic></pci>\n",
        i, kind, nics[i].first * 1000, nics[i].second);
  return text + "</cpu>\n</system>\n";
}

TEST(DiscoverNics, ANicThatHasTrainedDownIsNamed) {
  const Discovered made =
      Discover({Made("x.xml", NcclXml("0x020700", {{400, 1}, {400, 1}, {200, 1}, {400, 1}}))});
  EXPECT_EQ(made.spec.node.nics.size(), 4u);
  EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 50e9);
  EXPECT_THAT(made.notes, Contains("mlx5_2 runs at 200Gbps, most NICs at 400Gbps (x.xml:9)"));
  EXPECT_THAT(made.yaml, HasSubstr("rate: 400Gbps, degraded: {nic2: 200Gbps}}  # x.xml:1"));
  EXPECT_THAT(made.yaml, HasSubstr("; nic2: mlx5_2, x.xml:9\n"));
  EXPECT_DOUBLE_EQ(Summarise(made.spec, 1).nic_rate.value, 25e9);
  // As many of each: nobody can tell.
  EXPECT_THAT(ErrorOf({Made("x.xml", NcclXml("0x020700", {{400, 1}, {200, 1}}))}),
              HasSubstr("x.xml:8"));
}

// What goes over all NICs in equal parts waits for the slowest.
TEST(DiscoverNics, ASlotThatCarriesLessThanItsPortIsNamedAndCounts) {
  std::string text = NcclXml("0x020700", {{400, 1}, {400, 1}, {400, 1}, {400, 1}});
  const std::size_t end = text.find("mlx5_2"), at = text.rfind("link_width=\"16\"", end);
  text.replace(at, 15, "link_width=\"4\"");
  const Discovered made = Discover({Made("x.xml", text)});
  EXPECT_EQ(made.spec.node.nics.size(), 4u);
  EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 50e9);
  EXPECT_NEAR(NicRate(made.spec.node, 2).value, 15.75e9, 0.1e9);
  EXPECT_NEAR(Summarise(made.spec, 1).nic_rate.value, 15.75e9, 0.1e9);
  EXPECT_THAT(made.notes, Contains(AllOf(HasSubstr("PCIe of mlx5_2 carries 126Gbps"),
                                         HasSubstr("its port's 400Gbps (x.xml:9)"))));
}

TEST(DiscoverNics, AGpuOnFewerLanesIsNamed) {
  std::string text = NcclXml("0x020700", {{400, 1}, {400, 1}, {400, 1}, {400, 1}});
  const std::size_t line = text.find("0000:12:00.0");
  text.replace(text.find("link_width=\"16\"", line), 15, "link_width=\"8\"");
  EXPECT_THAT(Discover({Made("x.xml", text)}).notes,
              Contains(AllOf(HasSubstr("PCIe of gpu2 runs at 31.5"), HasSubstr("(x.xml:5)"),
                             HasSubstr("other GPUs at up to 63"))));
}

TEST(DiscoverNics, NicsOfStorageAreNotThoseOfTraining) {
  for (const int gdr : {0, 1}) {
    const Discovered made = Discover(
        {Made("x.xml", NcclXml("0x020000",
                               {{400, 1}, {400, 1}, {400, 1}, {400, 1}, {200, gdr}, {200, gdr}}))});
    EXPECT_EQ(made.spec.node.nics.size(), 4u) << gdr;
    EXPECT_DOUBLE_EQ(made.spec.node.nic_rate.value, 50e9);
    EXPECT_THAT(made.notes,
                Contains(AllOf(HasSubstr("ignored mlx5_5: "), HasSubstr("(x.xml:12)"))));
  }
}

std::string Adapters(const std::vector<std::pair<int, const char*>>& nics) {
  std::string text;
  for (std::size_t i = 0; i < nics.size(); ++i)
    text += fmt::format(
        "CA 'mlx5_{}'\n\tCA type: {}\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
        "\t\tRate: {}\n\t\tLink layer: InfiniBand\n",
        i, nics[i].second, nics[i].first);
  return text;
}

// Seven of eight, which eight GPUs have: the eighth is there, and as slow as its port says.
TEST(DiscoverNics, APortThatHasTrainedDownIsDegraded) {
  std::vector<std::pair<int, const char*>> nics(8, {400, "MT4129"});
  nics[3].first = 100;
  const auto of = [&] {
    return Discover({Made("ib.txt", Adapters(nics))}, {"", "h100-sxm5-80gb", 2});
  };
  const Discovered made = of();
  EXPECT_THAT(made.yaml, HasSubstr("nics: {count: 8, rate: 400Gbps, degraded: {nic3: 100Gbps}}  # "
                                   "ib.txt:6; nic3: mlx5_3, ib.txt:27\n"));
  EXPECT_DOUBLE_EQ(Summarise(made.spec, 2).nic_rate.value, 12.5e9);
  EXPECT_THAT(made.notes, Contains("mlx5_3 runs at 100Gbps, most at 400Gbps (ib.txt:27)"));
  // Another adapter, and one beyond the eight, are not of training.
  nics[3].second = "MT4123";
  EXPECT_EQ(of().spec.node.nics.size(), 7u);
  nics = std::vector<std::pair<int, const char*>>(9, {400, "MT4129"});
  nics[8].first = 100;
  const Discovered storage = of();
  EXPECT_EQ(storage.spec.node.nics.size(), 8u);
  EXPECT_TRUE(storage.spec.node.degraded_nics.empty());
  EXPECT_THAT(storage.notes,
              Contains("ignored mlx5_8: at 100Gbps next to 8 NICs at 400Gbps with the same adapter "
                       "(MT4129): has its link trained down?, not one of training (ib.txt:62)"));
}

std::string Slots(const char* gpu, const char* nic) {
  const auto link = [](const char* now) {
    return fmt::format(
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n\t\tLnkSta:\t{}\n",
        now);
  };
  const char* whole = "Speed 32GT/s, Width x16";
  std::string text;
  for (int i = 0; i < 4; ++i)
    text += fmt::format("1{}:00.0 3D controller [0302]: NVIDIA Corporation H100 [10de:2330]\n", i) +
            link(i == 2 ? gpu : whole);
  for (int i = 0; i < 4; ++i)
    text += fmt::format("3{}:00.0 Infiniband controller [0207]: Mellanox CX-7 [15b3:1021]\n", i) +
            link(i == 1 ? nic : whole);
  return text;
}

// lspci -vv: the lanes of a slot hold its NIC to less than its port.
TEST(DiscoverNics, ANicOnFewerLanesIsDegraded) {
  const std::string slots = Slots("Speed 32GT/s, Width x16", "Speed 32GT/s, Width x8 (downgraded)");
  const std::vector<std::pair<int, const char*>> nics(4, {400, "MT4129"});
  const Discovered made =
      Discover({Made("lspci.txt", slots), Made("ib.txt", Adapters(nics))}, {"", "", std::nullopt});
  EXPECT_THAT(made.yaml,
              HasSubstr("nics: {count: 4, rate: 400Gbps, degraded: {nic1: 252.062Gbps}}"));
  EXPECT_THAT(made.notes, Contains("31:00.0 runs its PCIe link at 31.5 of 63 GB/s (lspci.txt:16)"));
  EXPECT_THAT(made.notes, Contains(HasSubstr("PCIe of mlx5_1 carries 252.1Gbps, less than its "
                                             "port's 400Gbps (lspci.txt:16)")));
}

TEST(DiscoverNics, AGpuWithoutWorkRestsAndAGpuOnFewerLanesDoesNot) {
  const auto rate = [](const char* gpu) {
    return Discover({Made("lspci.txt", Slots(gpu, "Speed 32GT/s, Width x16"))})
               .spec.node.pcie_rate.value /
           1e9;
  };
  EXPECT_NEAR(rate("Speed 2.5GT/s (downgraded), Width x16"), 63, 0.1);
  EXPECT_NEAR(rate("Speed 2.5GT/s (downgraded), Width x8 (downgraded)"), 31.5, 0.1);
  EXPECT_NEAR(rate("Speed 16GT/s (downgraded), Width x16"), 31.5, 0.1);
}

TEST(DiscoverNics, ReadsRoceFromIbstatus) {
  EXPECT_EQ(Discover({Sample("topo-m.txt"), Sample("ibstatus.txt")}).spec.fabric_profile, "roce");
}

TEST(DiscoverNics, ALogOfAmazonsPluginNamesTheMachine) {
  const std::string front = "[1,0]<stdout>:ip-1:501:620 [0] NCCL INFO ";
  const Discovered made = Discover({Made(
      "log", front + "NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)\n" +
                 front + "NET/OFI Running on p5.48xlarge platform, topology file p5.xml\n" + front +
                 "comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0\n")});
  EXPECT_EQ(made.spec.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(made.spec.nodes, 2);
  EXPECT_EQ(made.spec.fabric_profile, "efa-rdma");
  EXPECT_EQ(made.spec.node.nics.size(), LoadTopology("aws-p5").node.nics.size());
}

TEST(DiscoverNics, ANodeThatUsesFewerNicsIsNamed) {
  const auto line = [](const char* host, const char* nics) {
    return fmt::format(
        "{0}:1:2 [0] NCCL INFO NET/IB : Using {1} [RO]; OOB eth0:10.0.0.1<0>\n"
        "{0}:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId 7000 - Init\n",
        host, nics);
  };
  const Discovered made = Discover(
      {Made("log", line("a", "[0]mlx5_0:1/IB [1]mlx5_1:1/IB") + line("b", "[0]mlx5_0:1/IB"))},
      {"", "h100-sxm5-80gb", 2});
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  EXPECT_THAT(made.notes, Contains(HasSubstr("b uses 1 NICs (log:3), another node 2 (log:1)")));
}

std::string Ports(const std::vector<std::tuple<const char*, int, const char*>>& ports) {
  std::string text;
  for (const auto& [name, rate, layer] : ports)
    text += fmt::format(
        "CA '{}'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: {}\n"
        "\t\tLink layer: {}\n",
        name, rate, layer);
  return text;
}
std::string NicsText(const Discovered& made) {
  return fmt::format("{} x {:.0f} Gbps of {}", made.spec.node.nics.size(),
                     made.spec.node.nic_rate.value * 8 / 1e9, made.spec.fabric_profile);
}
const Choices kFourH100 = {"", "h100-sxm5-80gb", 4};

// One port of 400G and an Ethernet card with two of 25G: the majority of ports had won, 8 times too slow.
TEST(DiscoverNics, TheGroupThatCarriesMostIsThatOfTraining) {
  const SourcePtr ports = Made("ib.txt", Ports({{"mlx5_0", 400, "InfiniBand"},
                                                {"mlx5_2", 25, "Ethernet"},
                                                {"mlx5_3", 25, "Ethernet"}}));
  const Discovered alone = Discover({ports}, kFourH100);
  EXPECT_EQ(NicsText(alone), "1 x 400 Gbps of infiniband");
  EXPECT_THAT(alone.notes, Contains("ignored mlx5_2: roce next to 1 NIC of infiniband, not one of "
                                    "training (ib.txt:11)"));
  EXPECT_EQ(alone.left_out.size(), 2u);

  const std::string topo =
      "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV18\tPIX\tSYS\tSYS\t0-7\t0\n"
      "GPU1\tNV18\t X \tSYS\tSYS\tSYS\t8-15\t1\n"
      "NIC0\tPIX\tSYS\t X \tSYS\tSYS\n"
      "NIC1\tSYS\tSYS\tSYS\t X \tPIX\n"
      "NIC2\tSYS\tSYS\tSYS\tPIX\t X \n"
      "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_2\n  NIC2: mlx5_3\n";
  const Discovered next = Discover({Made("topo.txt", topo), ports}, kFourH100);
  EXPECT_EQ(NicsText(next), "1 x 400 Gbps of infiniband");
  EXPECT_THAT(next.left_out, testing::SizeIs(2));
  for (const LeftOut& one : next.left_out) EXPECT_NE(one.name, "mlx5_0");
  // What lies next to a GPU wins against more rate elsewhere.
  const Discovered near =
      Discover({Made("topo.txt", topo), Made("ib.txt", Ports({{"mlx5_0", 100, "Ethernet"},
                                                              {"mlx5_2", 200, "InfiniBand"},
                                                              {"mlx5_3", 200, "InfiniBand"}}))},
               kFourH100);
  EXPECT_EQ(NicsText(near), "1 x 100 Gbps of roce");

  const SourcePtr slots =
      Made("lspci.txt",
           "17:00.0 3D controller [0302]: NVIDIA Corporation H100 [10de:2330]\n"
           "18:00.0 Infiniband controller [0207]: Mellanox Technologies ConnectX-7 [15b3:1021]\n"
           "2a:00.0 Ethernet controller [0200]: Mellanox Technologies ConnectX-4 Lx [15b3:1015]\n"
           "2a:00.1 Ethernet controller [0200]: Mellanox Technologies ConnectX-4 Lx [15b3:1015]\n");
  const Discovered both = Discover({slots, ports}, kFourH100);
  EXPECT_EQ(NicsText(both), "1 x 400 Gbps of infiniband");
  EXPECT_THAT(both.notes, Not(Contains(HasSubstr("ignored mlx5_0"))));
}

TEST(DiscoverNics, OfUnequalPortsTheFasterOnesAreTaken) {
  const Discovered made =
      Discover({Made("ib.txt", Ports({{"mlx5_0", 100, "Ethernet"}, {"mlx5_1", 200, "Ethernet"}}))},
               kFourH100);
  EXPECT_EQ(NicsText(made), "1 x 200 Gbps of roce");
  EXPECT_THAT(made.notes, Contains("ignored mlx5_0: at 100Gbps next to 1 NIC at 200Gbps, not one "
                                   "of training (ib.txt:5)"));
  const Discovered tie = Discover(
      {Made("ib.txt", Ports({{"mlx5_0", 100, "Ethernet"}, {"mlx5_1", 100, "InfiniBand"}}))},
      kFourH100);
  EXPECT_EQ(NicsText(tie), "1 x 100 Gbps of infiniband");
  EXPECT_THAT(tie.notes, Contains(HasSubstr("ignored mlx5_0: roce next to 1 NIC of infiniband, as "
                                            "fast as these")));
}

// NICs of storage on no switch with a GPU, of which topo -m alone says no rate.
TEST(DiscoverNics, ThoseFarFromGpusAreNotOfTrainingWhereEachGpuHasItsOwn) {
  const Discovered made = Discover({Made("topo.txt",
                                         "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\n"
                                         "GPU0\t X \tNV18\tPIX\tSYS\tSYS\n"
                                         "GPU1\tNV18\t X \tSYS\tPIX\tSYS\n"
                                         "NIC0\tPIX\tSYS\t X \tSYS\tSYS\n"
                                         "NIC1\tSYS\tPIX\tSYS\t X \tSYS\n"
                                         "NIC2\tSYS\tSYS\tSYS\tSYS\t X \n")},
                                   kFourH100);
  EXPECT_EQ(made.spec.node.nics.size(), 2u);
  EXPECT_THAT(made.notes, Contains(HasSubstr("ignored NIC2: on no PCIe switch with a GPU")));
}

// The log of a job against what lists of ports and slots show.
TEST(DiscoverNics, ALogThatDiffersFromOtherSourcesIsRefusedWithBothPlaces) {
  const auto log = [](const char* network) {
    return Made("log", fmt::format("a:1:2 [0] NCCL INFO NET/{} [RO]; OOB eth0:10.0.0.1<0>\n"
                                   "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId "
                                   "7000 - Init\n",
                                   network));
  };
  const auto four = [](const char* layer) {
    return Made("ib.txt", Ports({{"mlx5_0", 200, layer},
                                 {"mlx5_1", 200, layer},
                                 {"mlx5_2", 200, layer},
                                 {"mlx5_3", 200, layer}}));
  };
  const SourcePtr topo = Sample("topo-m.txt");  // mlx5_0 and mlx5_1
  const SourcePtr two =
      Made("ib.txt", Ports({{"mlx5_0", 200, "InfiniBand"}, {"mlx5_1", 200, "InfiniBand"}}));
  const Choices h100 = {"", "h100-sxm5-80gb", std::nullopt};
  const char* const both = "IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB";
  const char* const roce = "IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE";
  const char* const sockets = "Socket : Using [0]eth0:10.0.0.1<0>";
  EXPECT_EQ(NicsText(Discover({topo, two, log(both)}, h100)), "2 x 200 Gbps of infiniband");
  EXPECT_THAT(ErrorOf({four("InfiniBand"), log(both)}, h100),
              AllOf(HasSubstr("log:1:1: error: 2 NICs in use here, but ib.txt:5 shows 4"),
                    HasSubstr("NCCL_IB_HCA")));
  EXPECT_THAT(ErrorOf({topo, log("IB : Using [0]mlx5_0:1/IB")}, h100),
              HasSubstr("log:1:1: error: 1 NIC in use here, but topo-m.txt:2 shows 2"));
  for (const std::vector<SourcePtr>& shown : {std::vector<SourcePtr>{topo, two}, {two}}) {
    for (const auto& [said, network] : {std::pair(sockets, "tcp"), {roce, "roce"}}) {
      std::vector<SourcePtr> files = shown;
      files.push_back(log(said));
      EXPECT_THAT(ErrorOf(files, h100),
                  HasSubstr(fmt::format("log:1:1: error: the network is {} here, but ib.txt:5 says "
                                        "infiniband of mlx5_0",
                                        network)));
    }
  }
  // NCCL may use a port of storage, too.
  const SourcePtr mixed =
      Made("ib.txt", Ports({{"mlx5_0", 200, "InfiniBand"}, {"mlx5_1", 100, "InfiniBand"}}));
  EXPECT_EQ(NicsText(Discover({mixed, log(both)}, h100)), "1 x 200 Gbps of infiniband");
  // Sockets over Ethernet ports are no contradiction, but worth a word.
  const Discovered slow = Discover({four("Ethernet"), log(sockets)}, h100);
  EXPECT_EQ(NicsText(slow), "4 x 200 Gbps of tcp");
  EXPECT_THAT(slow.notes, Contains("NCCL uses sockets (log:1) where it could use RDMA: ib.txt:5 "
                                   "says roce of mlx5_0"));
}

TEST(DiscoverNics, ALogWithTwoNetworksNamesBoth) {
  const Discovered made =
      Discover({Made("log",
                     "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE "
                     "[2]mlx5_2:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n"
                     "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId 7000 - Init\n")},
               {"", "h100-sxm5-80gb", std::nullopt});
  EXPECT_EQ(made.spec.fabric_profile, "roce");
  EXPECT_THAT(made.notes,
              Contains("NCCL uses mlx5_0 of InfiniBand and mlx5_1, mlx5_2 of RoCE together, taken "
                       "for 3 NICs of roce (log:1)"));
}

}  // namespace
}  // namespace orrery::discover::nics
