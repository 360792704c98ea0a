// SPDX-License-Identifier: Apache-2.0
// All-gather, ring, Ulysses and both levels of a2a_ring: one attention over parts, with or without a change of heads for
// positions around it.
#include "model/plan/lower/context.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::ViewId;

bool LowerContext::rings_keys() const {
  if (strategy.cp == 1) return false;
  return strategy.context.method == CpMethod::kRing || two_level() ||
         (strategy.context.method == CpMethod::kA2aRing && strategy.context.inner == 1);
}

void SetPositions(const StageBuilder& stage, ir::Attrs& attrs) {
  const LowerContext& ctx = stage.ctx();
  if (ctx.strategy.cp == 1) return;
  attrs.Set(Attr::kCp, ctx.ContextAxis());
  attrs.Set(Attr::kPart, double(ctx.Positions()));
  attrs.Set(Attr::kParts, ctx.strategy.cp);
  attrs.Set(Attr::kZigzag, double(ctx.strategy.context.zigzag));
}

namespace {

// What is in use or sent, and what arrives: these must not share bytes, or each rank waits for the next one's receive.
constexpr int kRingSlots = 2;

// Where a sublayer's attention happens: after `exchanged` ranks have changed heads for positions, `parts` ranks hold a
// part of `seq` positions each.
struct Geometry {
  int exchanged = 1, heads_group = -1;
  int parts = 1, axis = -1;
  int64_t batch, seq, heads, kv_heads, head_dim;
  bool zigzag = false;

  int64_t rows() const { return seq * batch; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t width() const { return heads * head_dim; }
  int64_t keys() const { return rows() * 2 * kv_heads * head_dim; }
};

Geometry GeometryOf(const StageBuilder& stage, const Sublayer& sub) {
  const LowerContext& ctx = stage.ctx();
  const Strategy& s = ctx.strategy;
  const SublayerShape shape = ShapeOf(stage, sub);
  Geometry g;
  g.batch = ctx.batch();
  g.zigzag = s.context.zigzag;
  const bool changes =
      s.context.method == CpMethod::kUlysses || s.context.method == CpMethod::kA2aRing;
  g.exchanged = !changes ? 1 : s.context.method == CpMethod::kUlysses ? s.cp : s.context.inner;
  g.heads_group = ctx.two_level() ? kGroupHeads : kGroupContext;
  g.parts = s.cp / g.exchanged;
  g.axis = ctx.two_level() ? static_cast<int>(kAxisEp) : static_cast<int>(kAxisCp);
  g.seq = ctx.Positions() * g.exchanged;
  g.heads = shape.heads / g.exchanged;
  g.kv_heads = shape.kv_heads / g.exchanged;
  g.head_dim = shape.head_dim;
  return g;
}

class Attention {
 public:
  Attention(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
            const ContextAttention& attention)
      : stage_(stage), layer_(layer), sub_(sub), a_(attention), g_(GeometryOf(stage, sub)) {}

  void Forward(bool again) {
    const ViewId qkv = Gathered();
    if (g_.exchanged > 1 && !again) ToHeads(a_.in, qkv, g_.qkv_width(), Temporary(), "qkv");
    const ViewId context = Context();
    if (g_.parts == 1) {
      stage_.Emit(OpKind::kAttn, {context, a_.lse}, {qkv}, Attrs()).group =
          DropoutGroup(stage_, true);
    } else if (stage_.ctx().strategy.context.method == CpMethod::kAllGather) {
      const ViewId all = GatherKeys(qkv, Temporary());
      AttendTo(context, qkv, all, -1, -1);
    } else {
      Ring(qkv, context, Temporary());
    }
    if (g_.exchanged > 1) ToRows(context, a_.context, g_.width(), Temporary(), "ctx");
  }

  void Backward(ViewId dcontext, ViewId din) {
    const ViewId qkv = Gathered(), context = Context();
    ViewId d = dcontext, dqkv = din;
    if (g_.exchanged > 1) {
      d = stage_.Act(Named("d.", "ctxg"), g_.rows() * g_.width());
      dqkv = stage_.Act(Named("d.", "qkvg"), g_.rows() * g_.qkv_width());
      ToHeads(dcontext, d, g_.width(), "d.", "ctx");
    }
    if (g_.parts == 1) {
      stage_.Emit(OpKind::kAttnBwd, {dqkv}, {d, qkv, context, a_.lse}, Attrs()).group =
          DropoutGroup(stage_, true);
    } else if (stage_.ctx().strategy.context.method == CpMethod::kAllGather) {
      GatherBackward(d, qkv, context, dqkv);
    } else {
      RingBackward(d, qkv, context, dqkv);
    }
    if (g_.exchanged > 1) ToRows(dqkv, din, g_.qkv_width(), "d.", "qkv");
  }

