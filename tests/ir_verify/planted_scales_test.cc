// SPDX-License-Identifier: Apache-2.0
// Faults in casts and scales of low-precision plans: each must be found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "model/base/check.h"
#include "model/plan/ir/verify.h"
#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

ModelSpec TinyModel(Fp8 recipe) {
  const int64_t block = FormOf(recipe).multiple;
  ModelSpec model;
  model.name = "tiny fp8";
  model.layers = 2;
  model.hidden = model.ffn = 2 * block;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = model.hidden / model.heads;
  model.vocab = 22;
  model.max_positions = 2 * block + 1;
  return model;
}

struct Layout2 {
  Fp8 recipe = Fp8::kMxfp8;
  int tp = 1, dp = 1, zero = 0;
  bool sequence = false;
  LoraBase base =
      LoraBase::kPlain;  // of frozen weights under adapters; plain: all weights are trained
  bool casts = true;
  bool held = false;  // weights are held in 8 bits
};

Plan LowerFp8(const Layout2& layout) {
  Workload work;
  work.seq_len = 2 * FormOf(layout.recipe).multiple;
  work.global_batch = 2 * layout.dp;
  if (layout.casts) work.fp8 = layout.recipe;
  if (layout.base != LoraBase::kPlain) work.lora = {2, 4, kLoraAll, layout.base};
  Strategy s;
  s.tp = layout.tp;
  s.dp = layout.dp;
  s.zero = layout.zero;
  s.sequence_parallel = layout.sequence;
  s.fp8_weights = layout.held;
  LowerResult result = Lower(TinyModel(layout.recipe), work, s);
  const Refusal* refusal = std::get_if<Refusal>(&result);
  ORRERY_CHECK(refusal == nullptr, "{}", refusal->reason);
  return std::move(std::get<Plan>(result));
}

ViewId ViewNamed(const Program& program, const std::string& name) {
  for (size_t v = 0; v < program.views.size(); ++v)
    if (program.views[v].name == name) return static_cast<ViewId>(v);
  ORRERY_CHECK(false, "no view {}", name);
}

// The product that reads this view takes another one in its place.
void Swap(Plan& plan, const std::string& from, const std::string& to) {
  const ViewId old = ViewNamed(plan.programs[0], from), other = ViewNamed(plan.programs[0], to);
  ASSERT_GT(Change(plan, Both(Is(OpKind::kMatmul), Reads(from)),
                   [&](Op& op) { std::replace(op.in.begin(), op.in.end(), old, other); }),
            0);
}

struct Planted {
  std::string fault;
  Layout2 layout;
  std::function<void(Plan&)> plant;
  Fault expected;
};

constexpr Layout2 kMx{}, kBlocks{Fp8::kBlockwise}, kCurrent{Fp8::kCurrent};
constexpr Layout2 kFour{Fp8::kNvfp4};
constexpr Layout2 kSharded{Fp8::kCurrent, 2, 1, 0, true}, kDelayed{Fp8::kDelayed, 2, 2},
    kGathered{Fp8::kMxfp8, 1, 2, 3}, kParts{Fp8::kMxfp8, 2, 1, 0, true};
constexpr Layout2 kNf4{Fp8::kBlockwise, 2, 1, 0, false, LoraBase::kNf4, false},
    kCodes{Fp8::kCurrent, 2, 1, 0, true, LoraBase::kFp8};

constexpr LoraBase kTrained = LoraBase::kPlain;
constexpr Layout2 kHeld{Fp8::kCurrent, 1, 2, 1, false, kTrained, true, true},
    kHeldDelayed{Fp8::kDelayed, 2, 2, 1, true, kTrained, true, true},
    kHeldShards{Fp8::kCurrent, 1, 2, 3, false, kTrained, true, true},
    kHeldBlocks{Fp8::kBlockwise, 1, 2, 1, false, kTrained, true, true};

// The op that reads this view reads another one in its place.
void Reread(Plan& plan, OpKind kind, const std::string& from, const std::string& to) {
  const ViewId old = ViewNamed(plan.programs[0], from), other = ViewNamed(plan.programs[0], to);
  ASSERT_GT(Change(plan, Both(Is(kind), Reads(from)),
                   [&](Op& op) { std::replace(op.in.begin(), op.in.end(), old, other); }),
            0);
}

