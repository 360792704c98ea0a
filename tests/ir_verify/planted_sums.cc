// SPDX-License-Identifier: Apache-2.0
// Faults in reductions and in slices of boundary tensors.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

Strategy SequenceParallel() {
  Strategy s = Degrees(2, 1, 1);
  s.sequence_parallel = true;
  return s;
}
Strategy ReducedInBackward() {
  Strategy s = Degrees(1, 1, 2);
  s.reduce_in_backward = true;
  return s;
}

// Partial sums.
void DropTailReduction(Plan& plan) { ASSERT_GT(Drop(plan, Writes("G.u1/rep")), 0); }
void DropBucketReduction(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("G.u1"))), 1);
}
void DropTiedSum(Plan& plan) { ASSERT_EQ(Drop(plan, InGroup(plan, "emb")), 2); }
void LoseCallFlag(Plan& plan) {
  EditCalls(plan.programs[0], [](std::vector<Call>& calls) {
    for (Call& call : calls) call.flags = 0;
  });
}
// Trained on half the batch by plan run, with half the loss.
void LoseBackwardPass(Plan& plan) {
  Program& program = plan.programs[0];
  EditCalls(program, [&](std::vector<Call>& calls) {
    const auto lost = std::ranges::find_if(calls, [&](const Call& call) {
      return program.blocks[static_cast<size_t>(call.block)].name == "B0" && call.micro_batch == 0;
    });
    ASSERT_NE(lost, calls.end());
    calls.erase(lost);
  });
}
void LoseBackwardPasses(Plan& plan) {
  Program& program = plan.programs[0];
  EditCalls(program, [&](std::vector<Call>& calls) {
    ASSERT_GT(std::erase_if(calls,
                            [&](const Call& call) {
                              return program.blocks[static_cast<size_t>(call.block)].name == "B0";
                            }),
              0u);
  });
}
void RepeatPasses(Plan& plan) {
  EditCalls(plan.programs[0], [](std::vector<Call>& calls) {
    std::vector<Call> twice;
    for (const Call& call : calls) twice.insert(twice.end(), {call, call});
    calls = twice;
  });
}
void LosePredicate(Plan& plan) {
  ASSERT_GT(Change(plan, Is(OpKind::kAllReduce), [](Op& op) { op.when = 0; }), 0);
}
void ReduceOverWrongGroup(Plan& plan) {
  ASSERT_EQ(
      Change(plan, Both(Is(OpKind::kAllReduce), Writes("G.u1")), [](Op& op) { op.group = 0; }), 1);
}
void ReduceBucketTwice(Plan& plan) {
  Block& end = BlockOf(plan.programs[0], "E");
  const size_t at = Find(plan.programs[0], end, Both(Is(OpKind::kAllReduce), Writes("G.u1")));
  const Op twin = end.ops[at];
  end.ops.insert(end.ops.begin() + static_cast<std::ptrdiff_t>(at), twin);
}
void DropRowParallelReduction(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("l1.mlp.out"))), 1);
}
void ReduceActivationTwice(Plan& plan) {
  Block& forward = BlockOf(plan.programs[0], "F0");
  const size_t at =
      Find(plan.programs[0], forward, Both(Is(OpKind::kAllReduce), Writes("l1.mlp.out")));
  const Op twin = forward.ops[at];
  forward.ops.insert(forward.ops.begin() + static_cast<std::ptrdiff_t>(at), twin);
}
void SumTheMaximum(Plan& plan) {
  ASSERT_EQ(Change(plan, Both(Is(OpKind::kAllReduce), Writes("head.max")),
                   [](Op& op) { op.attrs.Set(Attr::kReduceOp, 0); }),
            1);
}
void DropNormReduction(Plan& plan) {
  ASSERT_GT(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("gnorm"))), 0);
}
// Clipped by a norm without these gradients, up to one of nothing.
OpTest SquaresOf(const std::string& gradient) { return Both(Is(OpKind::kSumSq), Reads(gradient)); }
void DropSquares(Plan& plan) { ASSERT_EQ(Drop(plan, SquaresOf("G.u1")), 1); }
void DropAllSquares(Plan& plan) { ASSERT_GT(Drop(plan, Is(OpKind::kSumSq)), 1); }
void AddSquaresTwice(Plan& plan) {
  Block& end = BlockOf(plan.programs[0], "E");
  const size_t at = Find(plan.programs[0], end, SquaresOf("G.u1"));
  const Op twin = end.ops[at];
  end.ops.insert(end.ops.begin() + static_cast<std::ptrdiff_t>(at), twin);
}
void ClearBehindSquares(Plan& plan) {
  Block& end = BlockOf(plan.programs[0], "E");
  MoveOp(end, Find(plan.programs[0], end, Both(Is(OpKind::kZero), Writes("gnorm"))),
         Find(plan.programs[0], end, SquaresOf("G.u1")));
}
void CountNothing(Plan& plan) {
  ASSERT_EQ(Change(plan, SquaresOf("G.u1"), [](Op& op) { op.attrs.Set(Attr::kWt, 0); }), 1);
}
void CountBothTied(Plan& plan) {
  ASSERT_EQ(Change(plan, SquaresOf("G.wte"), [](Op& op) { op.attrs.Set(Attr::kWt, 1); }), 2);
}
void ReadNoNorm(Plan& plan) {
  ASSERT_GT(Change(plan, Is(OpKind::kAdam), [](Op& op) { op.in.resize(4); }), 1);
}
void DropLossReduction(Plan& plan) {
  ASSERT_GT(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("loss"))), 0);
}
void DropReplicaSum(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(InGroup(plan, "dpo"), Writes("Gs.u2"))), 1);
}

