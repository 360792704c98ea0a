// SPDX-License-Identifier: Apache-2.0
// Verify: the norm by which an optimizer clips, or finds that gradients are not finite, is that of all gradients of the model.
//
// An update reads the sum of squares, or its copy on the host. Before the first of them reads it, each piece of a gradient that an
// update of the stage takes has been added to it once, and it was not cleared since; of a tensor that two units hold, one
// counts. That ranks and stages are summed is the business of the partial sums.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

// Where an op is executed: call, place in its block.
struct Moment {
  int32_t call = 0, op = 0;
  auto operator<=>(const Moment&) const = default;
};

// How often a parameter counts.
struct Weight {
  bool squared = false;
  double times = 0;
  void Add(double weight) { squared = true, times += weight; }
};

class NormPass {
 public:
  NormPass(const Stage& stage, std::vector<Weight>* weights, Findings* findings)
      : stage_(stage), program_(stage.program), weights_(*weights), findings_(*findings) {}

  // False: no update of the stage reads a norm.
  bool Run() {
    const std::size_t variants = stage_.variants.size();
    executions_.assign(variants, 0), first_.assign(variants, -1), last_.assign(variants, -1);
    for (std::size_t c = 0; c < stage_.variant_of.size(); ++c) {
      const auto v = static_cast<std::size_t>(stage_.variant_of[c]);
      if (executions_[v]++ == 0) first_[v] = static_cast<int32_t>(c);
      last_[v] = static_cast<int32_t>(c);
    }
    Visit([this](const Variant& variant, std::size_t v, int32_t i) { Collect(variant, v, i); });
    Visit([this](const Variant& variant, std::size_t v, int32_t i) { Check(variant, v, i); });
    return !norms_.empty();
  }

 private:
  struct Square {
    BufferId norm;
    int32_t unit;
    int64_t begin, end;
    int times;
    Moment at;
  };

  template <class Function>
  void Visit(const Function& visit) {
    for (std::size_t v = 0; v < stage_.variants.size(); ++v) {
      if (executions_[v] == 0) continue;
      for (const int32_t i : stage_.variants[v].ops) visit(stage_.variants[v], v, i);
    }
  }

  BufferId BufferOf(ViewId view) const {
    return program_.views[static_cast<std::size_t>(view)].buffer;
  }

  void Collect(const Variant& variant, std::size_t v, int32_t i) {
    const Op& op = stage_.op(variant, i);
    if (op.kind == OpKind::kCopy && stage_.buffer_of(op.in[0]).cls == BufferClass::kScalar)
      copied_[BufferOf(op.out[0])] = BufferOf(op.in[0]);
    if (op.kind == OpKind::kZero) {
      Moment& cleared = cleared_[BufferOf(op.out[0])];
      cleared = std::max(cleared, Moment{last_[v], i});
    }
    if (op.kind != OpKind::kSumSq) return;
    const View& gradient = program_.views[static_cast<std::size_t>(op.in[1])];
    const int32_t unit = stage_.buffer_of(op.in[1]).unit;
    squares_.push_back({BufferOf(op.out[0]),
                        unit,
                        gradient.offset,
                        gradient.offset + gradient.elements,
                        executions_[v],
                        {first_[v], i}});
    if (unit < 0) return;
    for (const UnitSegment& segment : program_.units[static_cast<std::size_t>(unit)].segments)
      weights_[static_cast<std::size_t>(segment.param)].Add(op.attrs.Get(Attr::kWt));
  }

  void Check(const Variant& variant, std::size_t v, int32_t i) {
    const Op& op = stage_.op(variant, i);
    if (!ReadsGradient(op.kind)) return;
    const auto optional = static_cast<std::size_t>(Info(op.kind).min_in);
    const auto report = [&](const std::string& message) {
      findings_.Add(Fault::kCoverage, program_.stage, WhereOp(program_, variant.block, i), message);
    };
    if (op.in.size() <= optional) {
      if (op.attrs.Get(Attr::kClip) > 0)
        report(fmt::format("clips to a norm of {} and reads none", op.attrs.Get(Attr::kClip)));
      return;
    }
    BufferId norm = BufferOf(op.in[optional]);
    if (const auto found = copied_.find(norm); found != copied_.end()) norm = found->second;
    norms_[norm] = std::min(norms_.try_emplace(norm, Moment{first_[v], i}).first->second,
                            Moment{first_[v], i});
    if (const auto fault = Lacks(op, norm, {first_[v], i})) report(*fault);
  }

  // What the norm lacks of the gradient of an update.
  std::optional<std::string> Lacks(const Op& update, BufferId norm, const Moment& read) const {
    const View& gradient = program_.views[static_cast<std::size_t>(update.in[0])];
    const int32_t unit = stage_.buffer_of(update.in[0]).unit;
    const std::string& name = program_.buffers[static_cast<std::size_t>(norm)].name;
    const auto cleared = cleared_.find(norm);
    std::vector<std::pair<int64_t, int64_t>> counted;
    for (const Square& square : squares_) {
      if (square.norm != norm || square.unit != unit || !(square.at < read)) continue;
      if (cleared != cleared_.end() && square.at < cleared->second && cleared->second < read)
        return fmt::format("reads the norm {}, which was cleared after {} was added", name,
                           gradient.name);
      if (square.times != 1)
        return fmt::format("reads the norm {}, to which {} is added {} times", name, gradient.name,
                           square.times);
      counted.emplace_back(square.begin, square.end);
    }
    std::sort(counted.begin(), counted.end());
    int64_t end = gradient.offset;
    const int64_t needed = gradient.offset + gradient.elements;
    for (const auto& [from, to] : counted) {
      if (to <= end && to <= gradient.offset) continue;
      if (from >= needed || from > end) break;
      if (from < end && end > gradient.offset)
        return fmt::format("reads the norm {}, to which elements {} to {} of {} are added twice",
                           name, from, end, gradient.name);
      end = std::max(end, to);
    }
    if (end >= needed) return std::nullopt;
    return fmt::format("reads the norm {}, which lacks the squares of elements {} to {} of {}",
                       name, end, needed, gradient.name);
  }

  const Stage& stage_;
  const Program& program_;
  std::vector<Weight>& weights_;  // by parameter
  Findings& findings_;
  std::vector<int> executions_;                 // by variant
  std::vector<int32_t> first_, last_;           // by variant: calls
  std::map<BufferId, BufferId> copied_;         // scalars, from where
  std::map<BufferId, Moment> cleared_, norms_;  // last; first read
  std::vector<Square> squares_;
};

}  // namespace

void VerifyNorm(const std::vector<Stage>& stages, Findings* findings) {
  const Plan& plan = stages[0].plan;
  std::vector<Weight> weights(plan.params.size());
  bool reads = false;
  for (const Stage& stage : stages) reads = NormPass(stage, &weights, findings).Run() || reads;
  if (!reads) return;
  std::map<int, double> tied;  // over the copies that stages hold
  for (std::size_t p = 0; p < weights.size(); ++p) {
    if (plan.params[p].tie >= 0) tied[plan.params[p].tie] += weights[p].times;
  }
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const Param& param = plan.params[p];
    const double times = param.tie >= 0 ? tied[param.tie] : weights[p].times;
    if (!weights[p].squared || times == 1) continue;
    findings->Add(Fault::kCoverage, 0, param.name,
                  fmt::format("counts {} times in the norm of the gradients", times));
  }
}

}  // namespace orrery::ir
