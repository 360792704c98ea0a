// SPDX-License-Identifier: Apache-2.0
// Verify, pass 6: cast tensors and their scales belong together.
//
// Each view that a quantize op writes carries which op wrote it and where its blocks run; messages hand that on. A product
// reads data and scales of one cast, with blocks along its sum. A tensor's scale comes from the tensor's own largest
// magnitude, or from a history that the tensor is recorded in. Codes of packed weights go with their own scales.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "model/arch/low_precision.h"
#include "model/plan/ir/packed.h"
#include "model/plan/ir/unit_codes.h"
#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

struct Spot {
  int32_t block = -1, op = -1;
  auto operator<=>(const Spot&) const = default;
};
// Of a view: the casts that write it, and the direction of their blocks.
struct Origin {
  Spot cast;
  bool across = false, scale = false;
  auto operator<=>(const Origin&) const = default;
};
using Origins = std::set<Origin>;

class ScalePass {
 public:
  ScalePass(const Plan& plan, const Program& program, Findings* findings)
      : plan_(plan), program_(program), findings_(*findings) {}

  void Run() {
    FindPacked();
    // A message may stand in front of the cast that it moves (weight-gradient blocks): twice is enough, since what is
    // gathered or copied is cast itself, not gathered.
    for (int pass = 0; pass < 3; ++pass) Visit([this](Spot at, const Op& op) { Follow(at, op); });
    Visit([this](Spot at, const Op& op) { Check(at, op); });
  }

 private:
  template <class Function>
  void Visit(const Function& visit) {
    for (std::size_t b = 0; b < program_.blocks.size(); ++b) {
      const std::vector<Op>& ops = program_.blocks[b].ops;
      for (std::size_t i = 0; i < ops.size(); ++i)
        visit(Spot{static_cast<int32_t>(b), static_cast<int32_t>(i)}, ops[i]);
    }
  }

  const Op& OpAt(Spot at) const {
    return program_.blocks[static_cast<std::size_t>(at.block)].ops[static_cast<std::size_t>(at.op)];
  }
  const View& ViewOf(ViewId id) const { return program_.views[static_cast<std::size_t>(id)]; }
  void Report(Spot at, const std::string& message) {
    findings_.Add(Fault::kScale, program_.stage, WhereOp(program_, at.block, at.op), message);
  }

  static bool Copies(const Op& op) {
    return op.kind == OpKind::kQuantize && op.in.size() == 1 && op.attrs.Get(Attr::kBlock) == 0;
  }

  // Views of whole packed parameters, resident or gathered.
  void FindPacked() {
    for (std::size_t v = 0; v < program_.views.size(); ++v) {
      const View& view = program_.views[v];
      const Buffer& buffer = program_.buffers[static_cast<std::size_t>(view.buffer)];
      const bool weights =
          buffer.cls == BufferClass::kParam || buffer.cls == BufferClass::kGathered;
      if (!weights || buffer.unit < 0 || buffer.unit_shard_axis >= 0) continue;
      const Unit& unit = program_.units[static_cast<std::size_t>(buffer.unit)];
      for (const UnitSegment& segment : unit.segments) {
        const Param& param = plan_.params[static_cast<std::size_t>(segment.param)];
        if (param.packing == Packed::kNone || segment.offset != view.offset ||
            segment.elements != view.elements)
          continue;
        if (HeldInCodes(param)) {
          held_[static_cast<ViewId>(v)] = {buffer.unit, &segment - unit.segments.data()};
        } else {
          packed_[static_cast<ViewId>(v)] = &param;
        }
      }
    }
  }
  const Param* PackedIn(ViewId view, Init part) const {
    const auto found = packed_.find(view);
    return found == packed_.end() || found->second->init != part ? nullptr : found->second;
  }
  // Whether `scales` and `groups` (-1: none) are those of the codes in `codes`.
  bool Together(ViewId codes, ViewId scales, ViewId groups) const {
    const Param *data = PackedIn(codes, Init::kCodes), *scale = PackedIn(scales, Init::kScales);
    if (data == nullptr || scale == nullptr || PackedName(*scale) != data->name) return false;
    if (groups < 0) return data->packing != Packed::kNf4;
    const Param* group = PackedIn(groups, Init::kGroups);
    return group != nullptr && PackedName(*group) == data->name;
  }
  void CheckUnpack(Spot at, const Op& op) {
    if (!Together(op.in[0], op.in[1], op.in.size() > 2 ? op.in[2] : -1))
      return Report(at, fmt::format("unpacks {} by {}, the scales of another weight",
                                    ViewOf(op.in[0]).name, ViewOf(op.in[1]).name));
    const Param& codes = *PackedIn(op.in[0], Init::kCodes);
    if (static_cast<Packed>(op.attrs.Int(Attr::kFmt)) != codes.packing)
      Report(at, fmt::format("unpacks {}, which is packed otherwise", ViewOf(op.in[0]).name));
    const bool cut = codes.shard_dim >= 0;
    if (op.attrs.Int(Attr::kAxis) != (cut ? codes.shard_axis : -1) ||
        (op.attrs.Get(Attr::kAcross) != 0) != (codes.shard_dim == 1))
      Report(at, fmt::format("unpacks {} as another piece of its weight", ViewOf(op.in[0]).name));
  }

