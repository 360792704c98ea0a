// SPDX-License-Identifier: Apache-2.0
// Verify, pass 3: what is a partial sum is summed once over exactly the axes it is partial over
// before anything reads it as complete.
//
// Sources of partial sums: Op::yields, Param::partial_over for whatever computes a gradient, and
// the rules of the norms and the loss. A block is walked once per state of what it touches; calls
// then only look the result up.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

// The axes over which a piece is still to be summed, and those over which a sum is permitted
// (scalars such as the loss may be summed over more than the plan declares).
struct Sum {
  uint16_t must = 0;
  uint16_t may = 0;
  bool zero = false;  // neutral: agrees with any partial sum
  bool max = false;   // to be reduced with max instead
  auto operator<=>(const Sum&) const = default;
};
constexpr Sum kZeroSum{0, 0xFFFF, true, false};

class PartialPass {
 public:
  PartialPass(const std::vector<Stage>& stages, size_t index, uint16_t data_axes,
              Findings* findings)
      : stage_(stages[index]),
        mesh_(stage_.plan.mesh),
        pieces_(stage_.pieces),
        findings_(*findings),
        all_(RealAxes(mesh_, 0xFFFF)),
        loss_axes_(RealAxes(mesh_, static_cast<uint16_t>(data_axes | 1u << mesh_.program_axis))),
        now_(pieces_.buffer.size()),
        raw_(pieces_.buffer.size(), 0),
        step_(pieces_.buffer.size()),
        batch_(stage_.plan.micro_batches) {}

  void Run() {
    FindRawGradients();
    for (size_t v = 0; v < stage_.variants.size(); ++v)
      touched_.push_back(TouchedBy(stage_.variants[v]));
    known_.resize(touched_.size());
    settled_.assign(touched_.size(), -1);
    for (size_t c = 0; c < stage_.layout.calls.size(); ++c) ApplyCall(c);
    for (size_t p = 0; p < step_.size(); ++p) {
      const Buffer& buffer = stage_.program.buffers[pieces_.buffer[p]];
      if (buffer.life != Life::kStep || buffer.cls != BufferClass::kScalar || step_[p].must == 0)
        continue;
      findings_.Add(Fault::kPartialRead, stage_.program.stage, buffer.name,
                    fmt::format("is still a partial sum over {} at the end of the step",
                                Axes(step_[p].must)));
    }
  }

 private:
  using Scope = Layout::Scope;
  struct Touched {
    std::vector<int32_t> step, batch;  // pieces whose state outlives the call
  };
  using State = std::vector<Sum>;  // of Touched::step, then Touched::batch

  std::string Axes(uint16_t mask) const { return AxisNames(mesh_, mask); }

  // Axes over which a freshly computed gradient is partial, by piece of a gradient buffer.
  void FindRawGradients() {
    const Program& program = stage_.program;
    for (size_t p = 0; p < raw_.size(); ++p) {
      const Buffer& buffer = program.buffers[pieces_.buffer[p]];
      if (!IsGradient(buffer) || buffer.unit < 0) continue;
      uint16_t axes = 0;
      for (const UnitSegment& segment : program.units[buffer.unit].segments) {
        const bool apart = segment.offset >= pieces_.offset[p] + pieces_.size[p] ||
                           segment.offset + segment.elements <= pieces_.offset[p];
        if (apart && buffer.unit_shard_axis < 0) continue;
        axes |= stage_.plan.params[segment.param].partial_over;
      }
      raw_[p] = RealAxes(mesh_, axes);
    }
  }

  static bool IsGradient(const Buffer& buffer) {
    return buffer.cls == BufferClass::kGrad || buffer.cls == BufferClass::kGradTransient;
  }

  Touched TouchedBy(const Variant& variant) const {
    std::vector<char> seen(pieces_.buffer.size(), 0);
    Touched touched;
    auto name = [&](ViewId view) {
      const BufferId buffer = stage_.program.views[view].buffer;
      const Scope scope = stage_.layout.scope[buffer];
      if (scope == Scope::kCall || scope == Scope::kRing || stage_.Persists(buffer)) return;
      for (int32_t p = pieces_.begin[view]; p < pieces_.end[view]; ++p) {
        if (seen[p]) continue;
        seen[p] = 1;
        (scope == Scope::kStep ? touched.step : touched.batch).push_back(p);
      }
    };
    for (int32_t i : variant.ops) {
      for (ViewId view : stage_.op(variant, i).in) name(view);
      for (ViewId view : stage_.op(variant, i).out) name(view);
    }
    return touched;
  }

