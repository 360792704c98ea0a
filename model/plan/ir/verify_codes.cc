// SPDX-License-Identifier: Apache-2.0
// Verify, pass 7: weights held in 8 bits are what the step's update has left.
//
// Codes and their scales outlive the step, so no read tells whether they were made again. Each unit of such weights is cast once,
// from its master copy, behind the op that updates it, by scales that come from the same copy: from this update's magnitudes, or
// from a history that records them. That magnitudes are of whole tensors is left to the pass of partial sums.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "model/plan/ir/unit_codes.h"
#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

struct OpPlace {
  int32_t block = -1, op = -1;
};

class CodePass {
 public:
  CodePass(const Plan& plan, const Program& program, Findings* findings)
      : plan_(plan), program_(program), findings_(*findings) {}

  void Run() {
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      const Unit& unit = program_.units[u];
      if (HeldInCodes(plan_, unit)) {
        CheckUnit(static_cast<int32_t>(u), unit);
      } else if (const Buffer* buffer = InEightBits(static_cast<int32_t>(u))) {
        Report(buffer->name, "holds weights in 8 bits that no op casts");
      }
    }
  }

 private:
  const View& ViewOf(ViewId id) const { return program_.views[static_cast<std::size_t>(id)]; }
  const Buffer& BufferOf(ViewId id) const {
    return program_.buffers[static_cast<std::size_t>(ViewOf(id).buffer)];
  }
  const Op& At(OpPlace at) const {
    return program_.blocks[static_cast<std::size_t>(at.block)].ops[static_cast<std::size_t>(at.op)];
  }
  void Report(const std::string& where, const std::string& message) {
    findings_.Add(Fault::kScale, program_.stage, where, message);
  }
  void Report(OpPlace at, const std::string& message) {
    Report(WhereOp(program_, at.block, at.op), message);
  }
  static bool Behind(OpPlace a, OpPlace b) { return a.block == b.block && a.op > b.op; }

  template <class Test>
  std::vector<OpPlace> Find(const Test& test) const {
    std::vector<OpPlace> found;
    for (std::size_t b = 0; b < program_.blocks.size(); ++b) {
      const std::vector<Op>& ops = program_.blocks[b].ops;
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (test(ops[i])) found.push_back({static_cast<int32_t>(b), static_cast<int32_t>(i)});
    }
    return found;
  }

  // Weights of a unit in codes that are neither its own nor those of packed tensors.
  const Buffer* InEightBits(int32_t unit) const {
    const std::vector<UnitSegment>& segments =
        program_.units[static_cast<std::size_t>(unit)].segments;
    for (const UnitSegment& segment : segments)
      if (plan_.params[static_cast<std::size_t>(segment.param)].packing != Packed::kNone)
        return nullptr;
    for (const Buffer& buffer : program_.buffers) {
      const bool weights =
          buffer.cls == BufferClass::kParam || buffer.cls == BufferClass::kGathered;
      if (buffer.unit == unit && weights &&
          (buffer.dtype == Dtype::kE4m3 || buffer.dtype == Dtype::kE5m2))
        return &buffer;
    }
    return nullptr;
  }

  bool IsMaster(ViewId view, int32_t unit) const {
    const Buffer& buffer = BufferOf(view);
    return buffer.cls == BufferClass::kMaster && buffer.unit == unit &&
           ViewOf(view).elements == buffer.elements;
  }

  void CheckUnit(int32_t u, const Unit& unit) {
    for (const UnitSegment& segment : unit.segments) {
      const Param& param = plan_.params[static_cast<std::size_t>(segment.param)];
      if (!HeldInCodes(param) || param.frozen)
        return Report(unit.name, fmt::format("holds codes, and {} is no trained weight in 8 bits",
                                             param.name));
    }
    const std::vector<OpPlace> casts = Find(
        [&](const Op& op) { return op.kind == OpKind::kUnitCast && BufferOf(op.in[0]).unit == u; });
    if (casts.size() != 1)
      return Report(unit.name, fmt::format("its codes are made {} times in a step", casts.size()));
    const OpPlace at = casts.front();
    const Op& cast = At(at);
    const Buffer& codes = BufferOf(cast.out[0]);
    if (!IsMaster(cast.in[0], u) || codes.unit != u || codes.cls != BufferClass::kParam ||
        codes.unit_shard_axis != BufferOf(cast.in[0]).unit_shard_axis ||
        cast.attrs.Int(Attr::kZaxis) != codes.unit_shard_axis)
      return Report(at, fmt::format("casts {} from another piece than it holds", codes.name));
    CheckUpdate(u, at, cast);
    CheckScale(u, at, cast);
  }

  void CheckUpdate(int32_t u, OpPlace at, const Op& cast) {
    const std::vector<OpPlace> updates = Find([&](const Op& op) {
      return WritesParameters(op.kind) && !op.out.empty() && BufferOf(op.out[0]).unit == u;
    });
    for (const OpPlace update : updates) {
      if (BufferOf(At(update).out[0]).cls != BufferClass::kMaster)
        Report(update, fmt::format("writes numbers to {}, which holds codes",
                                   ViewOf(At(update).out[0]).name));
      if (!Behind(at, update))
        Report(at, fmt::format("casts {} before its update", ViewOf(cast.in[0]).name));
    }
    update_ = updates.empty() ? std::nullopt : std::optional(updates.back());
  }

  // Where the scales of a cast come from, and that they come before it.
  void CheckScale(int32_t u, OpPlace at, const Op& cast) {
    const View& scale = ViewOf(cast.in[1]);
    const std::vector<OpPlace> made = Find([&](const Op& op) {
      return op.kind == OpKind::kScaleUpdate && ViewOf(op.out[0]).buffer == scale.buffer;
    });
    if (made.size() != 1)
      return Report(at, fmt::format("casts by {}, which {} ops make", scale.name, made.size()));
    const Op& update = At(made.front());
    if (!Behind(at, made.front()))
      Report(at, fmt::format("casts by {}, which is made later", scale.name));
    for (const Attr attr : {Attr::kProduct, Attr::kFmt})
      if (cast.attrs.Get(attr) != update.attrs.Get(attr))
        Report(at, fmt::format("{} is a scale of another format", scale.name));
    const bool history = update.attrs.Get(Attr::kLength) > 0;
    ViewId source = update.in[0];
    if (history) {
      const std::vector<OpPlace> rolls = Find([&](const Op& op) {
        return op.kind == OpKind::kAmaxRoll && ViewOf(op.out[0]).buffer == ViewOf(source).buffer;
      });
      if (rolls.size() != 1)
        return Report(at, fmt::format("{} comes from a history that nothing extends", scale.name));
      source = At(rolls.front()).in[1];
    }
    CheckMagnitude(u, at, cast, source, made.front(), history);
  }

  void CheckMagnitude(int32_t u, OpPlace at, const Op& cast, ViewId source, OpPlace made,
                      bool history) {
    const View &scale = ViewOf(cast.in[1]), &from = ViewOf(source);
    const int64_t place = scale.offset - ViewOf(At(made).out[0]).offset;
    const std::vector<OpPlace> scans = Find([&](const Op& op) {
      const View& out = ViewOf(op.out.empty() ? source : op.out[0]);
      return op.kind == OpKind::kUnitAmax && out.buffer == from.buffer &&
             out.offset - from.offset == place && out.elements == scale.elements;
    });
    if (scans.size() != 1)
      return Report(at, fmt::format("nothing records the magnitude behind {}", scale.name));
    const Op& scan = At(scans.front());
    if (!IsMaster(scan.in[0], u) || scan.attrs.Get(Attr::kBlock) != cast.attrs.Get(Attr::kBlock) ||
        scan.attrs.Get(Attr::kZaxis) != cast.attrs.Get(Attr::kZaxis))
      return Report(at, fmt::format("casts {} by the scales of {}", ViewOf(cast.in[0]).name,
                                    ViewOf(scan.in[0]).name));
    if (!Behind(made, scans.front()))
      Report(made,
             fmt::format("scales {} by a magnitude that is found later", ViewOf(scan.in[0]).name));
    if (!history && update_ && !Behind(scans.front(), *update_))
      Report(scans.front(),
             fmt::format("takes the magnitude of {} before its update", ViewOf(scan.in[0]).name));
  }

  const Plan& plan_;
  const Program& program_;
  Findings& findings_;
  std::optional<OpPlace> update_;  // of the unit
};

}  // namespace

void VerifyCodes(const Plan& plan, Findings* findings) {
  for (const Program& program : plan.programs) CodePass(plan, program, findings).Run();
}

}  // namespace orrery::ir