std::vector<Planted> ScaleFaults() {
  return {
      {"scales of another cast of equal size", kMx,
       [](Plan& p) { Swap(p, "l0.attn.n.qs", "l1.attn.n.qs"); }, Fault::kScale},
      {"scales of the other direction", kBlocks,
       [](Plan& p) { Swap(p, "l0.mlp.act.qas", "l0.mlp.act.qs"); }, Fault::kScale},
      {"data along the rows in a weight gradient", kMx,
       [](Plan& p) { Swap(p, "l0.mlp.n.qa", "l0.mlp.n.q"); }, Fault::kScale},
      {"a gathered cast with scales of this rank's rows", kParts,
       [](Plan& p) { Swap(p, "l0.mlp.nf.qs", "l0.mlp.n.qs"); }, Fault::kShape},
      {"the tensor scale of another tensor", kCurrent,
       [](Plan& p) { Swap(p, "l0.attn.n.ts", "l1.mlp.n.ts"); }, Fault::kScale},
      {"a cast by a stale scale", kCurrent,
       [](Plan& p) {
         const ViewId other = ViewNamed(p.programs[0], "l0.attn.n.ts");
         ASSERT_EQ(Change(p, Both(Is(OpKind::kQuantize), Writes("l1.attn.n.q")),
                          [&](Op& op) { op.in[1] = other; }),
                   1);
       },
       Fault::kScale},
      {"a weight gradient of one transformed operand", kFour,
       [](Plan& p) {
         const ViewId plain = ViewNamed(p.programs[0], "l0.mlp.act.ts/across");
         ASSERT_EQ(Change(p, Both(Is(OpKind::kQuantize), Writes("l0.mlp.act.q")),
                          [&](Op& op) {
                            op.attrs.Set(Attr::kHadamard, 0);
                            op.in[1] = plain;
                          }),
                   1);
       },
       Fault::kScale},
      {"the tensor scale of what is not transformed", kFour,
       [](Plan& p) { Swap(p, "l0.mlp.act.ts/across", "l0.mlp.act.ts/along"); }, Fault::kScale},
      {"block scales with the tensor scale of another layer", kFour,
       [](Plan& p) { Swap(p, "l0.attn.n.ts/along", "l1.attn.n.ts/along"); }, Fault::kScale},
      {"weights not cast again", kMx,
       [](Plan& p) {
         ASSERT_EQ(Drop(p, Both(Is(OpKind::kQuantize), Writes("W.u0/l0.fc1.w@cast.q"))), 1);
       },
       Fault::kReadBeforeWrite},
      {"weights cast in the last micro-batch", kMx,
       [](Plan& p) {
         EditCalls(p.programs[0], [](std::vector<Call>& calls) {
           for (Call& call : calls)
             call.flags = call.micro_batch == 1 ? kWhenFirst : call.flags & ~kWhenFirst;
         });
       },
       Fault::kReadBeforeWrite},
      {"no cast of a gathered weight", kGathered,
       [](Plan& p) {
         int dropped = 0;
         for (const std::string use : {"0", "1", "2", "3"})
           dropped +=
               Drop(p, Both(Is(OpKind::kQuantize), Writes("Wg.u0@F0." + use + "/l0.fc1.w@cast.q")));
         ASSERT_EQ(dropped, 1);
       },
       Fault::kReadBeforeWrite},
      {"a magnitude of one rank's rows", kSharded,
       [](Plan& p) { ASSERT_EQ(Drop(p, Both(Is(OpKind::kAllReduce), Writes("l0.attn.n.am"))), 1); },
       Fault::kPartialRead},
      {"a magnitude summed up", kSharded,
       [](Plan& p) {
         ASSERT_EQ(Change(p, Both(Is(OpKind::kAllReduce), Writes("l0.attn.n.am")),
                          [](Op& op) { op.attrs.Set(Attr::kReduceOp, 0); }),
                   1);
       },
       Fault::kPartialRead},
      {"magnitudes over the wrong group", kDelayed,
       [](Plan& p) {
         ASSERT_EQ(Change(p, Both(Is(OpKind::kAllReduce), Writes("amax.fwd")),
                          [](Op& op) { op.group = 0; }),
                   1);
       },
       Fault::kPartialRead},
      {"magnitudes into the history before they are reduced", kDelayed,
       [](Plan& p) {
         Block& end = BlockOf(p.programs[0], "E");
         const size_t roll =
             Find(p.programs[0], end, Both(Is(OpKind::kAmaxRoll), Writes("history.bwd")));
         const size_t sum =
             Find(p.programs[0], end, Both(Is(OpKind::kAllReduce), Writes("amax.bwd")));
         MoveOp(end, roll, sum);
       },
       Fault::kPartialRead},
      {"a tensor that no history records", kDelayed,
       [](Plan& p) { ASSERT_EQ(Drop(p, Both(Is(OpKind::kAmax), Reads("l0.mlp.act"))), 1); },
       Fault::kScale},
      {"a product without scales", kMx,
       [](Plan& p) {
         ASSERT_GT(Change(p, Both(Is(OpKind::kMatmul), Reads("l0.attn.n.q")),
                          [](Op& op) { op.in.resize(op.in.size() - 2); }),
                   0);
       },
       Fault::kScale},
      {"blocks of another recipe", kBlocks,
       [](Plan& p) {
         ASSERT_GT(Change(p, Both(Is(OpKind::kQuantize), Writes("l0.attn.n.q")),
                          [](Op& op) { op.attrs.Set(Attr::kBlock, 64); }),
                   0);
       },
       Fault::kShape},
      {"a cast gathered into 16 bits", kParts,
       [](Plan& p) {
         Program& program = p.programs[0];
         program.buffers[program.views[ViewNamed(program, "l0.mlp.nf.q")].buffer].dtype =
             Dtype::kBf16;
       },
       Fault::kShape},
  };
}

