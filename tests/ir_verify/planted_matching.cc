// SPDX-License-Identifier: Apache-2.0
// Faults in what ranks expect of each other: order, kind, stream, deadlock.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

Op Copy(const Program& program, const Block& block, const OpTest& test) {
  return block.ops[Find(program, block, test)];
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

// A V: two queues to each neighbour, two chunks whose passes take turns.
Strategy InAV() {
  Strategy s = Degrees(1, 2, 1);
  s.schedule = PipelineSchedule::kZeroBubbleV;
  s.vpp = 2;
  return s;
}
void BackIntoTheOtherQueue(Plan& plan) {
  const OpTest back = [](const Program&, const Op& op) {
    return op.kind == OpKind::kSend && op.peer.delta == -3;
  };
  ASSERT_EQ(Change(plan, back, [](Op& op) { op.peer.delta = -1; }), 1);
}
void SentAtTheTurn(Plan& plan) {
  Block& forward = BlockOf(plan.programs[1], "F0");
  Op send = forward.ops[0];
  ASSERT_EQ(send.kind, OpKind::kRecv);
  send.kind = OpKind::kSend;
  send.in = std::move(send.out);
  send.out.clear();
  send.peer.delta = 2;  // the stage itself
  forward.ops.push_back(std::move(send));
}
void WeightGradOfTheOtherChunk(Plan& plan) {
  EditCalls(plan.programs[0], [&](std::vector<Call>& calls) {
    const auto first = std::find_if(calls.begin(), calls.end(), [&](const Call& c) {
      return plan.programs[0].blocks[c.block].name == "W1";
    });
    ASSERT_NE(first, calls.end());
    const auto other = std::find_if(calls.begin(), calls.end(), [&](const Call& c) {
      return plan.programs[0].blocks[c.block].name == "W0";
    });
    ASSERT_NE(other, calls.end());
    std::swap(first->block, other->block);
  });
}
// Gradients that are reduced once per step under ZeRO 3.
Strategy Once() {
  Strategy s = Degrees(1, 1, 2, 3);
  s.reduce_once = true;
  return s;
}
void Never(Plan& plan) { ASSERT_GT(Drop(plan, Is(OpKind::kReduceScatter)), 0); }

}  // namespace

std::vector<PlantedFault> MatchingFaults() {
  using F = Fault;
  const Strategy pp2 = Degrees(1, 2, 1), pp2dp2 = Degrees(1, 2, 2);
  return {
      {"other micro-batch order on one stage", pp2, OtherOrder, {F::kP2pMismatch}, {}},
      {"missing backward call", pp2, MissingBackward, {F::kP2pMismatch}, {}},
      {"receive in another type", pp2, OtherType, {F::kP2pMismatch}, {}},
      {"receive of another call site", pp2, OtherTag, {F::kP2pMismatch}, {}},
      {"same collective on different streams", pp2, OtherStream, {F::kCollectiveMismatch}, {}},
      {"two equal-sized collectives swapped",
       Degrees(1, 2, 2, 1),
       SwapEqualCollectives,
       {F::kCollectiveMismatch},
       {}},
      {"two collectives of different groups swapped", pp2dp2, SwapGroups, {F::kDeadlock}, {}},
      {"way back of a V in the queue of the way forth",
       InAV(),
       BackIntoTheOtherQueue,
       {F::kP2pMismatch},
       {}},
      {"the turn of a V sends to itself", InAV(), SentAtTheTurn, {F::kP2pMismatch}, {}},
      {"weight gradients of the other chunk",
       InAV(),
       WeightGradOfTheOtherChunk,
       {F::kReadBeforeWrite},
       {}},
      {"sums of gradients never reduced", Once(), Never, {F::kReadBeforeWrite}, {}},
      {"all point-to-point ops on one FIFO", pp2, OneFifo, {F::kDeadlock}, {}},
      {"crosswise order through data", pp2, CrosswiseOrder, {F::kDeadlock}, {}},
      {"sum of tied embeddings inside the last backward",
       pp2,
       TiedSumInBackward,
       {F::kDeadlock},
       {}},
  };
}

}  // namespace orrery::ir