// Boundary tensors scattered over the tensor axis (the last one of the mesh).
void SlicePartialSum(Plan& plan) {
  const auto tensor = static_cast<uint16_t>(1u << (plan.mesh.axes.size() - 1));
  ASSERT_EQ(Change(plan, Writes("y2"), [&](Op& op) { op.yields = tensor; }), 1);
}
void SliceOverOtherAxis(Plan& plan) {
  ASSERT_GT(Change(plan, Is(OpKind::kSlice), [](Op& op) { op.attrs.Set(Attr::kAxis, 2); }), 0);
}
void SliceOverNoAxis(Plan& plan) {
  ASSERT_GT(Change(plan, Is(OpKind::kSlice), [](Op& op) { op.attrs.Set(Attr::kAxis, 99); }), 0);
}

}  // namespace

std::vector<PlantedFault> SumFaults() {
  using F = Fault;
  const Strategy dp2 = Degrees(1, 1, 2), pp2 = Degrees(1, 2, 1), tp2 = Degrees(2, 1, 1),
                 zero1 = Degrees(1, 1, 2, 1);
  Strategy hybrid = Degrees(1, 1, 2, 2);
  hybrid.dp_outer = 2;
  return {
      {"sequence parallel: reduction of the replicated gradients dropped",
       SequenceParallel(),
       DropTailReduction,
       {F::kPartialGradient},
       {}},
      {"bucket never reduced", dp2, DropBucketReduction, {F::kPartialGradient}, {}},
      {"sum of tied embeddings dropped", pp2, DropTiedSum, {F::kPartialGradient}, {}},
      {"call of the predicated reduction loses its flag",
       ReducedInBackward(),
       LoseCallFlag,
       {F::kPartialGradient},
       {}},
      {"backward pass of a micro-batch dropped",
       Degrees(1, 1, 2),
       LoseBackwardPass,
       {F::kCoverage},
       {}},
      {"all backward passes dropped", Degrees(1, 1, 2), LoseBackwardPasses, {F::kCoverage}, {}},
      {"every pass twice", Degrees(1, 1, 2), RepeatPasses, {F::kCoverage}, {}},
      {"predicated reduction runs on every call",
       ReducedInBackward(),
       LosePredicate,
       {F::kPartialGradient},
       {}},
      {"bucket reduced over the wrong group",
       Degrees(2, 1, 2),
       ReduceOverWrongGroup,
       {F::kPartialGradient, F::kDoubleReduce},
       {}},
      {"hybrid sharding: sum over the replicas dropped",
       hybrid,
       DropReplicaSum,
       {F::kPartialGradient},
       {}},
      {"bucket reduced twice", dp2, ReduceBucketTwice, {F::kDoubleReduce}, {}},
      {"row-parallel forward reduction dropped",
       tp2,
       DropRowParallelReduction,
       {F::kPartialRead},
       {}},
      {"activation reduced twice", tp2, ReduceActivationTwice, {F::kDoubleReduce}, {}},
      {"maximum of the logits summed", tp2, SumTheMaximum, {F::kPartialRead}, {}},
      {"reduction of the gradient norm dropped", zero1, DropNormReduction, {F::kPartialRead}, {}},
      {"the norm lacks the squares of one unit", dp2, DropSquares, {F::kCoverage}, {}},
      {"the norm lacks all squares", pp2, DropAllSquares, {F::kCoverage}, {}},
      {"squares of a unit added twice", dp2, AddSquaresTwice, {F::kCoverage}, {}},
      {"norm cleared behind squares", dp2, ClearBehindSquares, {F::kCoverage}, {}},
      {"squares of a unit count for nothing", dp2, CountNothing, {F::kCoverage}, {}},
      {"squares of both tied tables count", pp2, CountBothTied, {F::kCoverage}, {}},
      {"clips and reads no norm", dp2, ReadNoNorm, {F::kCoverage}, {}},
      {"reduction of the loss dropped", dp2, DropLossReduction, {F::kPartialRead}, {}},
      {"partial sum sliced and sent", Degrees(2, 2, 1), SlicePartialSum, {F::kPartialRead}, {}},
      {"slice over an axis of other size", Degrees(2, 2, 1), SliceOverOtherAxis, {F::kShape}, {}},
      {"slice over an axis that is not there", Degrees(2, 2, 1), SliceOverNoAxis, {F::kShape}, {}},
  };
}

}  // namespace orrery::ir