  void Follow(Spot at, const Op& op) {
    switch (op.kind) {
      case OpKind::kQuantize:
        return Copies(op) ? Copy(op) : Cast(at, op);
      case OpKind::kCopy:
      case OpKind::kAllGather: {
        const auto found = origins_.find(op.in[0]);
        if (found != origins_.end()) {
          const Origins moved = found->second;
          origins_[op.out[0]].insert(moved.begin(), moved.end());
        }
        return;
      }
      case OpKind::kAmax:
        amax_readers_[op.out[0]].insert(op.in[0]);
        return;
      case OpKind::kAmaxRoll:
        recorded_in_[op.out[0]] = op.in[1];
        return;
      case OpKind::kScaleUpdate:
        scale_source_[op.out[0]] = {op.in[0], op.attrs.Get(Attr::kLength) > 0};
        return;
      default:
        return;
    }
  }

  void Cast(Spot at, const Op& op) {
    std::size_t out = 0;
    const bool blocks = op.attrs.Get(Attr::kBlock) > 0;
    for (const bool across : {false, true}) {
      if (op.attrs.Get(across ? Attr::kAcross : Attr::kAlong) == 0) continue;
      if (out < op.out.size()) origins_[op.out[out++]].insert({at, across, false});
      if (blocks && out < op.out.size()) origins_[op.out[out++]].insert({at, across, true});
    }
  }

  // The same numbers in the other order.
  void Copy(const Op& op) {
    if (PackedIn(op.in[0], Init::kCodes) != nullptr || held_.contains(op.in[0]))
      transposed_[op.out[0]] = op.in[0];
    const auto found = origins_.find(op.in[0]);
    if (found == origins_.end()) return;
    const Origins from = found->second;
    for (Origin origin : from) {
      origin.across = op.attrs.Get(Attr::kAcross) != 0;
      origins_[op.out[0]].insert(origin);
    }
  }

  void Check(Spot at, const Op& op) {
    if (op.kind == OpKind::kMatmul && op.attrs.Get(Attr::kProduct) != 0)
      return CheckProduct(at, op);
    if (op.kind == OpKind::kQuantize && op.in.size() == 2) CheckTensorScale(at, op);
    if (op.kind == OpKind::kUnpack) CheckUnpack(at, op);
  }

