// SPDX-License-Identifier: Apache-2.0
// Wrong topology files: each ends in an error at the right line that says what would be right.
#include <random>

#include "tests/topo/testing.h"

namespace orrery {
namespace {

struct BadCase {
  const char* name;
  const char* find;  // replaced in the good text
  const char* replace;
  int line;          // where the first error must be; 0: anywhere
  const char* says;  // part of the rendered errors
};

const char* const kGood =
    "name: test\n"  // 1
    "description: d\n"
    "source: s\n"
    "evidence: C\n"
    "gpu: a100-sxm4-80gb\n"  // 5
    "fabric_profile: infiniband\n"
    "nodes: 2\n"
    "max_nodes: 8\n"
    "price: {per_node_hour: 10USD/h, source: list}\n"
    "node:\n"  // 10
    "  gpus: 4\n"
    "  scale_up:\n"
    "    kind: cube-mesh\n"
    "    per_link: 25GB/s\n"
    "    links:\n"  // 15
    "      - [gpu0, gpu1, 2]\n"
    "      - [gpu2, gpu3, 2]\n"
    "  nics: {count: 2, rate: 100Gbps}\n"
    "  pcie:\n"
    "    rate: 31.5GB/s\n"  // 20
    "    between_hosts: 16GB/s\n"
    "    tree:\n"
    "      - {host: cpu0, switch: plx0, devices: [gpu0, gpu1, nic0]}\n"
    "      - {host: cpu1, switch: plx1, devices: [gpu2, gpu3, nic1]}\n"
    "fabric: {kind: fat-tree, levels: 2, leaf_ports: 16}\n";  // 25

const BadCase kCases[] = {
    {"MissingDeviceInLink", "[gpu2, gpu3, 2]", "[gpu2, gpu9, 2]", 17, "no device 'gpu9'"},
    {"MissingDeviceInTree", "devices: [gpu2, gpu3, nic1]", "devices: [gpu2, gpu3, nic7]", 24,
     "no device 'nic7'"},
    {"NicWithoutSwitch", "[gpu2, gpu3, nic1]", "[gpu2, gpu3]", 0,
     "nic1 hangs on no switch or host"},
    {"GpuPlacedTwice", "[gpu2, gpu3, nic1]", "[gpu2, gpu3, nic1, gpu0]", 24,
     "'gpu0' is placed a second time"},
    {"DuplicateSwitch", "plx1", "plx0", 24, "second switch named 'plx0'"},
    {"SwitchNamedLikeHost", "switch: plx1", "switch: cpu0", 24, "taken by another device"},
    {"HostNamedLikeGpu", "host: cpu1", "host: gpu1", 24, "taken by another device"},
    {"LinkToItself", "[gpu2, gpu3, 2]", "[gpu2, gpu2, 2]", 17, "to itself"},
    {"LinkedTwice", "[gpu2, gpu3, 2]", "[gpu1, gpu0, 2]", 17, "linked twice"},
    {"LinkCountZero", "[gpu2, gpu3, 2]", "[gpu2, gpu3, 0]", 17, ""},
    {"LinkOfTwoCells", "[gpu2, gpu3, 2]", "[gpu2, gpu3]", 17, "a link is [device, device, count]"},
    {"UnknownCpu", "    between_hosts: 16GB/s\n", "    between_hosts: 16GB/s\n    cpu: sparc\n", 22,
     "intel"},
    {"DirectIsNoNumber", "rate: 100Gbps}", "rate: 100Gbps, gpu_direct: some}", 18, ""},
    {"NoGpus", "gpus: 4", "gpus: 0", 11, ""},
    {"TooManyGpus", "gpus: 4", "gpus: 1000000", 11, ""},
    {"NoNics", "count: 2", "count: 0", 18, ""},
    {"NoNodes", "nodes: 2", "nodes: 0", 7, ""},
    {"MoreNodesThanMax", "nodes: 2", "nodes: 9", 7, "more nodes than max_nodes, which is 8"},
    {"DomainOfAMesh", "per_link: 25GB/s", "per_link: 25GB/s\n    domain_nodes: 18", 15,
     "domain_nodes"},
    {"BareRate", "per_link: 25GB/s", "per_link: 25", 14, ""},
    {"ZeroRate", "per_link: 25GB/s", "per_link: 0GB/s", 14, ""},
    {"WrongUnit", "rate: 100Gbps", "rate: 100GB", 18, ""},
    {"UnknownKey", "leaf_ports", "leaf_prots", 25, "leaf_ports"},
    {"UnknownFabric", "kind: fat-tree", "kind: fat-tre", 25, "fat-tree"},
    {"UnknownProfile", "fabric_profile: infiniband", "fabric_profile: infinband", 6, "infiniband"},
    {"UnknownEvidence", "evidence: C", "evidence: D", 4, ""},
    {"UnknownGpuProfile", "gpu: a100-sxm4-80gb", "gpu: a100-smx4-80gb", 5, "a100-sxm4-80gb"},
    {"BadGpuId", "gpu: a100-sxm4-80gb", "gpu: A100!", 5, "not an id"},
    {"NoProfileAtThePath", "gpu: a100-sxm4-80gb", "gpu: ./secret", 5, "no profile"},
    {"ProfileOutside", "gpu: a100-sxm4-80gb", "gpu: ../secret", 5, "leaves the folder"},
    {"NoCores", "gpu: a100-sxm4-80gb", "gpu: a100-sxm4-80gb\ncores: 0", 6, "cores"},
    {"UnknownSoftwareProfile", "gpu: a100-sxm4-80gb",
     "gpu: a100-sxm4-80gb\nframeworks: {orrery: no-such-profile}", 6, "no-such-profile"},
    {"SeveralGpusWithoutLinks", "kind: cube-mesh", "kind: none", 13, "'none' with 4 GPUs"},
    {"HostsWithoutALink", "    between_hosts: 16GB/s\n", "", 0, "between_hosts"},
    {"NodeWiderThanALeaf", "leaf_ports: 16", "leaf_ports: 1", 25,
     "a node has 2 NICs, one leaf 1 ports"},
    {"OversubscriptionBelowOne", "leaf_ports: 16", "leaf_ports: 16, oversubscription: 0.5", 25, ""},
    {"NoFabric", "fabric: {kind: fat-tree, levels: 2, leaf_ports: 16}\n", "", 8,
     "8 nodes without a fabric"},
    {"TorusTooSmall", "kind: fat-tree, levels: 2, leaf_ports: 16",
     "kind: torus, dims: [2, 3], link_rate: 100Gbps", 25, "this torus has 6 routers"},
    {"TorusOfHugeExtents", "kind: fat-tree, levels: 2, leaf_ports: 16",
     "kind: torus, dims: [65536, 65536, 65536, 65536, 65536], link_rate: 100Gbps", 25, "at most"},
    {"DragonflyTooSmall", "kind: fat-tree, levels: 2, leaf_ports: 16",
     "kind: dragonfly, routers_per_group: 1, ports_per_router: 2, global_links: 1, link_rate: "
     "100Gbps",
     25, "this dragonfly connects 2"},
    {"NegativePrice", "10USD/h", "10EUR/h", 9, ""},
    {"Truncated", "fabric: {kind: fat-tree, levels: 2, leaf_ports: 16}\n",
     "fabric: {kind: fat-tree, lev", 0, ""},
    {"MissingNode", "node:\n", "nod:\n", 0, "node"},
};

class BadTopology : public testing::TestWithParam<BadCase> {};

TEST_P(BadTopology, IsRefusedAtItsPlace) {
  const BadCase& bad = GetParam();
  std::string text = kGood;
  const std::size_t at = text.find(bad.find);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(bad.find).size(), bad.replace);
  try {
    ParseTopology(text);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(bad.says), std::string::npos) << error.what();
    if (bad.line > 0) {
      EXPECT_EQ(error.diagnostics().front().where.line, bad.line) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, BadTopology, testing::ValuesIn(kCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(BadTopologies, TheTextTheyAreMadeFromIsGood) { EXPECT_EQ(ParseTopology(kGood).node.gpus, 4); }

// Cut and garbled texts either read or end in an InputError; what reads also builds.
TEST(BadTopologies, GarbledTextNeverCrashes) {
  std::mt19937 random(7);
  const std::string good = kGood;
  int accepted = 0;
  for (int i = 0; i < 3'000; ++i) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 3; edits > 0 && !text.empty(); --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.resize(at + 1);
          break;
        case 1:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 2:
          text.erase(at, random() % 5);
          break;
        default:
          text.insert(at, good.substr(random() % good.size(), random() % 20));
          break;
      }
    }
    try {
      BuildCluster(ParseTopology(text), 1);
      ++accepted;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 3'000);
}

}  // namespace
}  // namespace orrery
