// SPDX-License-Identifier: Apache-2.0
// Scales of low-precision tensors that come from earlier steps, and the buffers of casts.
//
// A step takes its scales from the histories in block P, records the largest magnitude of each tensor over all of its
// micro-batches, and in block E takes the maximum over the ranks that hold replicas or parts and puts it into the histories.
// TransformerEngine (fp8.py, reduce_and_update_fp8_tensors) does so after each pass of a micro-batch instead; once per step
// gives every layout the same scales.
#include "model/plan/lower/stage_builder.h"

namespace orrery {

using ir::Attr;
using ir::BufferClass;
using ir::CastFormat;
using ir::Life;
using ir::OpKind;
using ir::ViewId;

namespace {

constexpr const char* kSides[] = {"fwd", "bwd"};

// "r.l3.attn.n" and "t.l3.attn.n" are l3.attn.n; "Wg.u3@F0.1/l3.qkv.w@cast" is l3.qkv.w@cast.
std::string TensorName(const std::string& name) {
  const std::size_t part = name.find('/');
  if (part != std::string::npos) return name.substr(part + 1);
  return name.starts_with("r.") || name.starts_with("t.") ? name.substr(2) : name;
}

}  // namespace

ViewId StageBuilder::MakeWeightCast(const std::string& name, int64_t elements, ir::Dtype dtype) {
  return Make(name, elements, dtype, BufferClass::kGathered,
              ctx_.fetches_weights() ? Life::kDerived : Life::kStep);
}

void StageBuilder::Grow(ViewId whole, int64_t elements) {
  program_.views[whole].elements = elements;
  program_.buffers[program_.views[whole].buffer].elements = elements;
}

ScaleSlot StageBuilder::SlotOf(const std::string& tensor, bool gradient) {
  Scales& scales = scales_[gradient ? 1 : 0];
  const std::string side = kSides[gradient ? 1 : 0];
  if (scales.amax < 0) {
    scales.amax = Make("amax." + side, 0, ctx_.full, BufferClass::kScalar, Life::kStep);
    scales.scale = Make("scale." + side, 0, ctx_.full, BufferClass::kScalar, Life::kStep);
    scales.history = Make("history." + side, 0, ctx_.full, BufferClass::kOptimizer, Life::kStep);
  }
  const std::string name = TensorName(tensor);
  const auto [slot, fresh] =
      scales.slots.try_emplace(name, static_cast<int64_t>(scales.slots.size()));
  const auto count = static_cast<int64_t>(scales.slots.size());
  Grow(scales.amax, count);
  Grow(scales.scale, count);
  Grow(scales.history, count * ctx_.options.amax_history);
  const bool weight = name.ends_with("@cast");
  return {Sub(scales.amax, name, slot->second, 1), Sub(scales.scale, name, slot->second, 1),
          weight && !fresh};
}

void StageBuilder::EmitScales() {
  for (std::size_t side = 0; side < scales_.size(); ++side) {
    const Scales& scales = scales_[side];
    if (scales.amax < 0) continue;
    const CastFormat format = ctx_.options.exact_casts ? CastFormat::kExact
                              : side == 1              ? CastFormat::kE5m2
                                                       : CastFormat::kE4m3;
    Emit(OpKind::kScaleUpdate, {scales.scale}, {scales.history},
         {{Attr::kElements, double(scales.slots.size())},
          {Attr::kLength, double(ctx_.options.amax_history)},
          {Attr::kProduct, double(static_cast<int>(ProductType::kFp8))},
          {Attr::kFmt, double(static_cast<int>(format))}});
    Emit(OpKind::kZero, {scales.amax}, {});
  }
}

void StageBuilder::EmitAmaxReduction() {
  for (const Scales& scales : scales_) {
    if (scales.amax < 0) continue;
    const int group = static_cast<int>(plan_->groups.size()) - 1;  // see MakeGroups()
    AllReduce(scales.amax, group, kCompute, 1);
    Emit(OpKind::kAmaxRoll, {scales.history}, {scales.history, scales.amax},
         {{Attr::kElements, double(scales.slots.size())},
          {Attr::kLength, double(ctx_.options.amax_history)}});
  }
}

}  // namespace orrery