  void CheckProduct(Spot at, const Op& op) {
    const auto plain =
        static_cast<std::size_t>(2 + op.attrs.Get(Attr::kBias) + op.attrs.Get(Attr::kAcc));
    if (op.in.size() < plain + 2) return Report(at, "a product of cast tensors without scales");
    const bool ta = op.attrs.Get(Attr::kTransA) != 0, tb = op.attrs.Get(Attr::kTransB) != 0;
    CheckOperand(at, op, op.in[0], op.in[plain], ta, 1);
    CheckOperand(at, op, op.in[1], op.in[plain + 1], !tb, op.attrs.Get(Attr::kBlock2));
    if (Transformed(op.in[0]) != Transformed(op.in[1]))
      Report(at, fmt::format("multiplies {} and {}, of which one is a Hadamard transform",
                             ViewOf(op.in[0]).name, ViewOf(op.in[1]).name));
    if (op.in.size() < plain + 4) return;
    CheckOuterScale(at, op.in[0], op.in[plain + 2]);
    CheckOuterScale(at, op.in[1], op.in[plain + 3]);
  }

  bool Transformed(ViewId data) const {
    const auto found = origins_.find(data);
    return found != origins_.end() && std::ranges::any_of(found->second, [&](const Origin& o) {
             return o.across && OpAt(o.cast).attrs.Get(Attr::kHadamard) != 0;
           });
  }

  // The tensor's scale beside those of blocks: of two that of the cast's direction.
  void CheckOuterScale(Spot at, ViewId data, ViewId scale) {
    const auto found = origins_.find(data);
    if (found == origins_.end()) return;
    for (const Origin& origin : found->second) {
      const Op& cast = OpAt(origin.cast);
      if (cast.in.size() < 2) continue;
      const View &due = ViewOf(cast.in[1]), &read = ViewOf(scale);
      if (read.buffer == due.buffer && read.elements == 1 &&
          read.offset == due.offset + (Transformed(data) ? 1 : 0))
        continue;
      return Report(at, fmt::format("reads {} with {}, the tensor scale of another cast",
                                    ViewOf(data).name, read.name));
    }
  }

  // Codes of 8 bits, as they are or transposed.
  void CheckCodes(Spot at, const Op& op, ViewId codes, ViewId scale, bool transposed, bool across) {
    if (transposed != across)
      Report(at, fmt::format("sums {} along the other dimension than its codes run",
                             ViewOf(codes).name));
    if (!Together(codes, scale, -1))
      return Report(at, fmt::format("reads {} with {}, the scales of another weight",
                                    ViewOf(codes).name, ViewOf(scale).name));
    const bool blocks = op.attrs.Get(Attr::kBlock) > 0;
    if (PackedIn(codes, Init::kCodes)->packing != (blocks ? Packed::kE4m3Blocks : Packed::kE4m3))
      Report(at, fmt::format("{} is packed for another product", ViewOf(codes).name));
  }

  // Weights that are trained and held in 8 bits: by the scales that their unit is cast with.
  void CheckHeld(Spot at, const Op& op, ViewId codes, ViewId scale, bool transposed, bool across) {
    const auto [unit, segment] = held_.at(codes);
    const Op* cast = CastOfUnit(program_, unit);
    if (cast == nullptr)
      return Report(at, fmt::format("reads {} as codes, which no op makes", ViewOf(codes).name));
    if (transposed != across)
      Report(at, fmt::format("sums {} along the other dimension than its codes run",
                             ViewOf(codes).name));
    for (const Attr attr : {Attr::kProduct, Attr::kBlock}) {
      if (cast->attrs.Get(attr) != op.attrs.Get(attr))
        Report(at, fmt::format("{} is cast for another product", ViewOf(codes).name));
    }
    const std::vector<CodedSegment> segments =
        CodedSegments(program_.units[static_cast<std::size_t>(unit)], plan_.params,
                      cast->attrs.Int(Attr::kBlock));
    const View &due = ViewOf(cast->in[1]), &found = ViewOf(scale);
    const auto s = static_cast<std::size_t>(segment);
    if (s >= segments.size() || found.buffer != due.buffer ||
        found.offset != due.offset + segments[s].first || found.elements != segments[s].scales)
      Report(at, fmt::format("reads {} with {}, the scales of another weight", ViewOf(codes).name,
                             found.name));
  }

