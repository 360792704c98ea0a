// SPDX-License-Identifier: Apache-2.0
// Reads a plan's ops for what one step amounts to.
#include "model/plan/ir/plan_facts.h"

#include <algorithm>
#include <set>
#include <vector>

namespace orrery::ir {
namespace {

bool IsInput(LoadWhat what) {
  return what == LoadWhat::kTokens || what == LoadWhat::kDecoderTokens ||
         what == LoadWhat::kFeatures;
}

// As MFU counts (ModelFlopsPerSequence() of model/arch): products, and attention without what a mask or a kernel of its
// own changes; a window of keys counts whole.
double ModelFlops(const Op& op) {
  const OpClass of = Info(op.kind).op_class;
  if (of != OpClass::kMatmul && of != OpClass::kAttention) return 0;
  Op plain = op;
  plain.attrs.Set(Attr::kBias, 0);
  if (of == OpClass::kMatmul) return OpFlops(plain);
  plain.attrs.Set(Attr::kFlash, 0);
  const double window = op.attrs.Get(Attr::kWindow);
  const double keys = op.attrs.Get(
      op.kind == OpKind::kAttn || op.kind == OpKind::kAttnBwd ? Attr::kSeq : Attr::kSeqKv);
  if (window > 0 && window < keys) return OpFlops(plain) / (1 - window / keys / 2);
  plain.attrs.Set(Attr::kCausal, 0);
  return OpFlops(plain);
}

double SumOf(const std::vector<Item>& items, const std::vector<double>& of_block) {
  double sum = 0;
  for (const Item& item : items) {
    sum += item.block >= 0 ? of_block[static_cast<std::size_t>(item.block)]
                           : item.count * SumOf(item.body, of_block);
  }
  return sum;
}

// FLOPs of one rank's step; every rank of a stage does the same.
double FlopsOf(const Program& program) {
  std::vector<double> of_block;
  for (const Block& block : program.blocks) {
    double flops = 0;
    for (const Op& op : block.ops) {
      if (op.phase != Phase::kRecompute) flops += ModelFlops(op);
    }
    of_block.push_back(flops);
  }
  return SumOf(program.schedule, of_block);
}

class Reader {
 public:
  explicit Reader(const Plan& plan) : plan_(plan) {}

  PlanFacts Read() {
    for (const Program& program : plan_.programs) {
      for (const Block& block : program.blocks) {
        for (const Op& op : block.ops) ReadOp(program, op);
      }
      facts_.flops += FlopsOf(program) * static_cast<double>(plan_.mesh.ranks()) /
                      static_cast<double>(plan_.programs.size());
    }
    facts_.tokens = facts_.has_tokens ? tokens_ : facts_.samples;
    CountParameters();
    return facts_;
  }

 private:
  void ReadOp(const Program& program, const Op& op) {
    if (op.kind == OpKind::kAttn && op.attrs.Int(Attr::kFlash) != 0) facts_.fused_attention = true;
    if (op.kind == OpKind::kEmbed) facts_.hidden = std::max(facts_.hidden, op.attrs.Int(Attr::kH));
    if (op.kind == OpKind::kLoad) ReadLoad(op);
    if (op.kind == OpKind::kXentGrad) facts_.vocab = std::max(facts_.vocab, op.attrs.Int(Attr::kV));
    if (op.kind == OpKind::kEmbed && types_.count({&program, op.in[0]}) > 0)
      facts_.token_types = std::max(facts_.token_types, op.attrs.Int(Attr::kVl));
    if (op.kind == OpKind::kLoad &&
        op.attrs.Int(Attr::kWhat) == static_cast<int64_t>(LoadWhat::kTokenTypes))
      types_.insert({&program, op.out[0]});
  }

  // The same input may be loaded on several stages and again in the backward pass.
  void ReadLoad(const Op& op) {
    const auto what = static_cast<LoadWhat>(op.attrs.Int(Attr::kWhat));
    if (!IsInput(what)) return;
    const int64_t parts =
        op.group < 0 ? 1 : GroupSize(plan_.mesh, plan_.groups[static_cast<std::size_t>(op.group)]);
    facts_.samples = op.attrs.Int(Attr::kBatch) * parts * plan_.micro_batches;
    if (what == LoadWhat::kFeatures) return;
    facts_.has_tokens = true;
    const int64_t axis = op.attrs.Int(Attr::kAxis);
    const int64_t shards = axis < 0 ? 1 : plan_.mesh.axes[static_cast<std::size_t>(axis)].size;
    const int64_t of_kind =
        facts_.samples * op.attrs.Int(Attr::kSeq) * shards * op.attrs.Int(Attr::kParts);
    tokens_ = std::max(tokens_, of_kind);
  }

  void CountParameters() {
    std::set<int> ties;
    for (const Param& param : plan_.params) {
      if (param.tie >= 0 && !ties.insert(param.tie).second) continue;
      int64_t elements = 1;
      for (const int64_t extent : param.shape) elements *= extent;
      if (param.real_rows > 0) elements = elements / param.shape.front() * param.real_rows;
      facts_.parameters += elements;
    }
  }

  const Plan& plan_;
  PlanFacts facts_;
  int64_t tokens_ = 0;
  std::set<std::pair<const Program*, ViewId>> types_;
};

}  // namespace

PlanFacts FactsOf(const Plan& plan) { return Reader(plan).Read(); }

}  // namespace orrery::ir
