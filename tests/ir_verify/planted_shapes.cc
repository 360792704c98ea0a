// SPDX-License-Identifier: Apache-2.0
// Faults in coverage of parameters and in shapes.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

// Coverage.
void ShortShard(Plan& plan) {
  Program& program = plan.programs[0];
  Block& end = BlockOf(program, "E");
  Op& adam = end.ops[Find(program, end, Both(Is(OpKind::kAdam), Writes("Wo.u1")))];
  const double shorter = adam.attrs.Get(Attr::kElements) - 1;
  adam.attrs.Set(Attr::kElements, shorter);
  for (auto* views : {&adam.in, &adam.out}) {
    for (ViewId& view : *views) {
      View copy = program.views[view];
      if (copy.elements == 1) continue;  // scalars
      copy.elements = static_cast<int64_t>(shorter);
      copy.name += "/short";
      program.views.push_back(copy);
      view = static_cast<ViewId>(program.views.size() - 1);
    }
  }
}
void DropOptimizer(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAdam), Writes("W.u1"))), 1);
}
void DropWeightGather(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllGather), Writes("W.u1"))), 1);
}
void UpdateFromWrongUnit(Plan& plan) {
  Program& program = plan.programs[0];
  Block& end = BlockOf(program, "E");
  const ViewId other = end.ops[Find(program, end, Both(Is(OpKind::kAdam), Writes("W.u1")))].in[0];
  ASSERT_EQ(
      Change(plan, Both(Is(OpKind::kAdam), Writes("W.u2")), [&](Op& op) { op.in[0] = other; }), 1);
}
void LoseSegment(Plan& plan) { plan.programs[0].units[2].segments.pop_back(); }

// Shapes.
void HalfReceive(Plan& plan) {
  Program& program = plan.programs[1];
  Block& forward = BlockOf(program, "F0");
  Op& receive = forward.ops[Find(program, forward, Is(OpKind::kRecv))];
  View half = program.views[receive.out[0]];
  half.name += "/half";
  half.elements /= 2;
  program.views.push_back(half);
  receive.out[0] = static_cast<ViewId>(program.views.size() - 1);
}
void WrongWidth(Plan& plan) {
  ASSERT_EQ(Change(plan, Both(Is(OpKind::kMatmul), Writes("l1.mlp.in")),
                   [](Op& op) { op.attrs.Set(Attr::kN, 63); }),
            1);
}
void ViewPastEnd(Plan& plan) { plan.programs[0].views[3].offset += 1; }
void UnknownMicroBatch(Plan& plan) {
  EditCalls(plan.programs[0], [](std::vector<Call>& calls) { calls[1].micro_batch = 99; });
}

}  // namespace

std::vector<PlantedFault> ShapeFaults() {
  using F = Fault;
  const Strategy dp2 = Degrees(1, 1, 2), pp2 = Degrees(1, 2, 1), zero1 = Degrees(1, 1, 2, 1);
  return {
      {"optimizer shard one element short", zero1, ShortShard, {F::kCoverage}, {}},
      {"optimizer forgets a unit", dp2, DropOptimizer, {F::kCoverage}, {}},
      {"updated weights not gathered", zero1, DropWeightGather, {F::kCoverage}, {}},
      {"weights updated from another unit's gradient",
       dp2,
       UpdateFromWrongUnit,
       {F::kCoverage},
       {}},
      {"parameter in no unit", dp2, LoseSegment, {F::kCoverage}, {}},
      {"receive half the size", pp2, HalfReceive, {F::kShape}, {}},
      {"matrix width against its operands", dp2, WrongWidth, {F::kShape}, {}},
      {"view past the end of its buffer", dp2, ViewPastEnd, {F::kShape}, {}},
      {"call of a micro-batch that does not exist", dp2, UnknownMicroBatch, {F::kShape}, {}},
  };
}

}  // namespace orrery::ir