  void CheckOperand(Spot at, const Op& op, ViewId data, ViewId scale, bool across, double share) {
    const auto copied = transposed_.find(data);
    const ViewId codes = copied == transposed_.end() ? data : copied->second;
    if (PackedIn(codes, Init::kCodes) != nullptr)
      return CheckCodes(at, op, codes, scale, codes != data, across);
    if (held_.contains(codes)) return CheckHeld(at, op, codes, scale, codes != data, across);
    const auto found = origins_.find(data);
    if (found == origins_.end())
      return Report(
          at, fmt::format("reads {} as a cast tensor, which no cast writes", ViewOf(data).name));
    for (const Origin& origin : found->second) {
      const Op& cast = OpAt(origin.cast);
      if (origin.across != across || origin.scale) {
        return Report(at, fmt::format("sums {} along the other dimension than its blocks run",
                                      ViewOf(data).name));
      }
      for (const Attr attr : {Attr::kProduct, Attr::kBlock}) {
        if (cast.attrs.Get(attr) != op.attrs.Get(attr))
          return Report(at, fmt::format("{} is cast for another product", ViewOf(data).name));
      }
      if (cast.attrs.Get(Attr::kBlock) > 0 && cast.attrs.Get(Attr::kBlock2) != share)
        return Report(at, fmt::format("{} has blocks of {} rows", ViewOf(data).name,
                                      cast.attrs.Get(Attr::kBlock2)));
      const bool own = cast.attrs.Get(Attr::kBlock) > 0
                           ? origins_.contains(scale) &&
                                 origins_.at(scale).contains({origin.cast, across, true}) &&
                                 origins_.at(scale).size() == found->second.size()
                           : cast.in.size() > 1 && cast.in[1] == scale;
      if (!own)
        return Report(at, fmt::format("reads {} with {}, the scales of another cast",
                                      ViewOf(data).name, ViewOf(scale).name));
    }
  }

  // The scale of a whole tensor. A view of a history's scales lies where the tensor's magnitude lies.
  void CheckTensorScale(Spot at, const Op& op) {
    const View& scale = ViewOf(op.in[1]);
    for (const auto& [updated, source] : scale_source_) {
      const View& whole = ViewOf(updated);
      if (whole.buffer != scale.buffer) continue;
      if (!source.history) {
        const auto reads = amax_readers_.find(source.from);
        if (reads != amax_readers_.end() && reads->second.contains(op.in[0])) return;
        return Report(at, fmt::format("casts {} by {}, the scale of another tensor",
                                      ViewOf(op.in[0]).name, scale.name));
      }
      const auto roll = recorded_in_.find(source.from);
      if (roll == recorded_in_.end())
        return Report(at, fmt::format("{} comes from a history that nothing extends", scale.name));
      for (const auto& [recorded, tensors] : amax_readers_) {
        if (ViewOf(recorded).buffer == ViewOf(roll->second).buffer &&
            ViewOf(recorded).offset == scale.offset)
          return;
      }
      return Report(at, fmt::format("nothing records the magnitude behind {}", scale.name));
    }
    Report(at,
           fmt::format("casts {} by {}, which no op computes", ViewOf(op.in[0]).name, scale.name));
  }

  struct ScaleSource {
    ViewId from = -1;
    bool history = false;
  };

  const Plan& plan_;
  const Program& program_;
  Findings& findings_;
  std::map<ViewId, Origins> origins_;
  std::map<ViewId, const Param*> packed_;
  std::map<ViewId, std::pair<int32_t, std::ptrdiff_t>> held_;  // unit and segment
  std::map<ViewId, ViewId> transposed_;                        // by copy: the codes
  std::map<ViewId, std::set<ViewId>> amax_readers_;  // by the magnitude: the tensors it is of
  std::map<ViewId, ViewId> recorded_in_;             // by history: the magnitudes it takes
  std::map<ViewId, ScaleSource> scale_source_;
};

}  // namespace

void VerifyScales(const Plan& plan, Findings* findings) {
  for (const Program& program : plan.programs) ScalePass(plan, program, findings).Run();
}

}  // namespace orrery::ir