// Frozen weights in few bits.
std::vector<Planted> PackedFaults() {
  const auto unpacks = Both(Is(OpKind::kUnpack), Reads("W.q0/l0.o.w"));
  return {
      {"codes unpacked by another weight's scales", kNf4,
       [](Plan& p) { Reread(p, OpKind::kUnpack, "W.s0/l0.fc1.w.scales", "W.s1/l1.fc1.w.scales"); },
       Fault::kScale},
      {"scales of another weight's groups", kNf4,
       [](Plan& p) { Reread(p, OpKind::kUnpack, "W.g0/l0.fc1.w.groups", "W.g1/l1.fc1.w.groups"); },
       Fault::kScale},
      {"columns unpacked as rows", kNf4,
       [=](Plan& p) {
         ASSERT_GT(Change(p, unpacks, [](Op& op) { op.attrs.Set(Attr::kAcross, 0); }), 0);
       },
       Fault::kScale},
      {"a piece unpacked as the whole", kNf4,
       [=](Plan& p) {
         ASSERT_GT(Change(p, unpacks, [](Op& op) { op.attrs.Set(Attr::kAxis, -1); }), 0);
       },
       Fault::kScale},
      {"a weight that no pass unpacks", kNf4, [=](Plan& p) { ASSERT_GT(Drop(p, unpacks), 0); },
       Fault::kReadBeforeWrite},
      {"codes read by a product with another weight's scale", kCodes,
       [](Plan& p) { Reread(p, OpKind::kMatmul, "W.s0/l0.fc1.w.scales", "W.s1/l1.fc1.w.scales"); },
       Fault::kScale},
      {"codes of a weight summed along the wrong dimension", kCodes,
       [](Plan& p) { Reread(p, OpKind::kMatmul, "W.q1/l1.fc1.w@t", "W.q1/l1.fc1.w"); },
       Fault::kScale},
      {"a packed weight that is trained", kNf4,
       [](Plan& p) {
         for (Param& param : p.params) param.frozen = false;
       },
       Fault::kCoverage},
      {"codes of a matrix of another shape", kNf4,
       [](Plan& p) {
         for (Param& param : p.params)
           if (!param.of.empty()) param.of[1] *= 2;
       },
       Fault::kCoverage},
  };
}

// Places `test`'s op of block E in front of the first one that passes `before`.
void MoveUp(Plan& plan, const OpTest& test, const OpTest& before) {
  Block& end = BlockOf(plan.programs[0], "E");
  MoveOp(end, Find(plan.programs[0], end, test), Find(plan.programs[0], end, before));
}