 private:
  // Gone after the block.
  std::string Temporary() const { return stage_.phase() == ir::Phase::kForward ? "t." : "r."; }
  std::string Named(const std::string& prefix, const std::string& what) const {
    return Name(prefix, layer_, sub_, what.c_str());
  }
  // qkv rows and context where attention happens.
  ViewId Gathered() {
    if (g_.exchanged == 1) return a_.in;
    return stage_.Act(Named(a_.kept, "qkvg"), g_.rows() * g_.qkv_width());
  }
  ViewId Context() {
    if (g_.exchanged == 1) return a_.context;
    return stage_.Act(Named(a_.own, "ctxg"), g_.rows() * g_.width());
  }

  ir::Attrs Attrs() const {
    ir::Attrs attrs = a_.attrs;
    attrs.Set(Attr::kSeq, double(g_.seq));
    attrs.Set(Attr::kNh, double(g_.heads));
    attrs.Set(Attr::kKv, double(g_.kv_heads));
    // Dropout and linear biases count the heads of all ranks.
    const bool counts = attrs.Get(Attr::kRate) > 0 || attrs.Get(Attr::kAlibi) > 0;
    if (g_.exchanged > 1 && g_.parts == 1 && counts) SetPositions(stage_, attrs);
    return attrs;
  }
  ir::Attrs PartAttrs(int step) const {
    ir::Attrs attrs = Attrs();
    attrs.Set(Attr::kSeqKv, double(step < 0 ? g_.seq * g_.parts : g_.seq));
    attrs.Set(Attr::kCp, g_.axis);
    attrs.Set(Attr::kPart, double(g_.seq));
    attrs.Set(Attr::kParts, g_.parts);
    attrs.Set(Attr::kZigzag, double(g_.zigzag));
    attrs.Set(Attr::kStep, step);
    return attrs;
  }

  // Rows [rows, exchanged, w] of this rank's positions to heads [exchanged x rows, w] of all positions.
  void ToHeads(ViewId x, ViewId y, int64_t w, const std::string& prefix, const std::string& what) {
    const int64_t elements = g_.rows() * w;
    const ViewId apart = stage_.Act(Named(prefix, what + ".s"), elements);
    Regroup(apart, x, w, false, false);
    const ViewId met = g_.zigzag ? stage_.Act(Named(prefix, what + ".r"), elements) : y;
    stage_.Communicate(OpKind::kAllToAll, met, apart, g_.heads_group);
    if (g_.zigzag) Regroup(y, met, w, true, false);
  }
  void ToRows(ViewId y, ViewId x, int64_t w, const std::string& prefix, const std::string& what) {
    const int64_t elements = g_.rows() * w;
    ViewId apart = y;
    if (g_.zigzag) {
      apart = stage_.Act(Named(prefix, what + ".rb"), elements);
      Regroup(apart, y, w, true, true);
    }
    const ViewId met = stage_.Act(Named(prefix, what + ".sb"), elements);
    stage_.Communicate(OpKind::kAllToAll, met, apart, g_.heads_group);
    Regroup(x, met, w, false, true);
  }
  void Regroup(ViewId out, ViewId in, int64_t w, bool zigzag, bool inverse) {
    stage_.Emit(OpKind::kRegroup, {out}, {in},
                {{Attr::kRows, double(g_.rows() / g_.exchanged)},
                 {Attr::kH, double(w)},
                 {Attr::kParts, double(g_.exchanged)},
                 {Attr::kZigzag, double(zigzag)},
                 {Attr::kInverse, double(inverse)}});
  }

  ViewId Keys(ViewId qkv, const std::string& prefix) {
    const ViewId kv = stage_.Act(Named(prefix, "kv0"), g_.keys());
    KeyValues(kv, {qkv}, false);
    return kv;
  }
  void KeyValues(ViewId out, std::vector<ViewId> in, bool inverse) {
    stage_.Emit(OpKind::kKeyValues, {out}, std::move(in),
                {{Attr::kRows, double(g_.rows())},
                 {Attr::kNh, double(g_.heads)},
                 {Attr::kKv, double(g_.kv_heads)},
                 {Attr::kHd, double(g_.head_dim)},
                 {Attr::kInverse, double(inverse)}});
  }
  ViewId GatherKeys(ViewId qkv, const std::string& prefix) {
    const ViewId kv = Keys(qkv, prefix);
    const ViewId all = stage_.Act(Named(prefix, "kvg"), g_.keys() * g_.parts);
    stage_.Communicate(OpKind::kAllGather, all, kv, kGroupContext);
    return all;
  }

