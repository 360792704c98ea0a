// SPDX-License-Identifier: Apache-2.0
// A table of correct plans, each broken in one way, and what verify must say. The test prints the
// table.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/ir/verify.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

using Layouts = std::vector<Layout>;
struct Row {
  std::string fault;
  Strategy strategy;
  std::function<void(Plan&)> plant;
  std::vector<Fault> expected;                              // each must be found
  std::function<void(const Plan&, Layouts&)> plant_layout;  // instead of `plant`
};

Strategy Make(int tp, int pp, int dp, int zero = 0) {
  Strategy s;
  s.tp = tp;
  s.pp = pp;
  s.dp = dp;
  s.zero = zero;
  return s;
}
Strategy SequenceParallel() {
  Strategy s = Make(2, 1, 1);
  s.sequence_parallel = true;
  return s;
}
Strategy ReducedInBackward() {
  Strategy s = Make(1, 1, 2);
  s.reduce_in_backward = true;
  return s;
}

Op Copy(const Program& program, const Block& block, const OpTest& test) {
  return block.ops[Find(program, block, test)];
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
void DropLossReduction(Plan& plan) {
  ASSERT_GT(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("loss"))), 0);
}
void DropReplicaSum(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(InGroup(plan, "dpo"), Writes("Gs.u2"))), 1);
}

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

// Matching.
void OtherOrder(Plan& plan) {
  EditCalls(plan.programs[1], [](std::vector<Call>& calls) {
    for (Call& call : calls) {
      if (call.block != 1 && call.block != 2) continue;
      if (call.micro_batch < 2) call.micro_batch = 1 - call.micro_batch;
    }
  });
}
void MissingBackward(Plan& plan) {
  EditCalls(plan.programs[1], [](std::vector<Call>& calls) {
    calls.erase(std::find_if(calls.begin(), calls.end(),
                             [](const Call& c) { return c.block == 2 && c.micro_batch == 2; }));
  });
}
void OtherStream(Plan& plan) {
  Block& end = BlockOf(plan.programs[1], "E");
  end.ops[Find(plan.programs[1], end, InGroup(plan, "emb"))].stream = 0;
}
void SwapEqualCollectives(Plan& plan) {  // loss and norm on one group; swapped on the last stage
  const OpTest norm = Both(Is(OpKind::kAllReduce), Writes("gnorm")),
               loss = Both(Is(OpKind::kAllReduce), Writes("loss"));
  const int16_t group = Copy(plan.programs[0], BlockOf(plan.programs[0], "E"), norm).group;
  ASSERT_EQ(Change(plan, loss, [&](Op& op) { op.group = group; }), 2);
  Program& last = plan.programs[1];
  Block& end = BlockOf(last, "E");
  MoveOp(end, Find(last, end, loss), Find(last, end, norm));
}
void OtherType(Plan& plan) {
  Program& program = plan.programs[1];
  Block& forward = BlockOf(program, "F0");
  const View& view = program.views[forward.ops[Find(program, forward, Is(OpKind::kRecv))].out[0]];
  program.buffers[view.buffer].dtype = Dtype::kF16;
}
void OtherTag(Plan& plan) {
  Block& forward = BlockOf(plan.programs[1], "F0");
  forward.ops[Find(plan.programs[1], forward, Is(OpKind::kRecv))].tag += 1;
}

