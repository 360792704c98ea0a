// SPDX-License-Identifier: Apache-2.0
// Faults in what the backward pass makes again.
#include <gtest/gtest.h>

#include "tests/ir_verify/planted_faults.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

Strategy Recomputing(int modules, int first = 0, int tp = 1) {
  Strategy s = Degrees(tp, 1, 1);
  s.sequence_parallel = tp > 1;
  s.recompute = {static_cast<unsigned char>(modules), first};
  return s;
}

Strategy ByOp() {
  Strategy s = Recomputing(Recompute::kByOp.modules);
  s.split_products = true;
  return s;
}
void ForgetKeys(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.attn.k")), 1); }
void ForgetUp(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.mlp.up")), 1); }
void ForgetStream(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.x1")), 1); }
void ForgetActivation(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.mlp.act")), 1); }
void ForgetNorm(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.attn.n")), 1); }
void ForgetGather(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.mlp.nf")), 1); }
void ForgetLayer(Plan& plan) { ASSERT_EQ(Drop(plan, Writes("r.l1.mlp.in")), 1); }
void MakeTooLate(Plan& plan) {
  Block& backward = BlockOf(plan.programs[0], "B0");
  MoveOp(backward, Find(plan.programs[0], backward, Writes("r.l1.mlp.in")),
         backward.ops.size() - 1);
}

// Every op of the backward pass that reads `from` reads `to`.
void ReadInstead(Plan& plan, const std::string& from, const std::string& to) {
  Program& program = plan.programs[0];
  const ViewId old_view = Named(program, from), new_view = Named(program, to);
  int changed = 0;
  for (Op& op : BlockOf(program, "B0").ops) {
    for (ViewId& view : op.in) {
      if (view != old_view) continue;
      view = new_view;
      ++changed;
    }
  }
  ASSERT_GT(changed, 0);
}
// A layer that comes later in the backward pass.
void ReadOtherStream(Plan& plan) { ReadInstead(plan, "r.l1.x1", "r.l0.x1"); }
void ReadOtherLayer(Plan& plan) { ReadInstead(plan, "r.l1.attn.n", "r.l0.attn.n"); }

}  // namespace

std::vector<PlantedFault> RecomputeFaults() {
  using F = Fault;
  return {
      {"activation not made again",
       Recomputing(kRecomputeActivation),
       ForgetActivation,
       {F::kReadBeforeWrite},
       {}},
      {"norm not made again", Recomputing(kRecomputeNorms), ForgetNorm, {F::kReadBeforeWrite}, {}},
      {"rows of an MLP that runs again not gathered",
       Recomputing(kRecomputeMlp, 0, 2),
       ForgetGather,
       {F::kReadBeforeWrite},
       {}},
      {"one of the first layers not run again",
       Recomputing(kRecomputeLayer, 2),
       ForgetLayer,
       {F::kReadBeforeWrite},
       {}},
      {"MLP run again behind its reader",
       Recomputing(kRecomputeMlp),
       MakeTooLate,
       {F::kStaleRead},
       {}},
      {"keys not made again", ByOp(), ForgetKeys, {F::kReadBeforeWrite}, {}},
      {"up not made again", ByOp(), ForgetUp, {F::kReadBeforeWrite}, {}},
      {"stream behind attention not made again", ByOp(), ForgetStream, {F::kReadBeforeWrite}, {}},
      {"stream of a layer read that is made again later",
       ByOp(),
       ReadOtherStream,
       {F::kStaleRead},
       {}},
      {"norm of a layer read that is made again later",
       Recomputing(kRecomputeNorms),
       ReadOtherLayer,
       {F::kStaleRead},
       {}},
  };
}

}  // namespace orrery::ir
