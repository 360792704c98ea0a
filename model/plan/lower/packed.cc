// SPDX-License-Identifier: Apache-2.0
// Units of packed weights, and what reads them.
#include "model/plan/lower/packed.h"

#include <fmt/format.h>

#include "model/plan/ir/packed.h"

namespace orrery {

using ir::Attr;
using ir::Dtype;
using ir::Init;
using ir::OpKind;
using ir::Packed;
using ir::Phase;
using ir::ViewId;

namespace {

bool Cut(Packed packing, Init part, int shard_dim) {
  if (part == Init::kCodes) return true;
  if (part == Init::kGroups || packing == Packed::kE4m3) return false;
  return packing != Packed::kInt8 || shard_dim == 0;  // a row has one scale
}

ParamDecl Part(const ParamDecl& weight, Packed packing, Init part, const char* suffix) {
  ParamDecl decl{weight.name + suffix, ir::PackedShape(packing, part, weight.shape), -1, part,
                 false};
  decl.packing = packing;
  decl.of = weight.shape;
  if (Cut(packing, part, weight.shard_dim)) decl.shard_dim = weight.shard_dim;
  return decl;
}

bool ReadsCodes(const StageBuilder& stage) { return stage.ctx().work.fp8 != Fp8::kOff; }

// The same codes in the order that products of gradients on Hopper read.
ViewId Transposed(StageBuilder& stage, ViewId codes, int64_t out, int64_t in) {
  const std::string name = stage.NameOf(codes) + "@t";
  const bool there = stage.Has(name);
  const ViewId copy =
      stage.Make(name, out * in, stage.ctx().options.uniform_dtype.value_or(Dtype::kE4m3),
                 ir::BufferClass::kGathered);
  if (there) return copy;
  stage.Emit(OpKind::kQuantize, {copy}, {codes},
             {{Attr::kRows, double(out)},
              {Attr::kH, double(in)},
              {Attr::kProduct, double(static_cast<int>(FormOf(stage.ctx().work.fp8).product))},
              {Attr::kFmt, double(static_cast<int>(ir::CastFormat::kE4m3))},
              {Attr::kAcross, 1}});
  return copy;
}

}  // namespace

Packed PackingOf(const Workload& work) {
  if (!work.lora.packed()) return Packed::kNone;
  switch (work.lora.base) {
    case LoraBase::kPlain:
      break;
    case LoraBase::kInt8:
      return Packed::kInt8;
    case LoraBase::kNf4:
      return Packed::kNf4;
    case LoraBase::kFp8:
      return work.fp8 == Fp8::kBlockwise ? Packed::kE4m3Blocks : Packed::kE4m3;
  }
  return Packed::kNone;
}

Dtype PackedDtype(const LowerContext& ctx, const ParamDecl& part) {
  Dtype stored = ctx.full;
  const bool nf4 = part.packing == Packed::kNf4,
             e4m3 = part.packing == Packed::kE4m3 || part.packing == Packed::kE4m3Blocks;
  if (part.init == Init::kCodes) stored = e4m3 ? Dtype::kE4m3 : Dtype::kU8;
  if (part.init == Init::kScales && nf4) stored = Dtype::kE4m3;
  return ctx.options.uniform_dtype.value_or(stored);
}

double CodeBytes(Packed packing) { return packing == Packed::kNf4 ? 0.5 : 1; }

int64_t PackedParameters(const ModelSpec& model, const Workload& work) {
  if (PackingOf(work) == Packed::kNone) return 0;
  const int64_t attention = model.heads * model.head_dim;
  return model.hidden *
         (2 * attention + 2 * model.kv_heads * model.head_dim + model.ffn * (model.gated ? 3 : 2));
}

std::vector<ParamRef> AddPackedUnits(StageBuilder& stage, const std::string& layers,
                                     const std::vector<ParamDecl>& linear) {
  const Packed packing = PackingOf(stage.ctx().work);
  const auto add = [&](const char* unit, Init part, const char* suffix) {
    std::vector<ParamDecl> decls;
    for (const ParamDecl& weight : linear) decls.push_back(Part(weight, packing, part, suffix));
    return stage.AddUnit(unit + layers, decls, false, true);
  };
  const std::vector<ParamRef> codes = add("q", Init::kCodes, ""),
                              scales = add("s", Init::kScales, ".scales");
  std::vector<ParamRef> groups(linear.size());
  if (packing == Packed::kNf4) groups = add("g", Init::kGroups, ".groups");
  for (std::size_t i = 0; i < linear.size(); ++i)
    stage.SetPacked(codes[i], {packing, linear[i].shard_dim, scales[i], groups[i]});
  return codes;
}

Factor PackedFactor(StageBuilder& stage, ParamRef ref, const PackedWeight& packed, int64_t out,
                    int64_t in) {
  const ViewId codes = stage.Weight(ref), scales = stage.Weight(packed.scales);
  if (ReadsCodes(stage)) {
    Factor factor;
    factor.rows_share = FormOf(stage.ctx().work.fp8).weight_block;
    if (stage.phase() == Phase::kBackward) {
      factor.across = {Transposed(stage, codes, out, in), scales};
    } else {
      factor.along = {codes, scales};
    }
    return factor;
  }
  // One copy for each pass, so that none lives from one into the next.
  const char* const pass = stage.phase() == Phase::kBackward    ? "@b"
                           : stage.phase() == Phase::kRecompute ? "@r"
                                                                : "@f";
  const std::string name = stage.NameOf(codes) + pass;
  const bool there = stage.Has(name);
  Factor factor{.plain =
                    stage.Make(name, out * in, stage.ctx().activation, ir::BufferClass::kGathered)};
  if (there) return factor;
  std::vector<ViewId> parts{codes, scales};
  if (packed.groups) parts.push_back(stage.Weight(packed.groups));
  stage.Emit(OpKind::kUnpack, {factor.plain}, parts,
             {{Attr::kRows, double(out)},
              {Attr::kH, double(in)},
              {Attr::kFmt, double(static_cast<int>(packed.packing))},
              {Attr::kAxis, packed.shard_dim < 0 ? -1.0 : double{kAxisTp}},
              {Attr::kAcross, double(packed.shard_dim == 1)},
              {Attr::kParts, double(stage.ctx().strategy.tp)}});
  return factor;
}

std::optional<Refusal> CheckPacked(const ModelSpec& model, const Workload& work,
                                   const Strategy& s) {
  const Packed packing = PackingOf(work);
  if (packing == Packed::kNone) return std::nullopt;
  const char* const base = NameIn(kLoraBaseNames, work.lora.base);
  if (work.fp8 != Fp8::kOff && work.lora.base != LoraBase::kFp8)
    return Refusal{fmt::format("products in 8 bits (fp8 {}) of weights kept in {}",
                               NameIn(kFp8Names, work.fp8), base),
                   "--lora-base fp8, or --fp8 off"};
  if (work.fp8 == Fp8::kMxfp8 || work.fp8 == Fp8::kNvfp4)
    return Refusal{
        fmt::format("weights kept in fp8 with {}, whose two casts of a weight differ, are "
                    "not lowered",
                    NameIn(kFp8Names, work.fp8)),
        "--fp8 delayed, current or blockwise, or --lora-base bf16"};
  if (packing != Packed::kNf4) return std::nullopt;
  const int64_t attention = model.heads * model.head_dim;
  for (const auto& [width, what] : {std::pair{model.hidden, "hidden columns"},
                                    {attention / s.tp, "attention columns per rank"},
                                    {model.ffn / s.tp, "MLP columns per rank"}}) {
    if (width % ir::kNf4Block != 0)
      return Refusal{
          fmt::format("{} {} are no multiple of {}, nf4's block", what, width, ir::kNf4Block),
          "--lora-base int8, or another tp"};
  }
  return std::nullopt;
}

}  // namespace orrery