  // Calls that meet the state their variant left last time, and a clean micro-batch, change
  // nothing.
  void ApplyCall(size_t c) {
    const int32_t v = stage_.variant_of[c];
    auto& batch = batch_[stage_.layout.calls[c].micro_batch];
    if (settled_[v] == version_ && batch.empty()) return;
    const Touched& touched = touched_[v];
    State before;
    before.reserve(touched.step.size() + touched.batch.size());
    for (int32_t p : touched.step) before.push_back(step_[p]);
    for (int32_t p : touched.batch) {
      const auto it = batch.find(p);
      before.push_back(it == batch.end() ? Sum{} : it->second);
    }
    auto it = known_[v].find(before);
    if (it == known_[v].end()) it = known_[v].emplace(before, RunBlock(c, before)).first;
    const State& after = it->second;
    if (std::equal(after.begin(), after.begin() + touched.step.size(), before.begin())) {
      const bool clean = std::all_of(after.begin() + touched.step.size(), after.end(),
                                     [](const Sum& s) { return s == Sum{}; });
      if (clean && batch.empty()) settled_[v] = version_;
    } else {
      ++version_;
    }
    for (size_t i = 0; i < touched.step.size(); ++i) step_[touched.step[i]] = after[i];
    for (size_t i = 0; i < touched.batch.size(); ++i) {
      const Sum& sum = after[touched.step.size() + i];
      if (sum == Sum{}) {
        batch.erase(touched.batch[i]);
      } else {
        batch[touched.batch[i]] = sum;
      }
    }
  }

  State RunBlock(size_t call, const State& before) {
    const int32_t v = stage_.variant_of[call];
    const Touched& touched = touched_[v];
    std::fill(now_.begin(), now_.end(), Sum{});
    for (size_t i = 0; i < touched.step.size(); ++i) now_[touched.step[i]] = before[i];
    for (size_t i = 0; i < touched.batch.size(); ++i)
      now_[touched.batch[i]] = before[touched.step.size() + i];
    variant_ = &stage_.variants[v];
    micro_batch_ = stage_.layout.calls[call].micro_batch;
    for (int32_t i : variant_->ops) {
      op_ = i;
      Apply(stage_.op(*variant_, i));
    }
    State after;
    for (int32_t p : touched.step) after.push_back(now_[p]);
    for (int32_t p : touched.batch) after.push_back(now_[p]);
    return after;
  }

  void Apply(const Op& op) {
    switch (op.kind) {
      case OpKind::kZero:
        return Set(op.out[0], kZeroSum);
      case OpKind::kAdd:
        return Add(op);
      case OpKind::kCopy:
        return Set(op.out[0], Fold(op.in[0]));
      case OpKind::kAllReduce:
        return AllReduce(op);
      case OpKind::kReduceScatter:
        return Set(op.out[0], Reduced(op));
      case OpKind::kSumSq:
        Complete(op.in[1], Fault::kPartialGradient);
        return Accumulate(op.out[0], NormAxes(op, true));
      default:
        return ReadsGradient(op.kind) ? Update(op) : Compute(op);
    }
  }

  void Update(const Op& op) {
    Complete(op.in[0], Fault::kPartialGradient);
    for (size_t i = 1; i < op.in.size(); ++i) Complete(op.in[i], Fault::kPartialRead);
    for (ViewId view : op.out) Set(view, {});
    if (op.kind == OpKind::kLambDir) Set(op.out[3], {NormAxes(op, false), all_, false, false});
  }

  void Compute(const Op& op) {
    for (ViewId view : op.in) {
      if (!Accumulates(op, view)) Complete(view, Fault::kPartialRead);
    }
    for (size_t k = 0; k < op.out.size(); ++k) {
      const Buffer& buffer = stage_.buffer_of(op.out[k]);
      const bool add = Accumulates(op, op.out[k]);
      if (IsGradient(buffer) && buffer.unit >= 0) {
        for (int32_t p = pieces_.begin[op.out[k]]; p < pieces_.end[op.out[k]]; ++p) {
          const Sum fresh{raw_[p], raw_[p], false, false};
          now_[p] = add ? Combine(now_[p], fresh, p) : fresh;
        }
        continue;
      }
      uint16_t must = k == 0 ? RealAxes(mesh_, op.yields) : 0;
      if (k == 1 && (op.kind == OpKind::kXentGrad || op.kind == OpKind::kMse)) must = loss_axes_;
      if (add) {
        Accumulate(op.out[k], must, op.kind == OpKind::kAmax);
      } else {
        Set(op.out[k], {must, buffer.cls == BufferClass::kScalar ? all_ : must, false,
                        op.kind == OpKind::kXentMax || op.kind == OpKind::kAmax ||
                            op.kind == OpKind::kUnitAmax});
      }
    }
  }

