// SPDX-License-Identifier: Apache-2.0
// Verify, pass 5: the optimizer updates every element of every parameter exactly once per set of
// replicas, from the matching piece of the gradient, and the updated weights reach the buffers that
// the next step reads.
#include <fmt/format.h>

#include <algorithm>

#include "model/plan/ir/packed.h"
#include "model/plan/ir/unit_codes.h"
#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

class CoveragePass {
 public:
  CoveragePass(const Stage& stage, std::vector<int>* homes, Findings* findings)
      : stage_(stage),
        program_(stage.program),
        homes_(*homes),
        findings_(*findings),
        updates_(program_.units.size()) {}

  void Run() {
    for (const Unit& unit : program_.units) Segments(unit);
    std::vector<int> executions(stage_.variants.size(), 0);
    for (int32_t v : stage_.variant_of) ++executions[v];
    written_.assign(stage_.pieces.buffer.size(), 0);
    for (size_t v = 0; v < executions.size(); ++v) {
      for (int32_t i : stage_.variants[v].ops) Visit(stage_.variants[v], i, executions[v]);
    }
    for (size_t u = 0; u < program_.units.size(); ++u) Updates(static_cast<int32_t>(u));
    Weights();
  }

 private:
  struct Update {
    int64_t begin, end;  // elements of the buffer
    BufferId buffer;
  };

  void Report(const std::string& where, const std::string& message) {
    findings_.Add(Fault::kCoverage, program_.stage, where, message);
  }

  bool Frozen(const Unit& unit) const {
    return !unit.segments.empty() && stage_.plan.params[unit.segments.front().param].frozen;
  }

  // The pieces of parameters in a unit: as long as their shard, none over another.
  void Segments(const Unit& unit) {
    int64_t end = 0;
    for (const UnitSegment& segment : unit.segments) {
      const Param& param = stage_.plan.params[segment.param];
      int64_t elements = 1;
      for (int64_t extent : param.shape) elements *= extent;
      if (param.shard_dim >= 0 && param.shard_axis >= 0) {
        const int parts = stage_.plan.mesh.axes[param.shard_axis].size;
        if (param.shape[param.shard_dim] % parts != 0)
          Report(unit.name, fmt::format("{} does not divide by {}", param.name, parts));
        elements /= parts;
      }
      if (segment.elements != elements) {
        Report(unit.name, fmt::format("holds {} elements of {}, whose piece has {}",
                                      segment.elements, param.name, elements));
      }
      if (param.packing != Packed::kNone && !HeldInCodes(param) &&
          (!param.frozen || param.shape != PackedShape(param.packing, param.init, param.of)))
        Report(unit.name, fmt::format("{} is no part of a packed frozen matrix", param.name));
      if (param.frozen != Frozen(unit)) Report(unit.name, "mixes frozen and trained parameters");
      if (segment.offset < end)
        Report(unit.name, fmt::format("{} overlaps the parameter before it", param.name));
      end = segment.offset + segment.elements;
      ++homes_[segment.param];
    }
    if (end > unit.elements)
      Report(unit.name, fmt::format("parameters end at {} of {} elements", end, unit.elements));
  }

  void Visit(const Variant& variant, int32_t i, int executions) {
    const Op& op = stage_.op(variant, i);
    auto where = [&] { return WhereOp(program_, variant.block, i); };
    for (ViewId view : op.out) {
      for (int32_t p = stage_.pieces.begin[view]; p < stage_.pieces.end[view]; ++p) written_[p] = 1;
    }
    if (WritesParameters(op.kind)) {
      if (executions != 1) Report(where(), fmt::format("runs {} times in a step", executions));
      const size_t targets = op.attrs.Get(Attr::kMaster) != 0 ? 2 : 1;
      for (size_t k = 0; k < targets && k < op.out.size(); ++k) AddUpdate(op, op.out[k], where());
      SamePiece(op, op.in[0], where());
      SamePiece(op, op.in[1], where());
    }
    switch (op.kind) {
      case OpKind::kAllGather:
        return Gather(op, where());
      case OpKind::kCopy:
        if (stage_.buffer_of(op.out[0]).unit >= 0) SamePiece(op, op.in[0], where());
        return;
      default:
        return;
    }
  }

