// SPDX-License-Identifier: Apache-2.0
// Tensors between stages, scattered over the tensor group or sent whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

Strategy Make(int tp, int pp, bool scatter) {
  Strategy s;
  s.tp = tp;
  s.pp = pp;
  s.scatter_gather = scatter;
  return s;
}

int64_t SentElements(const Plan& plan) {  // by all sends of one call each
  int64_t elements = 0;
  for (const Program& program : plan.programs) {
    for (const Block& block : program.blocks) {
      for (const Op& op : block.ops) {
        if (op.kind == OpKind::kSend) elements += program.views[op.in[0]].elements;
      }
    }
  }
  return elements;
}

int64_t Arena(const Plan& plan) {
  int64_t most = 0;
  for (const Layout& layout : LayoutsOf(plan)) most = std::max(most, layout.arena_bytes);
  return most;
}

TEST(Boundary, TensorRanksSendTheirPart) {
  for (const int pp : {2, 4}) {
    EXPECT_EQ(2 * SentElements(LowerTiny(Make(2, pp, true))),
              SentElements(LowerTiny(Make(2, pp, false))));
  }
}

TEST(Boundary, WithoutEqualCopiesNothingIsScattered) {
  EXPECT_EQ(LowerTiny(Make(1, 4, true)), LowerTiny(Make(1, 4, false)));
  EXPECT_EQ(LowerTiny(Make(2, 1, true)), LowerTiny(Make(2, 1, false)));
  Strategy on = Make(2, 2, true), off = Make(2, 2, false);
  on.sequence_parallel = off.sequence_parallel = true;
  EXPECT_EQ(LowerTiny(on), LowerTiny(off));
}

// Large enough that alignment does not count.
int64_t ArenaOfWiderModel(const Strategy& strategy) {
  ModelSpec model = TinyGpt();
  model.hidden = 512, model.head_dim = 64, model.ffn = 2048;
  LowerResult lowered = Lower(model, TinyWork(8), strategy);
  return Arena(std::get<Plan>(lowered));
}

TEST(Boundary, PartsNeedNoMoreMemoryThanSlackOfWholeTensors) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kGpipe, PipelineSchedule::k1F1B, PipelineSchedule::kZeroBubble}) {
    for (const int pp : {2, 4}) {
      Strategy on = Make(2, pp, true), off = Make(2, pp, false);
      on.schedule = off.schedule = schedule;
      EXPECT_LE(ArenaOfWiderModel(on), ArenaOfWiderModel(off)) << pp << ' ' << int(schedule);
    }
  }
}

TEST(Boundary, PartsMustBeEqual) {
  ModelSpec model = TinyGpt();
  model.hidden = 3;
  Workload odd = TinyWork(1);
  odd.seq_len = 7;
  Strategy s = Make(2, 2, true);
  const auto refused = CheckStrategy(model, odd, s);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->reason, "21 elements of a tensor between two stages do not divide by tp 2");
  s.scatter_gather = false;
  EXPECT_FALSE(CheckStrategy(model, odd, s).has_value());
}

}  // namespace
}  // namespace orrery::ir
