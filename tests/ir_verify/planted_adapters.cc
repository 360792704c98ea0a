// SPDX-License-Identifier: Apache-2.0
// Faults in frozen weights and the adapters beside them: what is updated, reduced, gathered.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

void Freeze(Plan& plan, const std::string& name, bool frozen) {
  const auto param = std::ranges::find(plan.params, name, &Param::name);
  ASSERT_NE(param, plan.params.end());
  param->frozen = frozen;
}

void UpdateFrozen(Plan& plan) {
  for (const char* param :
       {"l1.qkv.A", "l1.qkv.B", "l1.o.A", "l1.o.B", "l1.fc1.A", "l1.fc1.B", "l1.fc2.A", "l1.fc2.B"})
    Freeze(plan, param, true);
}
void ForgetFrozen(Plan& plan) { Freeze(plan, "wpe.w", false); }
void MixUnit(Plan& plan) { Freeze(plan, "l1.fc1.A", true); }
void FreezeAll(Plan& plan) {
  for (Param& param : plan.params) param.frozen = true;
}
void KeepReplicasApart(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("G.a1"))), 1);
}
void KeepTensorPartsApart(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("G.a1/rep"))), 1);
}
void AddBehindReduction(Plan& plan) {  // to the sum of all ranks, on each rank its own part
  Program& program = plan.programs[0];
  Block& forward = BlockOf(program, "F0");
  const size_t sum = Find(program, forward, Both(Is(OpKind::kAdd), Writes("l1.attn.out")));
  const size_t reduction =
      Find(program, forward, Both(Is(OpKind::kAllReduce), Writes("l1.attn.out")));
  ASSERT_LT(sum, reduction);
  MoveOp(forward, sum, reduction);
}
void DropNarrowGather(Plan& plan) {
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllGather), Writes("l1.attn.inrf"))), 1);
}
void ReadNarrowPart(Plan& plan) {  // the gradient between B and A before it is summed
  Program& program = plan.programs[0];
  Block& backward = BlockOf(program, "B0");
  const Op& scatter =
      backward
          .ops[Find(program, backward, Both(Is(OpKind::kReduceScatter), Writes("d.l1.attn.inrs")))];
  const ViewId all = scatter.in[0], part = scatter.out[0];
  for (Op& op : backward.ops) {
    if (op.kind == OpKind::kMatmul) std::replace(op.in.begin(), op.in.end(), part, all);
  }
}
void DropOutputGather(Plan& plan) {  // columns of B's output on this rank alone
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllGather), Writes("l1.attn.outup"))), 1);
}
void DropGradientExchange(Plan& plan) {  // rows of the output's gradient for its columns
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllToAll), Writes("d.l1.attn.outc"))), 1);
}
void KeepNarrowSumApart(Plan& plan) {  // what A of the map out leaves, in front of B
  ASSERT_EQ(Drop(plan, Both(Is(OpKind::kAllReduce), Writes("l1.attn.outr"))), 1);
}
void GatherOtherUnit(Plan& plan) {
  const Program& program = plan.programs[0];
  const auto shard = std::ranges::find(program.views, std::string("Ws.a0"), &View::name);
  ASSERT_NE(shard, program.views.end());
  const auto id = static_cast<ViewId>(shard - program.views.begin());
  ASSERT_GT(Change(
                plan,
                [](const Program& p, const Op& op) {
                  return op.kind == OpKind::kAllGather &&
                         p.views[op.out[0]].name.starts_with("Wg.a1@");
                },
                [&](Op& op) { op.in[0] = id; }),
            0);
}

}  // namespace

std::vector<PlantedFault> AdapterFaults() {
  using F = Fault;
  const Lora lora{2, 4};
  const Strategy both = Degrees(2, 1, 2), sharded = Degrees(1, 1, 2, 3);
  Strategy rows = Degrees(2, 1, 1);
  rows.sequence_parallel = true;
  Strategy columns = rows, exchanged = rows;
  columns.adapter_split = AdapterSplit::kColumns;
  exchanged.adapter_split = AdapterSplit::kColumnsA2a;
  return {
      {"adapter's output not gathered", columns, DropOutputGather, {F::kReadBeforeWrite}, {}, lora},
      {"gradient of an adapter's output not exchanged",
       exchanged,
       DropGradientExchange,
       {F::kReadBeforeWrite},
       {},
       lora},
      {"parts of a map's A not summed in front of B",
       columns,
       KeepNarrowSumApart,
       {F::kPartialRead},
       {},
       lora},
      {"frozen weights are updated", both, UpdateFrozen, {F::kCoverage}, {}, lora},
      {"weights that are not frozen are never updated",
       both,
       ForgetFrozen,
       {F::kCoverage},
       {},
       lora},
      {"a unit with frozen and trained weights", both, MixUnit, {F::kCoverage}, {}, lora},
      {"nothing is trained", both, FreezeAll, {F::kCoverage}, {}, lora},
      {"adapters not reduced over replicas",
       both,
       KeepReplicasApart,
       {F::kPartialGradient},
       {},
       lora},
      {"whole half of an adapter not reduced over tensor ranks",
       both,
       KeepTensorPartsApart,
       {F::kPartialGradient},
       {},
       lora},
      {"adapter's part added behind the reduction",
       both,
       AddBehindReduction,
       {F::kPartialRead},
       {},
       lora},
      {"what B reads not gathered", rows, DropNarrowGather, {F::kReadBeforeWrite}, {}, lora},
      {"gradient between A and B not summed", rows, ReadNarrowPart, {F::kPartialRead}, {}, lora},
      {"adapters gathered from another layer's",
       sharded,
       GatherOtherUnit,
       {F::kCoverage},
       {},
       lora},
  };
}

}  // namespace orrery::ir
