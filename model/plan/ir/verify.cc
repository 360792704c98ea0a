// SPDX-License-Identifier: Apache-2.0
// Verify: runs the passes in order and stops where a later pass could not trust its input.
#include "model/plan/ir/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/check.h"
#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {

const char* FaultName(Fault fault) {
  switch (fault) {
    case Fault::kShape:
      return "shape";
    case Fault::kReadBeforeWrite:
      return "read-before-write";
    case Fault::kStaleRead:
      return "stale-read";
    case Fault::kSlotOverrun:
      return "slot-overrun";
    case Fault::kPartialRead:
      return "partial-read";
    case Fault::kPartialGradient:
      return "partial-gradient";
    case Fault::kDoubleReduce:
      return "double-reduce";
    case Fault::kCollectiveMismatch:
      return "collective-mismatch";
    case Fault::kP2pMismatch:
      return "p2p-mismatch";
    case Fault::kCoverage:
      return "coverage";
    case Fault::kByteClash:
      return "byte-clash";
    case Fault::kScale:
      return "scale";
    case Fault::kSpace:
      return "space";
    case Fault::kDeadlock:
      return "deadlock";
  }
  return "unknown";
}

void Findings::Add(Fault fault, int stage, std::string where, std::string message) {
  constexpr size_t kMost = 100;
  if (list_.size() >= kMost) return;
  for (const Finding& known : list_) {
    if (known.fault == fault && known.stage == stage && known.where == where) return;
  }
  list_.push_back({fault, stage, std::move(where), std::move(message)});
}

Channel ChannelOf(const Mesh& mesh, int stage, const Op& op) {
  if (op.kind == OpKind::kSend) return {op.peer.axis, stage, op.peer.delta};
  const int size = mesh.axes[op.peer.axis].size;
  const bool between = op.peer.axis == mesh.program_axis;
  return {op.peer.axis, between ? ((stage + op.peer.delta) % size + size) % size : stage,
          -op.peer.delta};
}

bool CrossesStages(const Plan& plan, int group) {
  const int axis = plan.mesh.program_axis;
  return (plan.groups[group].axes >> axis & 1) && plan.mesh.axes[axis].size > 1;
}

bool IsMember(const Plan& plan, int group, int stage) {
  const Group& g = plan.groups[group];
  return g.restricted_axis != plan.mesh.program_axis ||
         std::find(g.allowed.begin(), g.allowed.end(), stage) != g.allowed.end();
}

namespace {

bool UpdatesAtOnce(OpKind kind) {
  return kind == OpKind::kSgd || kind == OpKind::kAdam || kind == OpKind::kMuon;
}

}  // namespace

bool ReadsGradient(OpKind kind) { return UpdatesAtOnce(kind) || kind == OpKind::kLambDir; }
bool WritesParameters(OpKind kind) { return UpdatesAtOnce(kind) || kind == OpKind::kLambApply; }

std::string WhereOp(const Program& program, int32_t block, int32_t op, int32_t micro_batch) {
  const Block& b = program.blocks[block];
  std::string where = b.name;
  if (micro_batch >= 0) where += fmt::format("[{}]", micro_batch);
  const Op& o = b.ops[op];
  where += fmt::format(" op {} {}", op, Info(o.kind).name);
  if (!o.out.empty() || !o.in.empty()) {
    where += " " + program.views[o.out.empty() ? o.in[0] : o.out[0]].name;
  }
  return where;
}

uint16_t RealAxes(const Mesh& mesh, uint16_t mask) {
  mask = mesh.Plain(mask);
  uint16_t real = 0;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    if ((mask >> axis & 1) && mesh.axes[axis].size > 1) real |= static_cast<uint16_t>(1u << axis);
  }
  return real;
}

std::string AxisNames(const Mesh& mesh, uint16_t mask) {
  std::string names;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    if (mask >> axis & 1) names += (names.empty() ? "" : "+") + mesh.axes[axis].name;
  }
  return names;
}

