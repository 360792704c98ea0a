// SPDX-License-Identifier: Apache-2.0
// Rings and chains on point-to-point meshes: walks over links, rates by hand, loads of whole nodes.
#include "model/hardware/mesh_rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "model/hardware/rings.h"
#include "tests/collectives/testing.h"
#include "tests/topo/testing.h"

namespace orrery::net {
namespace {

constexpr Bytes kGigabyte(1e9);

LinkTable Table(int gpus, const std::vector<MeshLink>& mesh) {
  LinkTable table{gpus, std::vector<int>(static_cast<std::size_t>(gpus * gpus), 0)};
  for (const MeshLink& link : mesh) {
    table.count[static_cast<std::size_t>(link.a * gpus + link.b)] = link.count;
    table.count[static_cast<std::size_t>(link.b * gpus + link.a)] = link.count;
  }
  return table;
}

std::vector<MeshLink> Complete(int gpus, int links) {
  std::vector<MeshLink> mesh;
  for (int a = 0; a < gpus; ++a) {
    for (int b = a + 1; b < gpus; ++b) mesh.push_back({a, b, links});
  }
  return mesh;
}

// The links among some GPUs, counted anew from 0.
std::vector<MeshLink> Among(unsigned gpus, const std::vector<MeshLink>& mesh) {
  std::vector<MeshLink> some;
  const auto place = [&](int gpu) { return std::popcount(gpus & ((1u << gpu) - 1)); };
  for (const MeshLink& link : mesh) {
    if ((gpus >> link.a & 1u) != 0 && (gpus >> link.b & 1u) != 0)
      some.push_back({place(link.a), place(link.b), link.count});
  }
  return some;
}

double CheckedRate(int gpus, const std::vector<MeshLink>& mesh) {
  const LinkTable table = Table(gpus, mesh);
  const std::vector<Order> rings = PackRings(table);
  for (const Order& ring : rings) {
    Order sorted = ring;
    std::ranges::sort(sorted);
    for (int i = 0; i < gpus; ++i) EXPECT_EQ(sorted.at(static_cast<std::size_t>(i)), i);
    for (std::size_t i = 0; i < ring.size(); ++i)
      EXPECT_GT(table(ring[i], ring[(i + 1) % ring.size()]), 0);
  }
  return RateOfRings(table, rings);
}

TEST(MeshRings, CompleteMeshesReachAllLinksOfAGpu) {
  EXPECT_DOUBLE_EQ(CheckedRate(2, Complete(2, 3)), 3);
  for (const int gpus : {3, 4, 5, 6, 7, 8, 9, 10, 16}) {
    EXPECT_GE(CheckedRate(gpus, Complete(gpus, 1)), 0.98 * (gpus - 1)) << gpus;
    EXPECT_GE(CheckedRate(gpus, Complete(gpus, 2)), 0.98 * 2 * (gpus - 1)) << gpus;
  }
}

// Every set of GPUs of the hybrid cube mesh: never below what fits without a common link, which is
// what the closed form counts, never above the links of the poorest GPU.
TEST(MeshRings, SubsetsOfTheCubeMeshAreBoundedByTheirLinks) {
  const std::vector<MeshLink> cube = LoadTopology("dgx1-v100").node.mesh;
  for (unsigned set = 3; set < 256; ++set) {
    const int gpus = std::popcount(set);
    if (gpus < 2) continue;
    const std::vector<MeshLink> mesh = Among(set, cube);
    std::vector<int> links(8, 0);
    for (const MeshLink& link : mesh) {
      links[static_cast<std::size_t>(link.a)] += link.count;
      links[static_cast<std::size_t>(link.b)] += link.count;
    }
    const double rate = CheckedRate(gpus, mesh);
    EXPECT_GE(rate, PackedRings(mesh, gpus)) << set;
    EXPECT_LE(rate, *std::min_element(links.begin(), links.begin() + gpus) + 1e-9) << set;
  }
}

TEST(MeshRings, ThereIsNoneOnAChain) {
  EXPECT_TRUE(PackRings(Table(3, {{0, 1, 1}, {1, 2, 1}})).empty());
  EXPECT_TRUE(PackChains(Table(3, {{0, 1, 1}}), 3).empty());
}

TEST(MeshRings, ChainsStartAndEndAtEveryGpuAlike) {
  for (const auto& [gpus, mesh] : {std::pair{8, LoadTopology("dgx1-v100").node.mesh},
                                   {8, Complete(8, 1)},
                                   {7, Complete(7, 1)},
                                   {4, Complete(4, 2)}}) {
    const LinkTable table = Table(gpus, mesh);
    const std::vector<Order> chains = PackChains(table, 2 * gpus);
    ASSERT_EQ(chains.size(), 2u * static_cast<unsigned>(gpus));
    std::vector<int> ends(static_cast<std::size_t>(gpus), 0);
    for (std::size_t i = 0; i < chains.size(); ++i) {
      EXPECT_EQ(chains[i].front(), static_cast<int>(i) % gpus);
      ++ends[static_cast<std::size_t>(chains[i].back())];
      for (std::size_t k = 1; k < chains[i].size(); ++k)
        EXPECT_GT(table(chains[i][k - 1], chains[i][k]), 0);
    }
    EXPECT_EQ(std::ranges::count(ends, 2), gpus);
  }
}

double AllReduce(const std::string& topology, int64_t nodes, int64_t ranks) {
  const Cluster cluster = BuildCluster(LoadTopology(topology), nodes);
  std::vector<int64_t> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const Traffic ring = RouteCollective("ring", Collective::kAllReduce, cluster, members);
  for (const Channel& channel : ring.front()) {
    for (const LinkUse& use : channel.uses) EXPECT_EQ(use.weight, static_cast<int>(use.weight));
  }
  return BottleneckTime(ring, cluster, kGigabyte).value;
}

// Rates in links of 25 GB/s (V100) and 12.5 GB/s (Gaudi).
TEST(MeshRings, CarryAnAllReduceAtTheRateOfThePackedRings) {
  EXPECT_NEAR(AllReduce("jean-zay-v100", 1, 4), 2 * 3 / 4.0 / (6 * 25), 1e-9);
  EXPECT_NEAR(AllReduce("jean-zay-v100", 1, 2), 1.0 / (2 * 25), 1e-9);
  EXPECT_NEAR(AllReduce("dgx1-v100", 1, 8), 2 * 7 / 8.0 / (6 * 25), 1e-9);
  EXPECT_NEAR(AllReduce("dgx1-v100", 1, 4), 2 * 3 / 4.0 / (4 * 25), 1e-9);
  EXPECT_NEAR(AllReduce("aws-dl1", 1, 8), 2 * 7 / 8.0 / (7 * 12.5), 1e-9);
}

TEST(MeshRings, LeaveNodesThroughAllNics) {
  EXPECT_NEAR(AllReduce("jean-zay-v100", 4, 16), 2 * 15 / 16.0 / (4 * 12.5), 1e-9);
  EXPECT_NEAR(AllReduce("dgx1-v100", 2, 16), 2 * 15 / 16.0 / (4 * 12.5), 1e-9);
  EXPECT_NEAR(AllReduce("aws-dl1", 2, 16), 2 * 15 / 16.0 / (4 * 12.5), 1e-9);
}

}  // namespace
}  // namespace orrery::net