  // True for the operand that the op adds to, as opposed to one that it reads.
  static bool Accumulates(const Op& op, ViewId view) {
    if (std::find(op.in.begin(), op.in.end(), view) == op.in.end()) return false;
    if (std::find(op.out.begin(), op.out.end(), view) == op.out.end()) return false;
    switch (op.kind) {
      case OpKind::kMatmul:
      case OpKind::kEmbed:
      case OpKind::kAmax:
        return op.attrs.Get(Attr::kAcc) != 0;
      case OpKind::kEmbedBwd:
      case OpKind::kPosBwd:
      case OpKind::kLayerNormWgrad:
      case OpKind::kRmsNormWgrad:
      case OpKind::kQkNormWgrad:
      case OpKind::kColSum:
      case OpKind::kAttnBwd:
      case OpKind::kXentGrad:
      case OpKind::kMse:
        return true;
      default:
        return false;
    }
  }

  void Set(ViewId view, Sum sum) {
    if (stage_.Persists(stage_.program.views[view].buffer)) return;
    for (int32_t p = pieces_.begin[view]; p < pieces_.end[view]; ++p) now_[p] = sum;
  }

  void Accumulate(ViewId view, uint16_t must, bool maximum = false) {
    const bool scalar = stage_.buffer_of(view).cls == BufferClass::kScalar;
    for (int32_t p = pieces_.begin[view]; p < pieces_.end[view]; ++p) {
      // Several terms of one scalar may be partial over different axes: the sum is partial over all
      // of them.
      Sum fresh{must, scalar ? all_ : must, false, maximum};
      if (scalar && !now_[p].zero && now_[p].must != 0)
        fresh.must |= now_[p].must, now_[p].must = fresh.must;
      now_[p] = Combine(now_[p], fresh, p);
    }
  }

  Sum Fold(ViewId view) const {
    Sum all = kZeroSum;
    for (int32_t p = pieces_.begin[view]; p < pieces_.end[view]; ++p) {
      const Sum& sum = now_[p];
      if (sum.zero) continue;
      all = all.zero ? sum
                     : Sum{static_cast<uint16_t>(all.must | sum.must),
                           static_cast<uint16_t>((all.may & sum.may) | all.must | sum.must), false,
                           sum.max};
    }
    return all;
  }

  void Add(const Op& op) {
    const Sum right = Fold(op.in[1]);
    if (op.out[0] == op.in[0]) {
      for (int32_t p = pieces_.begin[op.out[0]]; p < pieces_.end[op.out[0]]; ++p)
        now_[p] = Combine(now_[p], right, p);
    } else {
      Set(op.out[0], Combine(Fold(op.in[0]), right, pieces_.begin[op.out[0]]));
    }
  }

  // The sum of two values: both must be partial over the same axes.
  Sum Combine(const Sum& a, const Sum& b, int32_t piece) {
    if (a.zero) return b;
    if (b.zero) return a;
    if (a.must != b.must) {
      const Buffer& buffer = stage_.program.buffers[pieces_.buffer[piece]];
      Report(IsGradient(buffer) ? Fault::kPartialGradient : Fault::kPartialRead,
             fmt::format("adds to {} what is partial over other axes ({} and {})", buffer.name,
                         a.must ? Axes(a.must) : "none", b.must ? Axes(b.must) : "none"));
    }
    const auto must = static_cast<uint16_t>(a.must | b.must);
    return {must, static_cast<uint16_t>((a.may & b.may) | must), false, a.max};
  }

  uint16_t GroupAxes(const Op& op) const {
    const Group& group = stage_.plan.groups[op.group];
    uint16_t axes = RealAxes(mesh_, group.axes);
    if (group.restricted_axis >= 0 && group.allowed.size() < 2)
      axes &= static_cast<uint16_t>(~(1u << group.restricted_axis));
    return axes;
  }

