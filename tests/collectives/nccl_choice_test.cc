// SPDX-License-Identifier: Apache-2.0
// NCCL's choices, against a part of the reference table (nccl_choices.csv: three sizes, by hash, of every
// machine, ranks, nodes and collective; the machines in nccl_machines/).
#include "model/collectives/nccl_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "bench/collectives/choice_table.h"
#include "model/collectives/nccl/machine.h"
#include "model/hardware/catalog.h"
#include "model/hardware/measured_collectives.h"

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

}  // namespace
}  // namespace orrery