// Deadlock.
void SwapGroups(Plan& plan) {
  Program& last = plan.programs[1];
  Block& end = BlockOf(last, "E");
  MoveOp(end, Find(last, end, Both(Is(OpKind::kAllReduce), Writes("loss"))),
         Find(last, end, Both(Is(OpKind::kAllReduce), Writes("gnorm"))));
}
void OneFifo(Plan& plan) {
  const auto p2p = [](const Program&, const Op& op) {
    return Info(op.kind).op_class == OpClass::kPointToPoint;
  };
  ASSERT_GT(Change(plan, p2p, [](Op& op) { op.stream = 4; }), 0);
}
void CrosswiseOrder(Plan& plan) {
  // Stage 0 wants the first gradient before its second forward, stage 1 both forwards before a
  // gradient.
  auto order = [](std::vector<int> blocks, std::vector<int> batches) {
    return [=](std::vector<Call>& calls) {
      for (size_t i = 0; i < blocks.size(); ++i) calls[1 + i] = {blocks[i], batches[i], 0};
    };
  };
  EditCalls(plan.programs[0], order({1, 2, 1, 2, 1, 2, 1, 2}, {0, 0, 1, 1, 2, 2, 3, 3}));
  EditCalls(plan.programs[1], order({1, 1, 2, 2, 1, 1, 2, 2}, {0, 1, 0, 1, 2, 3, 2, 3}));
}
void TiedSumInBackward(Plan& plan) {  // before the last backward's gradient is sent
  for (Program& program : plan.programs) {
    Block& end = BlockOf(program, "E");
    Block& backward = BlockOf(program, "B0");
    const size_t from = Find(program, end, InGroup(plan, "emb"));
    Op op = end.ops[from];
    end.ops.erase(end.ops.begin() + static_cast<std::ptrdiff_t>(from));
    op.stream = 0;
    op.when = kWhenLast;
    const bool first = program.stage == 0;
    backward.ops.insert(first ? backward.ops.end() : backward.ops.begin(), op);
  }
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

std::vector<Row> Table() {
  using F = Fault;
  const Strategy dp2 = Make(1, 1, 2), pp2 = Make(1, 2, 1), pp2dp2 = Make(1, 2, 2),
                 tp2 = Make(2, 1, 1);
  const Strategy zero1 = Make(1, 1, 2, 1), zero2 = Make(1, 1, 2, 2), zero3 = Make(1, 1, 2, 3);
  Strategy hybrid = Make(1, 1, 2, 2);
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
      {"predicated reduction runs on every call",
       ReducedInBackward(),
       LosePredicate,
       {F::kPartialGradient},
       {}},
      {"bucket reduced over the wrong group",
       Make(2, 1, 2),
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
      {"reduction of the loss dropped", dp2, DropLossReduction, {F::kPartialRead}, {}},
      {"1F1B one slot short", pp2, {}, {F::kSlotOverrun}, OneSlotShort},
      {"backward before forward", dp2, BackwardBeforeForward, {F::kReadBeforeWrite}, {}},
      {"gather dropped", zero3, DropGather, {F::kReadBeforeWrite}, {}},
      {"gather issued too late", zero3, GatherTooLate, {F::kStaleRead}, {}},
      {"gather of a received tensor dropped",
       Make(2, 2, 1),
       DropBoundaryGather,
       {F::kReadBeforeWrite},
       {}},
      {"partial sum sliced and sent", Make(2, 2, 1), SlicePartialSum, {F::kPartialRead}, {}},
      {"slice over an axis of other size", Make(2, 2, 1), SliceOverOtherAxis, {F::kShape}, {}},
      {"slice over an axis that is not there", Make(2, 2, 1), SliceOverNoAxis, {F::kShape}, {}},
      {"gradients not zeroed", dp2, DropZeroing, {F::kReadBeforeWrite}, {}},
      {"reduce-scatter dropped", zero2, DropScatter, {F::kReadBeforeWrite}, {}},
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
      {"other micro-batch order on one stage", pp2, OtherOrder, {F::kP2pMismatch}, {}},
      {"missing backward call", pp2, MissingBackward, {F::kP2pMismatch}, {}},
      {"receive in another type", pp2, OtherType, {F::kP2pMismatch}, {}},
      {"receive of another call site", pp2, OtherTag, {F::kP2pMismatch}, {}},
      {"same collective on different streams", pp2, OtherStream, {F::kCollectiveMismatch}, {}},
      {"two equal-sized collectives swapped",
       Make(1, 2, 2, 1),
       SwapEqualCollectives,
       {F::kCollectiveMismatch},
       {}},
      {"two collectives of different groups swapped", pp2dp2, SwapGroups, {F::kDeadlock}, {}},
      {"all point-to-point ops on one FIFO", pp2, OneFifo, {F::kDeadlock}, {}},
      {"crosswise order through data", pp2, CrosswiseOrder, {F::kDeadlock}, {}},
      {"sum of tied embeddings inside the last backward",
       pp2,
       TiedSumInBackward,
       {F::kDeadlock},
       {}},
      {"gather ring one slot short", zero3, ShortRing, {F::kByteClash}, {}},
      {"two scratch buffers on the same bytes", dp2, {}, {F::kByteClash}, ScratchOverScratch},
      {"two step buffers on the same bytes", dp2, {}, {F::kByteClash}, StepOverStep},
      {"scratch over a frame in use", dp2, {}, {F::kByteClash}, ScratchOverHeldFrame},
  };
}

constexpr int64_t kBatch = 4;

TEST(PlantedFaults, AreFound) {
  int found_rows = 0;
  const std::vector<Row> table = Table();
  fmt::print("{:<62} {:<34} {}\n", "planted", "expected", "found");
  for (const Row& row : table) {
    SCOPED_TRACE(row.fault);
    const int64_t batch = kBatch * row.strategy.data_parallel();
    Plan plan = LowerTiny(row.strategy, batch);
    std::vector<Finding> findings;
    if (row.plant) {
      row.plant(plan);
      findings = Verify(plan);
    } else {
      Layouts layouts = LayoutsOf(plan);
      row.plant_layout(plan, layouts);
      findings = Verify(plan, layouts);
    }
    std::set<std::string> names, wanted;
    for (const Finding& finding : findings) names.insert(FaultName(finding.fault));
    for (Fault fault : row.expected) wanted.insert(FaultName(fault));
    EXPECT_TRUE(std::includes(names.begin(), names.end(), wanted.begin(), wanted.end()));
    found_rows += std::includes(names.begin(), names.end(), wanted.begin(), wanted.end());
    fmt::print("{:<62} {:<34} {}\n", row.fault, fmt::format("{}", fmt::join(wanted, ", ")),
               fmt::join(names, ", "));
    for (const Finding& finding : findings)
      EXPECT_FALSE(finding.where.empty() || finding.message.empty());
  }
  fmt::print("{} of {} found\n", found_rows, table.size());
  EXPECT_GE(table.size(), 21u);
}

TEST(PlantedFaults, TheirPlansAreCorrectBefore) {
  for (const Row& row : Table()) {
    SCOPED_TRACE(row.fault);
    for (const Finding& finding :
         Verify(LowerTiny(row.strategy, kBatch * row.strategy.data_parallel()))) {
      ADD_FAILURE() << FaultName(finding.fault) << " stage " << finding.stage << " "
                    << finding.where << ": " << finding.message;
    }
  }
}

// Dropping any one collective must not go unnoticed, in every kind of plan.
TEST(PlantedFaults, NoCollectiveIsMissedSilently) {
  Strategy hybrid = Make(1, 1, 2, 3);
  hybrid.dp_outer = 2;
  Strategy sequence = Make(2, 2, 2, 1);
  sequence.sequence_parallel = true;
  int planted = 0;
  for (const Strategy& strategy : {Make(1, 1, 2), Make(2, 1, 1), Make(1, 1, 2, 1), Make(1, 1, 2, 2),
                                   Make(1, 1, 2, 3), hybrid, sequence}) {
    const Plan plan = LowerTiny(strategy, kBatch * strategy.data_parallel());
    for (size_t p = 0; p < plan.programs.size(); ++p) {
      for (size_t b = 0; b < plan.programs[p].blocks.size(); ++b) {
        const auto& ops = plan.programs[p].blocks[b].ops;
        for (size_t i = 0; i < ops.size(); ++i) {
          if (Info(ops[i].kind).op_class != OpClass::kCollective) continue;
          Plan broken = plan;
          auto& list = broken.programs[p].blocks[b].ops;
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
          ++planted;
          EXPECT_FALSE(Verify(broken).empty())
              << plan.title << " " << plan.programs[p].blocks[b].name << " op " << i << " "
              << Info(ops[i].kind).name;
        }
      }
    }
  }
  fmt::print("{} collectives dropped one by one\n", planted);
  EXPECT_GT(planted, 100);
}

}  // namespace
}  // namespace orrery::ir