OpTest Casts(const std::string& master) { return Both(Is(OpKind::kUnitCast), Reads(master)); }
OpTest Updates(const std::string& master) { return Both(Is(OpKind::kAdam), Writes(master)); }

// Weights that are trained and held in 8 bits.
std::vector<Planted> HeldFaults() {
  return {
      {"codes with the scale of another weight", kHeld,
       [](Plan& p) {
         Reread(p, OpKind::kMatmul, "scale.weights/l0.fc1.w", "scale.weights/l1.fc1.w");
       },
       Fault::kScale},
      {"transposed codes with the scale of another cast", kHeldBlocks,
       [](Plan& p) { Reread(p, OpKind::kMatmul, "scale.weights/l0.o.w", "scale.weights/l1.o.w"); },
       Fault::kScale},
      {"codes summed along the wrong dimension", kHeld,
       [](Plan& p) { Reread(p, OpKind::kMatmul, "W.q0/l0.fc1.w@t", "W.q0/l0.fc1.w"); },
       Fault::kScale},
      {"a unit cast by the scales of another", kHeld,
       [](Plan& p) { Reread(p, OpKind::kUnitCast, "scale.weights/q0", "scale.weights/q1"); },
       Fault::kScale},
      {"magnitudes of another unit's master copy", kHeld,
       [](Plan& p) { Reread(p, OpKind::kUnitAmax, "M.q0", "M.q1"); }, Fault::kScale},
      {"magnitudes of one shard", kHeld,
       [](Plan& p) { ASSERT_EQ(Drop(p, Both(Is(OpKind::kAllReduce), Writes("amax.weights"))), 1); },
       Fault::kPartialRead},
      {"magnitudes reduced over the wrong group", kHeldDelayed,
       [](Plan& p) {
         ASSERT_EQ(Change(p, Both(Is(OpKind::kAllReduce), Writes("amax.weights")),
                          [](Op& op) { op.group = 0; }),
                   1);
       },
       Fault::kPartialRead},
      {"magnitudes of shards summed up", kHeldBlocks,
       [](Plan& p) {
         ASSERT_EQ(Change(p, Both(Is(OpKind::kAllReduce), Writes("amax.weights")),
                          [](Op& op) { op.attrs.Set(Attr::kReduceOp, 0); }),
                   1);
       },
       Fault::kPartialRead},
      {"magnitudes of the weights before the update", kHeld,
       [](Plan& p) { MoveUp(p, Both(Is(OpKind::kUnitAmax), Reads("M.q1")), Updates("M.q1")); },
       Fault::kScale},
      {"codes of the weights before the update", kHeldDelayed,
       [](Plan& p) { MoveUp(p, Casts("M.q1"), Updates("M.q1")); }, Fault::kScale},
      {"codes cast by the scale of the step before", kHeld,
       [](Plan& p) {
         MoveUp(p, Casts("M.q1"), Both(Is(OpKind::kScaleUpdate), Writes("scale.weights")));
       },
       Fault::kScale},
      {"codes not made again", kHeldShards, [](Plan& p) { ASSERT_EQ(Drop(p, Casts("M.q0")), 1); },
       Fault::kScale},
      {"codes made again and not gathered", kHeld,
       [](Plan& p) { ASSERT_EQ(Drop(p, Both(Is(OpKind::kAllGather), Writes("W.q0"))), 1); },
       Fault::kCoverage},
      {"numbers of the update where codes are due", kHeldShards,
       [](Plan& p) {
         const ViewId codes = ViewNamed(p.programs[0], "Ws.q0");
         ASSERT_EQ(Change(p, Updates("M.q0"), [&](Op& op) { op.out[0] = codes; }), 1);
       },
       Fault::kScale},
      {"norms gathered in 8 bits", kHeld,
       [](Plan& p) {
         for (const std::string name : {"W.u0", "Wo.u0"})
           p.programs[0].buffers[p.programs[0].views[ViewNamed(p.programs[0], name)].buffer].dtype =
               Dtype::kE4m3;
       },
       Fault::kScale},
      {"a weight in 16 bits among codes", kHeld,
       [](Plan& p) {
         for (Param& param : p.params)
           if (param.name == "l0.fc2.w") param.packing = Packed::kNone;
       },
       Fault::kScale},
      {"a transposed copy of an earlier step", kHeldDelayed,
       [](Plan& p) {
         ASSERT_EQ(Drop(p, Both(Is(OpKind::kQuantize), Writes("W.q0/l0.fc1.w@t"))), 1);
       },
       Fault::kReadBeforeWrite},
  };
}

