// SPDX-License-Identifier: Apache-2.0
// The op table: name, class, operand counts and operation counts of every op kind; attribute names.
#include <algorithm>
#include <array>

#include "model/plan/ir/op.h"

namespace orrery::ir {
namespace {

// What an op's operation count is proportional to.
enum class Per : uint8_t {
  kNothing,   // moves bytes, computes nothing
  kElements,  // attr n
  kRowsH,     // rows * h
  kRowsVl,    // rows * vl
  kHeads,     // rows * (nh + kv) * hd: the rotated part of a qkv row
  kProduct,   // M * N * K
  kSelfAttn,  // batch * nh * hd * pairs of queries and keys: seq * seq, half of it when causal, less with a window
  kCrossAttn,  // batch * nh * seq * seq_kv * hd
  kPartAttn,   // batch * nh * hd * pairs, as a mean over the ranks
};

struct Row {
  OpInfo info;
  Per per;
  double flops;        // per unit of `per`
  double flash_extra;  // further ones when the probabilities are recomputed
};

using C = OpClass;
using K = OpKind;

// Products: 2 per multiply-add. Attention forward is two products of the score matrix, backward
// four (Kaplan et al. 2020, section 2.1; Narayanan et al. 2021, appendix), five when the
// probabilities are recomputed (Dao et al. 2022, section 3). Element-wise counts take one operation
// per arithmetic or transcendental instruction of the formula in op.h; they matter for breakdowns,
// never for the time of these memory-bound ops.
constexpr std::array<Row, kOpKinds> kRows = {{
    {{K::kLoad, "load", C::kInput, 0, 0, 1, 1}, Per::kNothing, 0, 0},
    {{K::kZero, "zero", C::kMemory, 0, 0, 1, 1}, Per::kNothing, 0, 0},
    {{K::kAdd, "add", C::kMemory, 2, 2, 1, 1}, Per::kElements, 1, 0},
    {{K::kSlice, "slice", C::kMemory, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kCopy, "copy", C::kHostLink, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kGatherRows, "gather_rows", C::kMemory, 2, 2, 1, 1}, Per::kNothing, 0, 0},
    {{K::kScatterRows, "scatter_rows", C::kMemory, 2, 2, 1, 1}, Per::kRowsH, 1, 0},
    {{K::kEmbed, "embed", C::kMemory, 2, 3, 1, 1}, Per::kNothing, 0, 0},
    {{K::kEmbedBwd, "embed_bwd", C::kMemory, 3, 3, 1, 1}, Per::kRowsH, 1, 0},
    {{K::kAddPos, "add_pos", C::kMemory, 2, 2, 1, 1}, Per::kRowsH, 1, 0},
    {{K::kPosBwd, "pos_bwd", C::kMemory, 2, 2, 1, 1}, Per::kRowsH, 1, 0},
    {{K::kRope, "rope", C::kMemory, 1, 3, 1, 3}, Per::kHeads, 3, 0},
    {{K::kMatmul, "mm", C::kMatmul, 2, 8, 1, 1}, Per::kProduct, 2, 0},
    {{K::kQuantize, "quantize", C::kMemory, 1, 2, 1, 4}, Per::kRowsH, 2, 0},
    {{K::kAmax, "amax", C::kMemory, 1, 2, 1, 1}, Per::kElements, 1, 0},
    {{K::kAmaxRoll, "amax_roll", C::kMemory, 2, 2, 1, 1}, Per::kNothing, 0, 0},
    {{K::kScaleUpdate, "scale_update", C::kMemory, 1, 1, 1, 1}, Per::kElements, 1, 0},
    {{K::kUnpack, "unpack", C::kMemory, 2, 3, 1, 1}, Per::kRowsH, 1, 0},
    {{K::kUnitAmax, "unit_amax", C::kMemory, 1, 1, 1, 1}, Per::kElements, 1, 0},
    {{K::kUnitCast, "unit_cast", C::kMemory, 2, 2, 1, 1}, Per::kElements, 2, 0},
    {{K::kAttn, "attn", C::kAttention, 1, 2, 2, 4}, Per::kSelfAttn, 4, 0},
    {{K::kAttnBwd, "attn_bwd", C::kAttention, 4, 8, 1, 2}, Per::kSelfAttn, 8, 2},
    {{K::kCrossAttn, "cross_attn", C::kAttention, 2, 2, 2, 4}, Per::kCrossAttn, 4, 0},
    {{K::kCrossAttnBwd, "cross_attn_bwd", C::kAttention, 5, 7, 2, 2}, Per::kCrossAttn, 8, 2},
    {{K::kKeyValues, "key_values", C::kMemory, 1, 2, 1, 1}, Per::kNothing, 0, 0},
    {{K::kPartAttn, "part_attn", C::kAttention, 2, 4, 2, 2}, Per::kPartAttn, 4, 0},
    {{K::kPartAttnBwd, "part_attn_bwd", C::kAttention, 5, 6, 2, 2}, Per::kPartAttn, 8, 2},
    {{K::kRegroup, "regroup", C::kMemory, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kLayerNorm, "ln", C::kMemory, 3, 3, 2, 2}, Per::kRowsH, 8, 0},
    {{K::kLayerNormBwd, "ln_bwd", C::kMemory, 4, 5, 1, 1}, Per::kRowsH, 12, 0},
    {{K::kLayerNormWgrad, "ln_wgrad", C::kMemory, 5, 5, 2, 2}, Per::kRowsH, 4, 0},
    {{K::kRmsNorm, "rms", C::kMemory, 2, 2, 2, 2}, Per::kRowsH, 4, 0},
    {{K::kRmsNormBwd, "rms_bwd", C::kMemory, 4, 5, 1, 1}, Per::kRowsH, 8, 0},
    {{K::kRmsNormWgrad, "rms_wgrad", C::kMemory, 4, 4, 1, 1}, Per::kRowsH, 3, 0},
    {{K::kQkNorm, "qk_norm", C::kMemory, 2, 2, 3, 3}, Per::kHeads, 4, 0},
    {{K::kQkNormBwd, "qk_norm_bwd", C::kMemory, 4, 4, 1, 1}, Per::kHeads, 8, 0},
    {{K::kQkNormWgrad, "qk_norm_wgrad", C::kMemory, 4, 4, 1, 1}, Per::kHeads, 3, 0},
    {{K::kBiasResidual, "bias_res", C::kMemory, 2, 4, 1, 2}, Per::kRowsH, 2, 0},
    {{K::kDropout, "dropout", C::kMemory, 1, 1, 2, 2}, Per::kRowsH, 2, 0},
    {{K::kDropoutBwd, "dropout_bwd", C::kMemory, 2, 2, 1, 1}, Per::kElements, 2, 0},
    {{K::kColSum, "colsum", C::kMemory, 2, 2, 1, 1}, Per::kRowsH, 1, 0},
    {{K::kGelu, "gelu", C::kMemory, 1, 1, 1, 1}, Per::kElements, 9, 0},
    {{K::kGeluBwd, "gelu_bwd", C::kMemory, 2, 2, 1, 1}, Per::kElements, 15, 0},
    {{K::kRelu, "relu", C::kMemory, 1, 1, 1, 1}, Per::kElements, 1, 0},
    {{K::kReluBwd, "relu_bwd", C::kMemory, 2, 2, 1, 1}, Per::kElements, 1, 0},
    {{K::kSwiglu, "swiglu", C::kMemory, 1, 2, 1, 1}, Per::kElements, 5, 0},
    {{K::kSwigluBwd, "swiglu_bwd", C::kMemory, 2, 3, 1, 2}, Per::kElements, 10, 0},
    {{K::kTanh, "tanh", C::kMemory, 1, 1, 1, 1}, Per::kElements, 1, 0},
    {{K::kTanhBwd, "tanh_bwd", C::kMemory, 2, 2, 1, 1}, Per::kElements, 3, 0},
    {{K::kXentMax, "xent_max", C::kMemory, 1, 1, 1, 1}, Per::kRowsVl, 1, 0},
    {{K::kXentSum, "xent_sum", C::kMemory, 3, 3, 1, 1}, Per::kRowsVl, 3, 0},
    {{K::kXentGrad, "xent_grad", C::kMemory, 5, 6, 2, 2}, Per::kRowsVl, 5, 0},
    {{K::kMse, "mse", C::kMemory, 3, 4, 2, 2}, Per::kElements, 4, 0},
    {{K::kSumSq, "sumsq", C::kOptimizer, 2, 2, 1, 1}, Per::kElements, 2, 0},
    {{K::kSgd, "sgd", C::kOptimizer, 2, 4, 1, 2}, Per::kElements, 4, 0},
    {{K::kAdam, "adam", C::kOptimizer, 4, 6, 3, 4}, Per::kElements, 12, 0},
    {{K::kLambDir, "lamb_dir", C::kOptimizer, 4, 6, 4, 4}, Per::kElements, 16, 0},
    {{K::kLambApply, "lamb_apply", C::kOptimizer, 3, 4, 1, 2}, Per::kElements, 2, 0},
    {{K::kMuon, "muon", C::kOptimizer, 3, 5, 2, 3}, Per::kElements, 6, 0},
    {{K::kLossScale, "loss_scale", C::kOptimizer, 2, 2, 1, 1}, Per::kNothing, 0, 0},
    {{K::kAllReduce, "all_reduce", C::kCollective, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kAllGather, "all_gather", C::kCollective, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kReduceScatter, "reduce_scatter", C::kCollective, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kAllToAll, "all_to_all", C::kCollective, 1, 1, 1, 1}, Per::kNothing, 0, 0},
    {{K::kSend, "send", C::kPointToPoint, 1, 1, 0, 0}, Per::kNothing, 0, 0},
    {{K::kRecv, "recv", C::kPointToPoint, 0, 0, 1, 1}, Per::kNothing, 0, 0},
}};

constexpr bool InEnumOrder() {
  for (int i = 0; i < kOpKinds; ++i) {
    if (kRows[i].info.kind != static_cast<OpKind>(i)) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "one row per op kind, in the order of the enum");

constexpr std::array<OpInfo, kOpKinds> kInfos = [] {
  std::array<OpInfo, kOpKinds> infos{};
  for (int i = 0; i < kOpKinds; ++i) infos[i] = kRows[i].info;
  return infos;
}();

struct AttrRow {
  Attr attr;
  const char* name;
  double default_value;
};
// Defaults: axes are "not sharded" (-1), gradient-norm weights and powers are 1, the base of rotary positions is that of
// Su et al. 2021, epsilon that of most norms, everything else is 0, where 0 means off, absent, or derived (scale: 1/sqrt(hd)).
constexpr std::array<AttrRow, kAttrs> kAttrRows = {{
    {Attr::kM, "M", 0},
    {Attr::kN, "N", 0},
    {Attr::kK, "K", 0},
    {Attr::kTransA, "ta", 0},
    {Attr::kTransB, "tb", 0},
    {Attr::kAcc, "acc", 0},
    {Attr::kBias, "bias", 0},
    {Attr::kRows, "rows", 0},
    {Attr::kH, "h", 0},
    {Attr::kVl, "vl", 0},
    {Attr::kV, "v", 0},
    {Attr::kAxis, "axis", -1},
    {Attr::kBatch, "batch", 0},
    {Attr::kSeq, "seq", 0},
    {Attr::kSeqKv, "seq_kv", 0},
    {Attr::kNh, "nh", 0},
    {Attr::kKv, "kv", 0},
    {Attr::kHd, "hd", 0},
    {Attr::kCausal, "causal", 0},
    {Attr::kFlash, "flash", 0},
    {Attr::kBuckets, "buckets", 0},
    {Attr::kScale, "scale", 0},
    {Attr::kInverse, "inverse", 0},
    {Attr::kAdd, "add", 0},
    {Attr::kElements, "n", 0},
    {Attr::kWhat, "what", 0},
    {Attr::kZaxis, "zaxis", -1},
    {Attr::kRep, "rep", 0},
    {Attr::kWt, "wt", 1},
    {Attr::kWrep, "wrep", 1},
    {Attr::kLr, "lr", 0},
    {Attr::kWd, "wd", 0},
    {Attr::kClip, "clip", 0},
    {Attr::kMaster, "master", 0},
    {Attr::kBeta1, "beta1", 0},
    {Attr::kBeta2, "beta2", 0},
    {Attr::kEps, "eps", 1e-5},
    {Attr::kDecoupled, "decoupled", 0},
    {Attr::kReduceOp, "op", 0},
    {Attr::kRate, "rate", 0},
    {Attr::kSite, "site", 0},
    {Attr::kWindow, "window", 0},
    {Attr::kCap, "cap", 0},
    {Attr::kTurn, "turn", 0},
    {Attr::kBase, "base", 10000},
    {Attr::kWhole, "whole", 0},
    {Attr::kGate, "gate", 0},
    {Attr::kPower, "power", 1},
    {Attr::kWork, "work", 0},
    {Attr::kCp, "cp", -1},
    {Attr::kPart, "part", 0},
    {Attr::kParts, "parts", 1},
    {Attr::kZigzag, "zigzag", 0},
    {Attr::kStep, "step", 0},
    {Attr::kProduct, "product", 0},
    {Attr::kFmt, "fmt", 0},
    {Attr::kBlock, "block", 0},
    {Attr::kBlock2, "block2", 1},
    {Attr::kAlong, "along", 0},
    {Attr::kAcross, "across", 0},
    {Attr::kFrom, "made_by", 0},
    {Attr::kLength, "length", 0},
    {Attr::kMargin, "margin", 0},
    {Attr::kHadamard, "hadamard", 0},
    {Attr::kStochastic, "stochastic", 0},
    {Attr::kColumns, "columns", -1},
    {Attr::kHooked, "hooked", 0},
    {Attr::kAlibi, "alibi", 0},
    {Attr::kStretch, "stretch", 1},
    {Attr::kOriginal, "original", 0},
    {Attr::kRampFrom, "ramp_from", 0},
    {Attr::kRampTo, "ramp_to", 0},
    {Attr::kMagnify, "magnify", 1},
}};

constexpr bool AttrsInEnumOrder() {
  for (int i = 0; i < kAttrs; ++i) {
    if (kAttrRows[i].attr != static_cast<Attr>(i)) return false;
  }
  return true;
}
static_assert(AttrsInEnumOrder(), "one row per attribute, in the order of the enum");

// A window w of a causal sequence s leaves s w - w (w - 1) / 2 pairs, counted as s w - w^2 / 2 as s^2 / 2 are without one.
double SeenPairs(const Attrs& a) {
  const double seq = a.Get(Attr::kSeq), window = a.Get(Attr::kWindow);
  if (a.Get(Attr::kCausal) == 0) return seq * seq;
  return window > 0 && window < seq ? window * (seq - window / 2) : seq * seq / 2;
}

// Queries of a rank and the keys that they see, summed over the ranks and divided by their number.
double SeenPartPairs(const Attrs& a) {
  const double seq = a.Get(Attr::kSeq), keys = a.Get(Attr::kSeqKv), parts = a.Get(Attr::kParts);
  const double step = a.Get(Attr::kStep), window = a.Get(Attr::kWindow);
  if (a.Get(Attr::kCausal) == 0) return seq * keys;
  if (step < 0)
    return window > 0 && window < keys ? seq * window * (1 - window / keys / 2) : seq * keys / 2;
  if (step == 0 || a.Get(Attr::kZigzag) != 0) return seq * keys / 2;
  return seq * keys * (parts - step) / parts;
}

double Count(Per per, const Attrs& a) {
  switch (per) {
    case Per::kNothing:
      return 0;
    case Per::kElements:
      return a.Get(Attr::kElements);
    case Per::kRowsH:
      return a.Get(Attr::kRows) * a.Get(Attr::kH);
    case Per::kRowsVl:
      return a.Get(Attr::kRows) * a.Get(Attr::kVl);
    case Per::kHeads:
      return a.Get(Attr::kRows) * (a.Get(Attr::kNh) + a.Get(Attr::kKv)) * a.Get(Attr::kHd);
    case Per::kProduct:
      return a.Get(Attr::kM) * a.Get(Attr::kN) * a.Get(Attr::kK);
    case Per::kSelfAttn:
      return a.Get(Attr::kBatch) * a.Get(Attr::kNh) * a.Get(Attr::kHd) * SeenPairs(a);
    case Per::kCrossAttn:
      return a.Get(Attr::kBatch) * a.Get(Attr::kNh) * a.Get(Attr::kSeq) * a.Get(Attr::kSeqKv) *
             a.Get(Attr::kHd);
    case Per::kPartAttn:
      return a.Get(Attr::kBatch) * a.Get(Attr::kNh) * a.Get(Attr::kHd) * SeenPartPairs(a);
  }
  return 0;
}

}  // namespace

const OpInfo& Info(OpKind kind) { return kInfos[static_cast<int>(kind)]; }
std::span<const OpInfo> OpTable() { return kInfos; }
std::string_view AttrName(Attr attr) { return kAttrRows[static_cast<int>(attr)].name; }
double AttrDefault(Attr attr) { return kAttrRows[static_cast<int>(attr)].default_value; }

void Attrs::Set(Attr key, double value) {
  constexpr std::size_t kMost = 4;  // of most ops
  if (entries_.empty() || entries_.back().first < key) {
    if (value == AttrDefault(key)) return;
    if (entries_.empty()) entries_.reserve(kMost);
    entries_.emplace_back(key, value);
    return;
  }
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), key,
                                   [](const auto& entry, Attr k) { return entry.first < k; });
  const bool stored = at != entries_.end() && at->first == key;
  if (value == AttrDefault(key)) {
    if (stored) entries_.erase(at);
  } else if (stored) {
    at->second = value;
  } else {
    entries_.insert(at, {key, value});
  }
}

double Attrs::Get(Attr key) const {
  for (const auto& [stored, value] : entries_) {
    if (stored == key) return value;
    if (stored > key) break;
  }
  return AttrDefault(key);
}

double OpFlops(const Op& op) {
  const Row& row = kRows[static_cast<int>(op.kind)];
  const bool flash = op.attrs.Get(Attr::kFlash) != 0;
  const double per_unit = row.flops + (flash ? row.flash_extra : 0);
  double flops = per_unit * Count(row.per, op.attrs) + op.attrs.Get(Attr::kWork);
  if (op.kind == OpKind::kMatmul && op.attrs.Get(Attr::kBias) != 0) {
    flops += op.attrs.Get(Attr::kM) * op.attrs.Get(Attr::kN);
  }
  return flops;
}

}  // namespace orrery::ir