Pieces::Pieces(const Program& program) : begin(program.views.size()), end(program.views.size()) {
  std::vector<std::vector<int64_t>> cuts(program.buffers.size());
  std::vector<int32_t> first(program.buffers.size());
  for (const View& view : program.views) {
    if (view.offset == 0 && view.elements == program.buffers[view.buffer].elements) continue;
    cuts[view.buffer].push_back(view.offset);
    cuts[view.buffer].push_back(view.offset + view.elements);
  }
  for (size_t b = 0; b < cuts.size(); ++b) {
    auto& cut = cuts[b];
    cut.push_back(0);
    cut.push_back(program.buffers[b].elements);
    if (cut.size() > 2) {
      std::sort(cut.begin(), cut.end());
      cut.erase(std::unique(cut.begin(), cut.end()), cut.end());
    }
    first[b] = static_cast<int32_t>(buffer.size());
    for (size_t i = 0; i + 1 < cut.size(); ++i) {
      buffer.push_back(static_cast<BufferId>(b));
      offset.push_back(cut[i]);
      size.push_back(cut[i + 1] - cut[i]);
    }
  }
  for (size_t v = 0; v < begin.size(); ++v) {
    const View& view = program.views[v];
    const auto& cut = cuts[view.buffer];
    auto at = [&](int64_t x) {
      return first[view.buffer] +
             static_cast<int32_t>(std::lower_bound(cut.begin(), cut.end(), x) - cut.begin());
    };
    begin[v] = at(view.offset);
    end[v] = at(view.offset + view.elements);
  }
}

Stage::Stage(const Plan& plan_in, const Program& program_in, const Layout& layout_in)
    : plan(plan_in),
      program(program_in),
      layout(layout_in),
      usage(AnalyseUsage(program_in)),
      frame_spans(FrameSpans(plan_in, program_in, layout_in, usage)),
      pieces(program_in),
      persists(program_in.buffers.size(), 0) {
  std::vector<uint8_t> asked(program.blocks.size(), 0);
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    for (const Op& op : program.blocks[b].ops) {
      asked[b] |= op.when;
      if (op.kind == OpKind::kLossScale) persists[program.views[op.out[0]].buffer] = 1;
    }
  }
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const BufferClass cls = program.buffers[b].cls;
    const bool state =
        cls == BufferClass::kParam || cls == BufferClass::kMaster || cls == BufferClass::kOptimizer;
    persists[b] = layout.scope[b] == Layout::Scope::kStep && (state || persists[b]);
  }
  std::map<std::pair<int32_t, uint8_t>, int32_t> known;
  variant_of.reserve(layout.calls.size());
  for (const Call& call : layout.calls) {
    const auto flags = static_cast<uint8_t>(call.flags & asked[call.block]);
    const auto [it, added] =
        known.try_emplace({call.block, flags}, static_cast<int32_t>(variants.size()));
    if (added) {
      variants.push_back({call.block, flags, {}});
      const auto& ops = program.blocks[call.block].ops;
      for (size_t i = 0; i < ops.size(); ++i) {
        if ((ops[i].when & flags) == ops[i].when)
          variants.back().ops.push_back(static_cast<int32_t>(i));
      }
    }
    variant_of.push_back(it->second);
  }
}

namespace {

std::vector<Finding> VerifySound(const Plan& plan, const std::vector<Layout>& layouts, int window,
                                 Findings findings) {
  std::vector<Stage> stages;
  stages.reserve(layouts.size());
  for (size_t s = 0; s < layouts.size(); ++s)
    stages.emplace_back(plan, plan.programs[s], layouts[s]);
  VerifyShapes(plan, &findings);
  VerifyScales(plan, &findings);
  VerifyCodes(plan, &findings);
  VerifySpaces(plan, &findings);
  for (const Stage& stage : stages) {
    VerifyLiveness(stage, &findings);
    VerifyLayout(stage, &findings);
  }
  VerifyContext(stages, &findings);
  VerifyPartialSums(stages, &findings);
  VerifyCoverage(stages, &findings);
  VerifyNorm(stages, &findings);
  Findings matching;
  VerifyMatching(stages, &matching);
  const bool matched = matching.empty();
  for (Finding& finding : matching.Take()) {
    findings.Add(finding.fault, finding.stage, finding.where, finding.message);
  }
  if (matched) VerifyDeadlock(stages, window, &findings);
  return findings.Take();
}

}  // namespace

std::vector<Finding> Verify(const Plan& plan, const VerifyOptions& options) {
  Findings findings;
  if (!VerifyStructure(plan, &findings)) return findings.Take();
  std::vector<Layout> layouts;
  for (const Program& program : plan.programs) layouts.push_back(ComputeLayout(plan, program));
  return VerifySound(plan, layouts, options.window, std::move(findings));
}

std::vector<Finding> Verify(const Plan& plan, const std::vector<Layout>& layouts,
                            const VerifyOptions& options) {
  Findings findings;
  if (!VerifyStructure(plan, &findings)) return findings.Take();
  ORRERY_CHECK(layouts.size() == plan.programs.size(), "{} layouts for {} programs", layouts.size(),
               plan.programs.size());
  return VerifySound(plan, layouts, options.window, std::move(findings));
}

}  // namespace orrery::ir
