// SPDX-License-Identifier: Apache-2.0
// Which nodes and which interface are chosen from what is known of all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/program/launch/launch.h"

namespace orrery::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Node NodeWith(const std::string& control, std::vector<std::string> interfaces) {
  Node node;
  node.control = control;
  for (const std::string& name : interfaces) node.addresses.push_back({name, "10.0.0.1", 1});
  return node;
}

TEST(Interfaces, TheOneToTheMainNodeComesFirst) {
  const Node a = NodeWith("eth0", {"eth0", "hsn0", "docker0"});
  const Node b = NodeWith("eth0", {"docker0", "hsn0", "eth0", "eth1"});
  EXPECT_THAT(InterfacesToTry({&a, &b}), ElementsAre("", "hsn0", "docker0"));
  EXPECT_EQ(AddressOn(b, "")->interface, "eth0");
  EXPECT_EQ(AddressOn(a, "eth1"), nullptr);
}

// "eth0, eth0": with an address of IPv4 and one of IPv6.
TEST(Interfaces, AreNamedOnceHoweverManyAddressesTheyHave) {
  EXPECT_THAT(InterfacesOf(NodeWith("eth0", {"eth0", "hsn0", "eth0"})),
              ElementsAre("eth0", "hsn0"));
}

TEST(Interfaces, NamesMayDifferOnTheWayToTheMainNode) {
  const Node a = NodeWith("ens5", {"ens5", "eth0"}), b = NodeWith("eth0", {"eth0"});
  EXPECT_THAT(InterfacesToTry({&a, &b}), ElementsAre("", "eth0"));
}

TEST(Unreached, TheNodeOfAllFailedPairsIsLeftOut) {
  EXPECT_THAT(LeaveOut(4, {}), IsEmpty());
  EXPECT_THAT(LeaveOut(4, {{0, 2}, {2, 1}, {3, 2}}), ElementsAre(2));
  // Of a pair alone the later one, and never the main node.
  EXPECT_THAT(LeaveOut(3, {{1, 2}}), ElementsAre(2));
  EXPECT_THAT(LeaveOut(3, {{0, 1}, {0, 2}}), testing::UnorderedElementsAre(1, 2));
}

TEST(Unreached, EveryNodeIsProbedByOthers) {
  for (const std::size_t n : {2u, 5u, 16u, 17u, 100u}) {
    std::vector<std::set<std::size_t>> by(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto partners = ProbePartners(i, n);
      EXPECT_LE(partners.size(), 16u);
      for (const std::size_t to : partners) {
        ASSERT_NE(to, i);
        ASSERT_TRUE(by[to].insert(i).second);
      }
    }
    for (const auto& from : by) EXPECT_EQ(from.size(), by[0].size());
  }
}

TEST(Comparison, ASlowNodeIsBad) {
  std::vector<Node> nodes(4);
  std::vector<std::optional<check::NodeHealth>> health(4);
  for (std::size_t i = 0; i < 4; ++i) {
    nodes[i].host = "node" + std::to_string(i);
    nodes[i].state = Node::State::kGood;
    health[i] = check::NodeHealth{"", i == 2 ? 1e10 : 4e10, 1e10, 1e8, 0, 0, ""};
  }
  CompareNodes({}, &nodes, health);
  EXPECT_EQ(nodes[2].state, Node::State::kBad);
  EXPECT_THAT(nodes[2].why, testing::StartsWith("compute of 10"));
  EXPECT_EQ(nodes[1].state, Node::State::kGood);
}

}  // namespace
}  // namespace orrery::launch