TEST(PlantedScaleFaults, AreFound) {
  std::vector<Planted> rows = ScaleFaults();
  for (const Planted& held : HeldFaults()) rows.push_back(held);
  for (const Planted& packed : PackedFaults()) rows.push_back(packed);
  for (const Planted& row : rows) {
    SCOPED_TRACE(row.fault);
    Plan plan = LowerFp8(row.layout);
    row.plant(plan);
    std::set<std::string> names;
    for (const Finding& finding : Verify(plan)) {
      names.insert(FaultName(finding.fault));
      EXPECT_FALSE(finding.where.empty() || finding.message.empty());
    }
    EXPECT_TRUE(names.contains(FaultName(row.expected)));
    fmt::print("{:<55} {:<20} {}\n", row.fault, FaultName(row.expected), fmt::join(names, ", "));
  }
}

TEST(PlantedScaleFaults, TheirPlansAreCorrectBefore) {
  for (const Fp8 recipe :
       {Fp8::kDelayed, Fp8::kCurrent, Fp8::kBlockwise, Fp8::kMxfp8, Fp8::kNvfp4}) {
    for (const auto& [tp, dp, zero, sequence] :
         {std::tuple{1, 1, 0, false}, {2, 2, 1, true}, {1, 2, 3, false}, {2, 1, 0, false}}) {
      for (const Finding& finding : Verify(LowerFp8({recipe, tp, dp, zero, sequence}))) {
        ADD_FAILURE() << FaultName(finding.fault) << " " << finding.where << ": "
                      << finding.message;
      }
    }
  }
}

TEST(PlantedScaleFaults, PackedPlansAreCorrectBefore) {
  for (const Layout2& form :
       {kNf4, kCodes, Layout2{Fp8::kBlockwise, 1, 1, 0, false, LoraBase::kFp8},
        Layout2{Fp8::kMxfp8, 1, 1, 0, false, LoraBase::kInt8, false}}) {
    for (const auto& [tp, dp, zero] : {std::tuple{1, 1, 0}, {2, 2, 1}, {1, 2, 3}}) {
      Layout2 layout = form;
      layout.tp = tp;
      layout.dp = dp;
      layout.zero = zero;
      layout.sequence = tp > 1;
      const Plan plan = LowerFp8(layout);
      for (const Finding& finding : Verify(plan)) {
        ADD_FAILURE() << FaultName(finding.fault) << " " << finding.where << ": "
                      << finding.message;
      }
      EXPECT_EQ(ParsePlan(ToText(plan), "plan"), plan);
    }
  }
}

TEST(PlantedScaleFaults, HeldPlansAreCorrectBefore) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kBlockwise}) {
    for (const auto& [tp, dp, zero, sequence] : {std::tuple{1, 1, 0, false},
                                                 {2, 2, 1, true},
                                                 {1, 2, 2, false},
                                                 {1, 2, 3, false},
                                                 {2, 1, 0, false}}) {
      const Plan plan = LowerFp8({recipe, tp, dp, zero, sequence, kTrained, true, true});
      for (const Finding& finding : Verify(plan)) {
        ADD_FAILURE() << FaultName(finding.fault) << " " << finding.where << ": "
                      << finding.message;
      }
      EXPECT_EQ(ParsePlan(ToText(plan), "plan"), plan);
    }
  }
}

// The text of a low-precision plan reads back.
TEST(LowPrecisionPlans, ComeBackFromText) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kMxfp8, Fp8::kNvfp4}) {
    const Plan plan = LowerFp8({recipe, 2, 2, 1, true});
    EXPECT_EQ(ParsePlan(ToText(plan), "plan"), plan);
  }
}

}  // namespace
}  // namespace orrery::ir
