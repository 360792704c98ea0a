// SPDX-License-Identifier: Apache-2.0
// NCCL's choices, against a part of the reference table (nccl_choices.csv: three sizes, by hash, of every
// machine, ranks, nodes and collective; the machines in nccl_machines/).
#include "model/collectives/nccl_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/collectives/choice_table.h"
#include "model/base/csv.h"
#include "model/base/diagnostics.h"
#include "model/collectives/nccl/machine.h"
#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "model/hardware/measured_collectives.h"
#include "model/hardware/nccl_release.h"

namespace orrery {
namespace {

const std::string kFolder = std::string(ORRERY_SOURCE_DIR) + "/tests/collectives/";

std::shared_ptr<const nccl::Communicator> On(const std::string& machine, int gpus, int nodes) {
  const bool own = machine.ends_with("*");
  const TopologySpec spec = LoadTopology(
      own ? kFolder + "nccl_machines/" + machine.substr(0, machine.size() - 1) + ".yaml" : machine);
  return NcclCommunicator(Summarise(spec, nodes, gpus), LoadGpuProfile(spec.gpu),
                          LoadFabricProfile(spec.fabric_profile),
                          GroupShape{gpus * nodes, gpus, 1});
}

TEST(NcclChoice, AgreesWithTheReference) {
  int rows = 0;
  for (const ChoiceAgreement& one :
       CompareChoices(kFolder + "nccl_choices.csv", kFolder + "nccl_machines")) {
    ++rows;
    EXPECT_TRUE(one.algorithm && one.protocol && one.channels && one.threads)
        << one.row.machine << " " << one.row.nodes << " x " << one.row.gpus_per_node << " "
        << one.row.collective << " " << one.row.bytes << ": NCCL " << one.row.algorithm << " "
        << one.row.protocol << " " << one.row.channels << "x" << one.row.threads << ", twin "
        << one.choice;
  }
  EXPECT_GT(rows, 1000);
}

// Latencies that a public tuning log of two nodes of 8 A100 prints: tree LL 25.2, Simple 92.4, ring Simple
// 131.6 us on hosts with Intel CPUs.
TEST(NcclChoice, AssumesTheLatenciesOfItsLog) {
  const auto two = On("p4d-a100*", 8, 2);
  ASSERT_NE(two, nullptr);
  const auto latency = [&](nccl::Algorithm algorithm, nccl::Protocol protocol) {
    return two->line(nccl::Operation::kAllReduce, algorithm, protocol).latency;
  };
  EXPECT_NEAR(latency(nccl::Algorithm::kTree, nccl::Protocol::kLl), 25.2, 0.05);
  EXPECT_NEAR(latency(nccl::Algorithm::kTree, nccl::Protocol::kSimple), 92.4, 0.05);
  EXPECT_NEAR(latency(nccl::Algorithm::kRing, nccl::Protocol::kSimple), 131.6, 0.05);
}

// p5 logs print 24 channels and 16 of NVLS on one node; 8 x 48 GB/s and pairs of swapped rails on several.
TEST(NcclChoice, FindsTheChannelsOfAHopperNode) {
  const auto one = On("dgx-h100", 8, 1), two = On("dgx-h100", 8, 2);
  EXPECT_EQ(one->channels(), 24);
  EXPECT_EQ(one->nvls_channels(), 16);
  EXPECT_EQ(two->channels(), 16);
  const nccl::Graph& ring = two->graphs().ring;
  EXPECT_EQ(ring.channels, 8);
  EXPECT_FLOAT_EQ(ring.across, 48);
  EXPECT_EQ(ring.cross_nic, 2);
  EXPECT_EQ(ring.nets[0][0], ring.nets[1][1]);
}

// NCCL pull request 1952: with a switch for every GPU and NIC no tree is found, and one slow channel is
// all that several nodes get.
TEST(NcclChoice, KeepsTheFaultOfFourAmperes) {
  EXPECT_EQ(On("a100x4-pcisw*", 4, 2)->channels(), 2);
  EXPECT_EQ(On("a100x4*", 4, 2)->channels(), 8);
}

// Without a switch GPUs are tried by what the search has left of their PCIe slots: the order that NCCL
// 2.28.9 finds on four A100 in a full mesh.
TEST(NcclChoice, LaysRingsAsNccl) {
  const auto two = On("a100x4*", 4, 2);
  const nccl::Graph& ring = two->graphs().ring;
  ASSERT_EQ(ring.channels, 4);
  EXPECT_EQ(std::vector<int>(ring.order.begin(), ring.order.begin() + 16),
            (std::vector<int>{0, 1, 2, 3, 1, 0, 3, 2, 2, 1, 0, 3, 3, 2, 1, 0}));
  const auto hopper = On("dgx-h100*", 8, 2);
  EXPECT_EQ(std::vector<int>(hopper->graphs().ring.order.begin(),
                             hopper->graphs().ring.order.begin() + 16),
            (std::vector<int>{0, 7, 6, 5, 4, 3, 2, 1, 1, 2, 3, 4, 5, 6, 7, 0}));
}

// A cube mesh holds six rings of 20 GB/s over eight GPUs and is searched without a switch.
TEST(NcclChoice, FindsTheRingsOfACubeMesh) {
  const auto node = On("dgx1-v100", 8, 1);
  const nccl::Graph& ring = node->graphs().ring;
  EXPECT_EQ(ring.channels, 6);
  EXPECT_FLOAT_EQ(ring.inside, 20);
  EXPECT_EQ(ring.distance_inside, nccl::kNvLink);
  EXPECT_EQ(node->nvls_channels(), 0);
}

TEST(NcclChoice, IsNoneWhereNcclDoesNotRun) {
  EXPECT_EQ(On("aws-dl1", 8, 1), nullptr);  // Gaudi
  const auto choice = On("dgx-h100", 8, 2)->Choose(nccl::Operation::kAllReduce, 1 << 30);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, nccl::Algorithm::kNvlsTree);
  EXPECT_FALSE(NcclOperation(Collective::kAllToAll));
}

Network Between(const std::string& machine, int nodes, int gpus, const BandwidthUse& use = {}) {
  const ClusterSummary cluster = Summarise(LoadTopology(machine), nodes, gpus);
  return ViewNetwork(cluster, LoadGpuProfile(cluster.gpu),
                     LoadFabricProfile(cluster.fabric_profile), GroupShape{nodes * gpus, gpus, 1},
                     use);
}

// "tree" by LL, LL128 or Simple, as far as prices tell protocols apart.
std::string PricedBy(const Network& network, double bytes) {
  const MessagePrice price = PriceMessage(Collective::kAllReduce, network, bytes);
  return price.algorithm->name() + fmt::format(" {}", nccl::Name(price.protocol));
}

// Between nodes a price is that of the algorithm and protocol that NCCL takes. Where the fabric has no LL128 (EFA, TCPXO), it
// is the faster of LL and Simple.
TEST(NcclChoice, IsWhatIsPricedBetweenNodes) {
  constexpr std::pair<const char*, int> kClusters[] = {
      {"dgx-h100", 4}, {"aws-p4de", 2}, {"gcp-a3-mega", 2}, {"aws-p3dn", 2}, {"dgx-a100-80", 64}};
  for (const auto& [machine, nodes] : kClusters) {
    const Network network = Between(machine, nodes, 8);
    const auto nccl = NcclCommunicator(network.nccl, network.shape);
    ASSERT_NE(nccl, nullptr);
    const PreparedCollective prepared = Prepare(Collective::kAllReduce, network);
    for (double bytes = 1024; bytes<2e10; bytes *= bytes> 1e9 ? 1.37 : 2) {
      const auto choice = nccl->Choose(nccl::Operation::kAllReduce, bytes);
      std::string algorithm = nccl::Name(choice->algorithm);
      std::ranges::replace(algorithm, '_', '-');
      const std::string priced = PricedBy(network, bytes);
      const std::string where = fmt::format("{} x {}, {} bytes", nodes, machine, bytes);
      if (choice->protocol == nccl::Protocol::kLl128 && network.line128_bandwidth == 0) {
        EXPECT_TRUE(priced == algorithm + " ll" || priced == algorithm + " simple")
            << where << ": " << priced;
      } else {
        EXPECT_EQ(priced, algorithm + fmt::format(" {}", nccl::Name(choice->protocol))) << where;
      }
      const std::string_view words = priced.ends_with(" ll")      ? " (LL)"
                                     : priced.ends_with(" ll128") ? " (LL128)"
                                                                  : "";
      EXPECT_EQ(prepared.Choice(bytes), fmt::format("{}{}", algorithm, words)) << where;
    }
  }
}

// EFA's plugin makes one device of the four NICs of a GPU: p5 chooses as machines with one fast NIC per GPU do.
TEST(NcclChoice, TakesTheRailsOfAGpuForOneDevice) {
  const Network rails = Between("aws-p5", 2, 8);
  EXPECT_EQ(rails.nics, 8);
  EXPECT_EQ(NcclCommunicator(rails.nccl, rails.shape)->nvls_channels(),
            On("dgx-h100", 8, 2)->nvls_channels());
  EXPECT_EQ(PricedBy(rails, 8 << 20), PricedBy(Between("dgx-h100", 2, 8), 8 << 20));
  EXPECT_EQ(PricedBy(rails, 1 << 30), "nvls-tree simple");
}

TEST(NcclChoice, IsNotPricedInsideANodeForSingleRanksNorOtherSoftware) {
  EXPECT_EQ(Between("dgx-h100", 1, 8).nccl.node, nullptr);
  EXPECT_EQ(Between("aws-g5-1gpu", 2, 1).nccl.node, nullptr);
  EXPECT_EQ(Between("dgx-h100", 4, 8, {1, 1, "hierarchical"}).nccl.node, nullptr);
  EXPECT_NE(Between("dgx-h100", 4, 8).nccl.node, nullptr);
}

// Four nodes of H100 leave the tree at 2 MiB before 2.28 (nccl-tests issue 309: 93 us at 1 MiB, 156 at 2), and 64 of B200
// stay with it to 16 MiB by 2.29.7 (629 us, then 1219).
TEST(NcclChoice, FollowsTheRelease) {
  constexpr double kMiB = 1 << 20;
  Network hopper = Between("dgx-h100", 4, 8), blackwell = Between("together-b200", 64, 8);
  EXPECT_EQ(PricedBy(hopper, 2 * kMiB), "tree ll128");
  hopper.nccl.release = nccl::NearestRelease("2.26.2");
  EXPECT_EQ(PricedBy(hopper, kMiB), "tree ll128");
  EXPECT_EQ(PricedBy(hopper, 2 * kMiB), "nvls-tree simple");
  EXPECT_EQ(PricedBy(blackwell, 16 * kMiB), "nvls-tree simple");
  blackwell.nccl.release = nccl::NearestRelease("2.29.7");
  EXPECT_EQ(PricedBy(blackwell, 16 * kMiB), "tree ll128");
  EXPECT_EQ(PricedBy(blackwell, 32 * kMiB), "nvls-tree simple");
}

// What the code of each release chooses, given the channels that the search here finds (nccl_releases.csv: src/graph/tuning.cc
// at each tag, compiled and asked for sizes a factor of 1.41 apart; "from bytes algorithm protocol").
TEST(NcclChoice, EveryReleaseChoosesByItsOwnRules) {
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(
      ReadSource(kFolder + "nccl_releases.csv"),
      {"release", "machine", "nodes", "gpus", "collective", "choices"}, &diagnostics);
  ASSERT_GT(table.rows(), 200u);
  std::set<std::string> releases;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const int nodes = std::stoi(table.Text(i, "nodes")), gpus = std::stoi(table.Text(i, "gpus"));
    const std::string release = table.Text(i, "release"), machine = table.Text(i, "machine");
    releases.insert(release);
    const TopologySpec spec = LoadTopology(kFolder + "nccl_machines/" + machine + ".yaml");
    const ClusterSummary cluster = Summarise(spec, nodes);
    const auto nccl = NcclCommunicator(cluster, LoadGpuProfile(cluster.gpu),
                                       LoadFabricProfile(cluster.fabric_profile),
                                       {gpus * nodes, gpus, 1}, nccl::ReadRelease(release));
    ASSERT_NE(nccl, nullptr) << machine;
    const auto operation = table.Text(i, "collective") == "all_reduce"
                               ? nccl::Operation::kAllReduce
                               : nccl::Operation::kAllGather;
    std::istringstream ranges(table.Text(i, "choices"));
    std::string before, algorithm, protocol, last;
    for (double from = 0; ranges >> from >> algorithm >> protocol;) {
      if (protocol.back() == ';') protocol.pop_back();
      const auto words = [&](double bytes) {
        const auto choice = nccl->Choose(operation, bytes);
        return fmt::format("{} {}", nccl::Name(choice->algorithm), nccl::Name(choice->protocol));
      };
      const std::string where = fmt::format("NCCL {}, {} x {}, {} of {} bytes", release, nodes,
                                            machine, nccl::Name(operation), from);
      EXPECT_EQ(words(from), algorithm + " " + protocol) << where;
      if (!last.empty()) EXPECT_EQ(words(from / 1.4143), last) << where;
      last = algorithm + " " + protocol;
    }
  }
  EXPECT_GE(releases.size(), 12u);
}