  Sum AfterReduction(const Op& op, Sum sum) {
    if (sum.zero) return {};
    const uint16_t axes = GroupAxes(op);
    if (const auto twice = static_cast<uint16_t>(axes & ~sum.may)) {
      Report(Fault::kDoubleReduce, fmt::format("sums {} over {}, over which it is no partial sum",
                                               stage_.program.views[op.in[0]].name, Axes(twice)));
    } else if ((op.attrs.Int(Attr::kReduceOp) == 1) != sum.max && (axes & sum.must)) {
      Report(Fault::kPartialRead,
             sum.max ? "sums what asks for a maximum" : "takes the maximum of what asks for a sum");
    }
    return {static_cast<uint16_t>(sum.must & ~axes), static_cast<uint16_t>(sum.may & ~axes), false,
            sum.max};
  }

  void AllReduce(const Op& op) {
    for (int32_t p = pieces_.begin[op.in[0]]; p < pieces_.end[op.in[0]]; ++p)
      now_[p] = AfterReduction(op, now_[p]);
  }

  Sum Reduced(const Op& op) { return AfterReduction(op, Fold(op.in[0])); }

  // Sums of squares of shards: over the ZeRO axis, over the axes that shard the parameters, and (of
  // the whole model) over the stages.
  static uint16_t AxesOf(const Param& param) {
    return param.shard_axis < 0 ? 0 : static_cast<uint16_t>(1u << param.shard_axis);
  }

  uint16_t NormAxes(const Op& op, bool whole_model) const {
    uint16_t axes = whole_model ? static_cast<uint16_t>(1u << mesh_.program_axis) : 0;
    if (const int64_t zaxis = op.attrs.Int(Attr::kZaxis); zaxis >= 0)
      axes |= static_cast<uint16_t>(1u << zaxis);
    const int32_t unit = stage_.buffer_of(op.in[whole_model ? 1 : 0]).unit;
    if (unit >= 0) {
      for (const UnitSegment& segment : stage_.program.units[unit].segments)
        axes |= AxesOf(stage_.plan.params[segment.param]);
    }
    // What every rank has counts in part on each: over the axis that others are cut along.
    if (whole_model && op.attrs.Get(Attr::kWrep) < op.attrs.Get(Attr::kWt)) {
      for (const Param& param : stage_.plan.params) axes |= AxesOf(param);
    }
    return RealAxes(mesh_, axes);
  }

  void Complete(ViewId view, Fault fault) {
    for (int32_t p = pieces_.begin[view]; p < pieces_.end[view]; ++p) {
      if (now_[p].must == 0) continue;
      Report(fault, fmt::format("reads {}, still a partial sum over {}",
                                stage_.program.views[view].name, Axes(now_[p].must)));
      return;
    }
  }

  void Report(Fault fault, const std::string& message) {
    findings_.Add(fault, stage_.program.stage,
                  WhereOp(stage_.program, variant_->block, op_, micro_batch_), message);
  }

  const Stage& stage_;
  const Mesh& mesh_;
  const Pieces& pieces_;
  Findings& findings_;
  const uint16_t all_, loss_axes_;
  std::vector<Sum> now_;       // by piece, while a block runs
  std::vector<uint16_t> raw_;  // by piece
  std::vector<Sum> step_;      // by piece of a step buffer, between calls
  std::vector<std::map<int32_t, Sum>>
      batch_;                     // by micro-batch: pieces that are not plain complete values
  std::vector<Touched> touched_;  // by variant
  std::vector<std::map<State, State>> known_;  // by variant
  std::vector<int64_t> settled_;  // by variant: version of the step state that it leaves alone
  int64_t version_ = 0;
  const Variant* variant_ = nullptr;
  int32_t op_ = 0, micro_batch_ = 0;
};

}  // namespace

void VerifyPartialSums(const std::vector<Stage>& stages, Findings* findings) {
  uint16_t data_axes = 0;  // over which the ranks load different samples, or positions of them
  for (const Stage& stage : stages) {
    for (const Block& block : stage.program.blocks) {
      for (const Op& op : block.ops) {
        if (op.kind == OpKind::kLoad && op.group >= 0)
          data_axes |= stage.plan.groups[op.group].axes;
        const int64_t axis = op.attrs.Int(Attr::kCp);
        if (op.kind == OpKind::kLoad && axis >= 0 &&
            axis < static_cast<int64_t>(stage.plan.mesh.axes.size()))
          data_axes |= static_cast<uint16_t>(1u << axis);
      }
    }
  }
  for (size_t s = 0; s < stages.size(); ++s) PartialPass(stages, s, data_axes, findings).Run();
}

}  // namespace orrery::ir