  void AddUpdate(const Op& op, ViewId view, const std::string& where) {
    const Buffer& buffer = stage_.buffer_of(view);
    const View& v = program_.views[view];
    if (buffer.unit < 0)
      return Report(where, fmt::format("updates {}, which belongs to no unit", v.name));
    if (op.attrs.Int(Attr::kZaxis) != buffer.unit_shard_axis)
      Report(where, "its shard axis is not the buffer's");
    updates_[buffer.unit].push_back({v.offset, v.offset + v.elements, v.buffer});
  }

  // Operands of an update are the same piece of the same unit as its target.
  void SamePiece(const Op& op, ViewId view, const std::string& where) {
    const Buffer &a = stage_.buffer_of(op.out[0]), &b = stage_.buffer_of(view);
    const View &x = program_.views[op.out[0]], &y = program_.views[view];
    if (a.unit != b.unit || a.unit_shard_axis != b.unit_shard_axis || x.offset != y.offset ||
        x.elements != y.elements) {
      Report(where, fmt::format("updates {} from {}, another piece", x.name, y.name));
    }
  }

  // Parameters are gathered from shards of their own unit over the axis that shards it.
  void Gather(const Op& op, const std::string& where) {
    const Buffer &to = stage_.buffer_of(op.out[0]), &from = stage_.buffer_of(op.in[0]);
    const bool weights = to.cls == BufferClass::kParam || to.cls == BufferClass::kGathered;
    if (!weights || to.unit < 0) return;
    const uint16_t axes = RealAxes(stage_.plan.mesh, stage_.plan.groups[op.group].axes);
    const auto shard =
        from.unit_shard_axis < 0
            ? uint16_t{0}
            : RealAxes(stage_.plan.mesh, static_cast<uint16_t>(1u << from.unit_shard_axis));
    if (from.unit != to.unit || axes != shard) {
      Report(where, fmt::format("gathers {} over {} from {}, which is sharded over {}", to.name,
                                AxisNames(stage_.plan.mesh, axes), from.name,
                                shard ? AxisNames(stage_.plan.mesh, shard) : "nothing"));
    }
  }

  void Updates(int32_t u) {
    const Unit& unit = program_.units[u];
    auto& updates = updates_[u];
    if (Frozen(unit)) {
      if (!updates.empty()) Report(unit.name, "is frozen, and an optimizer op updates it");
      return;
    }
    if (updates.empty()) return Report(unit.name, "no optimizer op updates it");
    std::sort(updates.begin(), updates.end(), [](const Update& a, const Update& b) {
      return std::pair(a.buffer, a.begin) < std::pair(b.buffer, b.begin);
    });
    for (size_t i = 0; i < updates.size();) {
      const Buffer& buffer = program_.buffers[updates[i].buffer];
      int64_t end = 0;
      const BufferId id = updates[i].buffer;
      for (; i < updates.size() && updates[i].buffer == id; ++i) {
        if (updates[i].begin > end)
          Report(buffer.name,
                 fmt::format("elements {} to {} are never updated", end, updates[i].begin));
        if (updates[i].begin < end)
          Report(buffer.name,
                 fmt::format("elements {} to {} are updated twice", updates[i].begin, end));
        end = std::max(end, updates[i].end);
      }
      Enough(unit, buffer, end);
    }
  }

  void Enough(const Unit& unit, const Buffer& buffer, int64_t end) {
    int64_t used = 0;
    for (const UnitSegment& segment : unit.segments)
      used = std::max(used, segment.offset + segment.elements);
    const int parts =
        buffer.unit_shard_axis < 0 ? 1 : stage_.plan.mesh.axes[buffer.unit_shard_axis].size;
    if (buffer.elements * parts < used) {
      Report(buffer.name, fmt::format("{} shards of {} elements do not hold the {} of unit {}",
                                      parts, buffer.elements, used, unit.name));
    }
    const int64_t needed = parts == 1 ? used : buffer.elements;
    if (end < needed)
      Report(buffer.name, fmt::format("elements {} to {} are never updated", end, needed));
  }

