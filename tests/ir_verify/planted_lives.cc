// SPDX-License-Identifier: Apache-2.0
// Faults in when bytes are written, read and reused.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

// Liveness.
void BackwardBeforeForward(Plan& plan) {
  EditCalls(plan.programs[0], [](std::vector<Call>& calls) { std::swap(calls[1], calls[2]); });
}
void DropGather(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("Wg.u1@F0.3")), 1); }
void GatherTooLate(Plan& plan) {
  Block& forward = BlockOf(plan.programs[0], "F0");
  MoveOp(forward, Find(plan.programs[0], forward, Writes("Wg.u1@F0.3")), forward.ops.size() - 1);
}
void DropZeroing(Plan& plan) { ASSERT_EQ(Drop(plan, Both(Is(OpKind::kZero), Writes("G.u2"))), 1); }

void DropScatter(Plan& plan) { ASSERT_GT(Drop(plan, Is(OpKind::kReduceScatter)), 0); }
void DropBoundaryGather(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllGather), Reads("x2.part"))), 1);
}

// Layout.
void OneSlotShort(const Plan&, Layouts& layouts) {
  Frame* largest = nullptr;
  for (Frame& frame : layouts[0].frames) {
    if (frame.slots > 1 && (largest == nullptr || frame.bytes > largest->bytes)) largest = &frame;
  }
  ASSERT_NE(largest, nullptr);
  --largest->slots;
  for (size_t m = 0; m < largest->slot_of.size(); ++m)
    largest->slot_of[m] = static_cast<int32_t>(m) % largest->slots;
}
void ShortRing(Plan& plan) {
  for (Ring& ring : plan.programs[0].rings) {
    if (ring.name == "gather") --ring.slots;
  }
}
void ScratchOverScratch(const Plan& plan, Layouts& layouts) {
  const Program& program = plan.programs[0];
  auto offset = [&](const std::string& name) -> int64_t& {
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      if (program.buffers[b].name == name) return layouts[0].offset[b];
    }
    ADD_FAILURE() << name;
    return layouts[0].offset[0];
  };
  offset("l1.attn.out") = offset("l1.attn.in");
}
void StepOverStep(const Plan&, Layouts& layouts) { layouts[0].offset[3] = layouts[0].offset[2]; }
void ScratchOverHeldFrame(const Plan& plan, Layouts& layouts) {
  for (size_t b = 0; b < layouts[0].scope.size(); ++b) {
    if (plan.programs[0].buffers[b].name == "l1.mlp.out")
      layouts[0].offset[b] = layouts[0].frames[0].base;
  }
}

}  // namespace

std::vector<PlantedFault> LifeFaults() {
  using F = Fault;
  const Strategy dp2 = Degrees(1, 1, 2), pp2 = Degrees(1, 2, 1), zero2 = Degrees(1, 1, 2, 2),
                 zero3 = Degrees(1, 1, 2, 3);
  return {
      {"1F1B one slot short", pp2, {}, {F::kSlotOverrun}, OneSlotShort},
      {"backward before forward", dp2, BackwardBeforeForward, {F::kReadBeforeWrite}, {}},
      {"gather dropped", zero3, DropGather, {F::kReadBeforeWrite}, {}},
      {"gather issued too late", zero3, GatherTooLate, {F::kStaleRead}, {}},
      {"gather of a received tensor dropped",
       Degrees(2, 2, 1),
       DropBoundaryGather,
       {F::kReadBeforeWrite},
       {}},
      {"gradients not zeroed", dp2, DropZeroing, {F::kReadBeforeWrite}, {}},
      {"reduce-scatter dropped", zero2, DropScatter, {F::kReadBeforeWrite}, {}},
      {"gather ring one slot short", zero3, ShortRing, {F::kByteClash}, {}},
      {"two scratch buffers on the same bytes", dp2, {}, {F::kByteClash}, ScratchOverScratch},
      {"two step buffers on the same bytes", dp2, {}, {F::kByteClash}, StepOverStep},
      {"scratch over a frame in use", dp2, {}, {F::kByteClash}, ScratchOverHeldFrame},
  };
}

}  // namespace orrery::ir