TEST(NcclRelease, IsReadAsProgramsPrintIt) {
  constexpr nccl::Release kPatch{2, 18, 3};
  for (const char* text : {"2.18.3", "2.18.3-1", "2.18.3+cuda12.1"})
    EXPECT_EQ(nccl::ReadRelease(text), kPatch) << text;
  EXPECT_GT(nccl::ReadRelease("2.18"), kPatch);
  EXPECT_LT(nccl::ReadRelease("2.18"), nccl::ReadRelease("2.19.1"));
  EXPECT_EQ(nccl::ReleaseText(kPatch), "2.18.3");
  EXPECT_EQ(nccl::ReleaseText(nccl::ReadRelease("2.18")), "2.18");
  for (const char* text : {"", "2", "new", "2.x", "3.1", "1.3.4", "2.4.6", "2.99", "2.18.3.1"})
    EXPECT_THROW(nccl::ReadRelease(text), InputError) << text;
  EXPECT_EQ(nccl::NearestRelease("unknown"), nccl::kOwnRelease);
  EXPECT_EQ(nccl::NearestRelease("2.4.6"), nccl::ReadRelease("2.10.0"));
  EXPECT_EQ(nccl::NearestRelease("2.99"), nccl::ReadRelease("2.30"));
}

TEST(NcclRelease, IsRefusedByChipsThatCameLater) {
  const GpuProfile hopper = LoadGpuProfile("h100-sxm5-80gb");
  EXPECT_NO_THROW(nccl::RequireRelease({2, 15, 1}, hopper));
  try {
    nccl::RequireRelease({2, 14, 3}, hopper);
    FAIL() << "2.14.3 has no code for Hopper";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("2.15.1 and later do"));
  }
  EXPECT_NO_THROW(nccl::RequireRelease({2, 10, 3}, LoadGpuProfile("a100-sxm4-80gb")));
  EXPECT_THROW(nccl::RequireRelease({2, 24, 3}, LoadGpuProfile("b200-sxm-180gb")), InputError);
  EXPECT_THROW(nccl::RequireRelease({2, 24, 3}, LoadGpuProfile("gaudi-hl205")), InputError);
}

// ENA tells no speed: NCCL takes 10 Gbit/s and leaves LL earlier (measured: 347 us at 32 KiB, 420 at 64).
TEST(NcclChoice, GoesByTheSpeedThatADriverTells) {
  const ClusterSummary cluster = Summarise(LoadTopology("aws-g5-1gpu"), 2);
  nccl::Setting ena = nccl::SettingOf(cluster, LoadGpuProfile(cluster.gpu),
                                      LoadFabricProfile(cluster.fabric_profile));
  const auto protocol = [&] {
    return NcclCommunicator(ena, {2, 1, 1})
        ->Choose(nccl::Operation::kAllReduce, 64 * 1024)
        ->protocol;
  };
  EXPECT_EQ(protocol(), nccl::Protocol::kSimple);
  ena.driver_rate = {};
  EXPECT_EQ(protocol(), nccl::Protocol::kLl);
}

}  // namespace
}  // namespace orrery
