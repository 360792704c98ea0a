// SPDX-License-Identifier: Apache-2.0
// The placement in the plan: order of axes, order of nodes, text and digest.
#include <gmock/gmock.h>

#include "model/plan/ir/plan.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/names.h"
#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanOrder, NumbersRanksByTheOrderOfAxes) {
  ir::Mesh mesh;
  mesh.axes = {{"pp", 2}, {"dp", 3}, {"tp", 2}};
  mesh.order = {1, 0, 2};
  EXPECT_THAT(mesh.Coords(3), ElementsAre(1, 0, 1));
  EXPECT_THAT(mesh.Coords(4), ElementsAre(0, 1, 0));
  EXPECT_EQ(mesh.Stride(0), 2);
  EXPECT_EQ(mesh.Stride(1), 4);
  EXPECT_EQ(mesh.Stride(2), 1);
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) EXPECT_EQ(mesh.Rank(mesh.Coords(rank)), rank);
  EXPECT_THAT(ir::GroupMembers(mesh, {"dp", 0b010}, 3), ElementsAre(3, 7, 11));
  EXPECT_THAT(ir::GroupMembers(mesh, {"pp", 0b001}, 5), ElementsAre(5, 7));
}

TEST(PlanOrder, IsPartOfTheTextAndOfTheDigest) {
  const SmallJob small(SmallCluster(4, 1, "kind: single-switch"), 4, 8);
  const Strategy layout = Layout(1, 2, 2);
  const ir::Plan plain = LowerLegal(small.job, layout);
  const ir::Plan placed = LowerLegal(small.job, Placed(layout, true, {2, 0, 1, 3}));
  EXPECT_THAT(ir::ToText(placed), HasSubstr("\norder dpo dp pp ep cp tp\n"));
  EXPECT_THAT(ir::ToText(placed), HasSubstr("\nnodes 2 0 1 3\n"));
  EXPECT_EQ(ir::ParsePlan(ir::ToText(placed), "text"), placed);
  EXPECT_NE(ir::Digest(placed), ir::Digest(plain));
  EXPECT_NE(ir::Digest(LowerLegal(small.job, Placed(layout, false, {2, 0, 1, 3}))),
            ir::Digest(placed));
  EXPECT_TRUE(ir::Verify(placed).empty());
  for (const auto& [from, to] : {std::pair{"order dpo dp pp ep cp tp", "order dpo dp pp ep cp cp"},
                                 {"order dpo dp pp ep cp tp", "order dpo dp"},
                                 {"nodes 2 0 1 3", "nodes 2 0 1 1"},
                                 {"nodes 2 0 1 3", "nodes 2 0 1 4"}}) {
    std::string text = ir::ToText(placed);
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_THROW(ir::ParsePlan(text, "text"), InputError) << to;
  }
}

TEST(PlanOrder, SimulatesThePlanAsItStands) {
  const SmallJob small(
      SmallCluster(4, 1, "kind: fat-tree, levels: 2, leaf_ports: 2, oversubscription: 8"), 4, 32);
  const Strategy layout = Layout(1, 2, 2);
  const auto seconds = [&](const Strategy& one) {
    return PredictPlan(small.job, ir::ParsePlan(ir::ToText(LowerLegal(small.job, one)), "text"))
        .time.total;
  };
  // Rings of two nodes cross leaves in this order.
  EXPECT_GT(seconds(Placed(layout, false, {0, 2, 1, 3})), seconds(layout));
  EXPECT_DOUBLE_EQ(seconds(Placed(layout, false, {0, 1, 2, 3})), seconds(layout));
  EXPECT_THROW(seconds(Placed(layout, false, {0, 1})), InputError);
}

TEST(PlanOrder, IsSpelledInTheWordsOfTheField) {
  const Placement placed{true, {0, 1, 2, 8, 4, 5}};
  EXPECT_EQ(PlacementText(placed), "tp-cp-pp-dp:0..2,8,4..5");
  for (const Placement& one : {placed, Placement{true, {}}, Placement{false, {1, 0}}})
    EXPECT_EQ(ReadPlacement(PlacementText(one)), one);
  EXPECT_EQ(ReadPlacement("3,1,0,2"), (Placement{false, {3, 1, 0, 2}}));
  for (const char* wrong : {"", "tp-pp", "tp-cp-pp-dp:", "1,,2", "3..1", "-1", "a"})
    EXPECT_EQ(ReadPlacement(wrong), std::nullopt) << wrong;
}

TEST(PlanOrder, RefusesWhatItCannotLower) {
  const SmallJob small(SmallCluster(4, 1, "kind: single-switch"), 4, 8);
  Strategy shared = Placed(Layout(1, 2, 1), true, {});
  shared.cp = 2;
  EXPECT_TRUE(CheckStrategy(small.job.model, small.job.work, shared));
  EXPECT_TRUE(
      CheckStrategy(small.job.model, small.job.work, Placed(Layout(1, 2, 2), false, {0, 1, 1, 2})));
}

}  // namespace
}  // namespace orrery::testing