  // `merged`: what the steps before have found, -1: this is the first one.
  void AttendTo(ViewId out, ViewId qkv, ViewId kv, ViewId merged, int step) {
    std::vector<ViewId> in{qkv, kv};
    ir::Attrs attrs = PartAttrs(step);
    if (merged >= 0) {
      in.insert(in.end(), {merged, a_.lse});
      attrs.Set(Attr::kAcc, 1);
    }
    stage_.Emit(OpKind::kPartAttn, {out, a_.lse}, std::move(in), attrs).group =
        DropoutGroup(stage_, true);
  }
  void AttendBackward(ViewId dkv, ViewId dqkv, const std::vector<ViewId>& in, bool acc, int step) {
    std::vector<ViewId> operands = in;
    ir::Attrs attrs = PartAttrs(step);
    if (acc) {
      operands.push_back(dqkv);
      attrs.Set(Attr::kAcc, 1);
    }
    stage_.Emit(OpKind::kPartAttnBwd, {dkv, dqkv}, std::move(operands), attrs).group =
        DropoutGroup(stage_, true);
  }

  void GatherBackward(ViewId d, ViewId qkv, ViewId context, ViewId dqkv) {
    const ViewId all = GatherKeys(qkv, "b.");
    const ViewId dall = stage_.Act(Named("b.", "dkvg"), g_.keys() * g_.parts);
    AttendBackward(dall, dqkv, {d, qkv, all, context, a_.lse}, false, -1);
    stage_.MarkYields(1u << g_.axis);
    const ViewId home = stage_.Act(Named("b.", "dkv"), g_.keys());
    stage_.Communicate(OpKind::kReduceScatter, home, dall, kGroupContext);
    KeyValues(dqkv, {dqkv, home}, true);
  }

  ViewId InRing(const std::string& prefix, const char* what, const char* ring, int index) {
    return stage_.MakeInRing(Named(prefix, what + std::to_string(index)), g_.keys(), ring,
                             kRingSlots, index);
  }

  // The keys of the next step travel while this one computes.
  void Ring(ViewId qkv, ViewId context, const std::string& prefix) {
    const ViewId acc = stage_.Make(Named(prefix, "acc"), g_.rows() * g_.width(), stage_.ctx().full);
    ViewId kv = Keys(qkv, prefix);
    for (int step = 0; step < g_.parts; ++step) {
      const bool last = step + 1 == g_.parts;
      const ViewId next = last ? -1 : InRing(prefix, "kv", "keys", step + 1);
      if (!last) stage_.Pass(kv, next, g_.axis);
      AttendTo(last ? context : acc, qkv, kv, step == 0 ? -1 : acc, step);
      kv = next;
    }
  }

  // A rank's own keys first. What each rank adds to their gradient follows them round, one step behind, and one hop
  // farther: home. Starting from the keys of the last forward step would spare this hop, and keep them in memory.
  void RingBackward(ViewId d, ViewId qkv, ViewId context, ViewId dqkv) {
    ViewId kv = Keys(qkv, "b."), sum = -1;
    for (int step = 0; step < g_.parts; ++step) {
      const bool last = step + 1 == g_.parts;
      const ViewId next = last ? -1 : InRing("b.", "kv", "keys", step + 1);
      if (!last) stage_.Pass(kv, next, g_.axis);
      const ViewId part = stage_.Act(Named("b.", step == 0 ? "dkv0" : "dkv"), g_.keys());
      AttendBackward(part, dqkv, {d, qkv, kv, context, a_.lse}, step > 0, step);
      if (step == 0) {
        sum = part;
      } else {
        stage_.Emit(OpKind::kAdd, {sum}, {sum, part}, {{Attr::kElements, double(g_.keys())}});
      }
      const ViewId arrived = InRing("b.", "dkv", "key gradients", step + 1);
      stage_.Pass(sum, arrived, g_.axis);
      sum = arrived;
      kv = next;
    }
    KeyValues(dqkv, {dqkv, sum}, true);
  }

  StageBuilder& stage_;
  const Layer& layer_;
  const Sublayer& sub_;
  const ContextAttention& a_;
  const Geometry g_;
};

}  // namespace

void EmitContextAttention(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                          const ContextAttention& attention, bool again) {
  Attention(stage, layer, sub, attention).Forward(again);
}

void EmitContextAttentionBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                                  const ContextAttention& attention, ViewId dcontext, ViewId din) {
  Attention(stage, layer, sub, attention).Backward(dcontext, din);
}

}  // namespace orrery