  // Weights that outlive the step take part in the update, directly or through a gather.
  void Weights() {
    const Pieces& pieces = stage_.pieces;
    for (size_t p = 0; p < written_.size(); ++p) {
      const Buffer& buffer = program_.buffers[pieces.buffer[p]];
      if (written_[p] || buffer.cls != BufferClass::kParam || buffer.life != Life::kStep ||
          buffer.unit < 0)
        continue;
      if (Frozen(program_.units[buffer.unit])) continue;
      const auto& segments = program_.units[buffer.unit].segments;
      const bool holds = buffer.unit_shard_axis >= 0 ||
                         std::any_of(segments.begin(), segments.end(), [&](const UnitSegment& s) {
                           return s.offset < pieces.offset[p] + pieces.size[p] &&
                                  pieces.offset[p] < s.offset + s.elements;
                         });
      if (holds)
        Report(buffer.name, fmt::format("elements {} to {} never take the update", pieces.offset[p],
                                        pieces.offset[p] + pieces.size[p]));
    }
  }

  const Stage& stage_;
  const Program& program_;
  std::vector<int>& homes_;  // by parameter: units that hold it
  Findings& findings_;
  std::vector<std::vector<Update>> updates_;  // by unit
  std::vector<char> written_;                 // by piece
};

}  // namespace

namespace {

bool HoldsPasses(const Block& block) {
  return std::ranges::any_of(block.ops, [](const Op& op) {
    return op.phase == Phase::kForward || op.phase == Phase::kBackward ||
           op.phase == Phase::kWeightGrad || op.phase == Phase::kRecompute;
  });
}

// Each block of passes is called once for each micro-batch: the step would train on less than its batch, or on some of it twice.
void CheckMicroBatches(const Stage& stage, Findings* findings) {
  const Program& program = stage.program;
  std::vector<std::vector<int32_t>> calls(program.blocks.size());
  for (size_t b = 0; b < calls.size(); ++b) {
    if (HoldsPasses(program.blocks[b]))
      calls[b].resize(static_cast<size_t>(stage.plan.micro_batches));
  }
  for (const Call& call : stage.layout.calls) {
    std::vector<int32_t>& of = calls[static_cast<size_t>(call.block)];
    if (!of.empty() && call.micro_batch >= 0 && call.micro_batch < stage.plan.micro_batches)
      ++of[static_cast<size_t>(call.micro_batch)];
  }
  for (size_t b = 0; b < calls.size(); ++b) {
    const auto odd = std::ranges::find_if(calls[b], [](int32_t count) { return count != 1; });
    if (odd == calls[b].end()) continue;
    findings->Add(
        Fault::kCoverage, program.stage,
        fmt::format("{}[{}]", program.blocks[b].name, odd - calls[b].begin()),
        fmt::format("called {} times: each micro-batch goes through its passes once", *odd));
  }
}

}  // namespace

void VerifyCoverage(const std::vector<Stage>& stages, Findings* findings) {
  const Plan& plan = stages[0].plan;
  for (const Stage& stage : stages) CheckMicroBatches(stage, findings);
  if (!plan.params.empty() && std::ranges::all_of(plan.params, &Param::frozen))
    findings->Add(Fault::kCoverage, 0, "params", "every parameter is frozen: nothing is trained");
  std::vector<int> homes(plan.params.size(), 0);
  for (const Stage& stage : stages) CoveragePass(stage, &homes, findings).Run();
  for (size_t p = 0; p < homes.size(); ++p) {
    const Param& param = plan.params[p];
    if (homes[p] == 0)
      findings->Add(Fault::kCoverage, 0, param.name, "belongs to no unit: it is never trained");
    if (homes[p] > 1 && param.tie < 0)
      findings->Add(Fault::kCoverage, 0, param.name, fmt::format("belongs to {} units", homes[p]));
  }
}

}  // namespace orrery::ir
