// SPDX-License-Identifier: Apache-2.0
// Verify: sequences that ranks share. All rows stand in one order; a query meets the keys of every rank once; what each
// rank adds to a gradient of keys and values reaches the rank that holds them.
//
// The ranks of a ring run one program, so what a rank receives is what it has sent, from another rank: keys that have
// travelled k hops belong to the rank k before this one.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

constexpr int64_t kAll = -1;  // of all ranks

// What a buffer holds of the keys and values of another rank, or of their gradient.
struct Travelling {
  int64_t hops = 0;         // the rank so many before this one holds them; kAll
  std::set<int64_t> parts;  // of a gradient: steps whose queries have added to it
};

bool Positional(const Op& op) {
  switch (op.kind) {
    case OpKind::kLoad:
      return op.attrs.Get(Attr::kH) == 0;
    case OpKind::kAddPos:
    case OpKind::kPosBwd:
    case OpKind::kRope:
    case OpKind::kPartAttn:
    case OpKind::kPartAttnBwd:
      return true;
    case OpKind::kDropout:
    case OpKind::kBiasResidual:
    case OpKind::kQuantize:
      return Draws(op.attrs);
    default:
      return false;
  }
}

bool AttendsToPart(OpKind kind) {
  return kind == OpKind::kPartAttn || kind == OpKind::kPartAttnBwd;
}

class ContextPass {
 public:
  ContextPass(const Plan& plan, Findings* findings) : plan_(plan), findings_(*findings) {}

  void Run() {
    ForEach([&](const Op& op) { shared_ = shared_ || op.attrs.Int(Attr::kCp) >= 0; });
    if (!shared_) return;
    ForEach([&](const Op& op) { CheckOrder(op); });
    for (const Program& program : plan_.programs) {
      program_ = &program;
      for (size_t b = 0; b < program.blocks.size(); ++b) WalkBlock(static_cast<int32_t>(b));
    }
  }

 private:
  template <class Visit>
  void ForEach(Visit visit) {
    for (const Program& program : plan_.programs) {
      program_ = &program;
      for (size_t b = 0; b < program.blocks.size(); ++b) {
        block_ = static_cast<int32_t>(b);
        for (size_t i = 0; i < program.blocks[b].ops.size(); ++i) {
          op_ = static_cast<int32_t>(i);
          visit(program.blocks[b].ops[i]);
        }
      }
    }
  }

  void Report(Fault fault, const std::string& message) {
    findings_.Add(fault, program_->stage, WhereOp(*program_, block_, op_), message);
  }

  // Rows in one order everywhere: as many positions in all, zigzag or not.
  void CheckOrder(const Op& op) {
    const int64_t axis = op.attrs.Int(Attr::kCp);
    if (!Positional(op) && axis < 0) return;
    if (axis < 0)
      return Report(Fault::kShape,
                    "takes its rows for a whole sequence, of which ranks hold parts");
    if (axis >= static_cast<int64_t>(plan_.mesh.axes.size()))
      return Report(Fault::kShape, "positions over no axis of the mesh");
    const int64_t parts = op.attrs.Int(Attr::kParts), part = op.attrs.Int(Attr::kPart);
    const bool zigzag = op.attrs.Get(Attr::kZigzag) != 0;
    if (parts != plan_.mesh.axes[static_cast<size_t>(axis)].size || part < 1 ||
        (zigzag && part % 2 != 0))
      return Report(Fault::kShape, fmt::format("{} parts of {} positions do not fit the {} ranks",
                                               parts, part, plan_.mesh.axes[axis].size));
    if (AttendsToPart(op.kind) && !KeysFit(op, part, parts))
      return Report(Fault::kShape, "queries and keys are not those of its step");
    if (!Positional(op)) return;
    if (!whole_) whole_ = parts * part, zigzag_ = zigzag;
    if (*whole_ != parts * part)
      Report(Fault::kShape,
             fmt::format("a sequence of {} positions where others have {}", parts * part, *whole_));
    if (zigzag_ != zigzag)
      Report(Fault::kShape, zigzag ? "reads rows in zigzag order, written in sequence order"
                                   : "reads rows in sequence order, written in zigzag order");
  }

  static bool KeysFit(const Op& op, int64_t part, int64_t parts) {
    const int64_t step = op.attrs.Int(Attr::kStep);
    return step >= kAll && step < parts && op.attrs.Int(Attr::kSeq) == part &&
           op.attrs.Int(Attr::kSeqKv) == (step == kAll ? parts : 1) * part;
  }

  void WalkBlock(int32_t block) {
    block_ = block;
    held_.clear(), sent_.clear(), open_.clear();
    const auto& ops = program_->blocks[block].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      op_ = static_cast<int32_t>(i);
      Apply(ops[i]);
    }
    while (!open_.empty()) Close(open_.begin());
  }

  BufferId BufferOf(ViewId view) const { return program_->views[view].buffer; }

  void Apply(const Op& op) {
    switch (op.kind) {
      case OpKind::kKeyValues:
        if (op.attrs.Get(Attr::kInverse) == 0) {
          held_[BufferOf(op.out[0])] = {};
        } else {
          ArriveHome(BufferOf(op.in[1]));
        }
        return;
      case OpKind::kSend:
        if (const auto at = held_.find(BufferOf(op.in[0])); at != held_.end())
          sent_[{op.peer.axis, op.tag}] = at->second;
        return;
      case OpKind::kRecv:
        return Receive(op);
      case OpKind::kAllGather:
        if (held_.contains(BufferOf(op.in[0]))) held_[BufferOf(op.out[0])] = {kAll, {}};
        return;
      case OpKind::kAdd:
        return Add(op);
      case OpKind::kPartAttn:
        return Attend(op, op.in[1], op.out[1]);
      case OpKind::kPartAttnBwd:
        held_[BufferOf(op.out[0])] = {op.attrs.Int(Attr::kStep), {op.attrs.Int(Attr::kStep)}};
        return Attend(op, op.in[2], op.out[1]);
      default:
        for (ViewId view : op.out) held_.erase(BufferOf(view));
    }
  }

  void Receive(const Op& op) {
    const auto at = sent_.find({op.peer.axis, op.tag});
    if (at == sent_.end()) return;
    Travelling arrived = at->second;
    if (arrived.hops != kAll) arrived.hops = Around(op.peer.axis, arrived.hops - op.peer.delta);
    held_[BufferOf(op.out[0])] = std::move(arrived);
  }

  int64_t Around(int axis, int64_t hops) const {
    const int size = plan_.mesh.axes[static_cast<size_t>(axis)].size;
    return (hops % size + size) % size;
  }

  void Add(const Op& op) {
    const auto a = held_.find(BufferOf(op.in[0])), b = held_.find(BufferOf(op.in[1]));
    if (a == held_.end() || b == held_.end()) return;
    Travelling sum = a->second;
    if (sum.hops != b->second.hops)
      Report(Fault::kPartialGradient,
             fmt::format("adds gradients of the keys of ranks {} and {} before this one", sum.hops,
                         b->second.hops));
    for (const int64_t step : b->second.parts) {
      if (!sum.parts.insert(step).second)
        Report(Fault::kDoubleReduce, fmt::format("adds the part of step {} twice", step));
    }
    held_[BufferOf(op.out[0])] = std::move(sum);
  }

  // A step of a chain that starts without acc and fills `result`.
  void Attend(const Op& op, ViewId kv, ViewId result) {
    const int64_t step = op.attrs.Int(Attr::kStep), parts = op.attrs.Int(Attr::kParts);
    if (const auto at = held_.find(BufferOf(kv)); at != held_.end() && at->second.hops != step)
      Report(Fault::kPartialRead,
             fmt::format("its keys are those of the rank {} before this one, its step says {}",
                         at->second.hops, step));
    auto chain = open_.find(BufferOf(result));
    if (op.attrs.Get(Attr::kAcc) == 0) {
      if (chain != open_.end()) Close(chain);
      chain = open_.insert_or_assign(BufferOf(result), Chain{parts, {}, op_}).first;
    } else if (chain == open_.end()) {
      return Report(Fault::kPartialRead, "merges with a step that is not there");
    }
    chain->second.last = op_;
    if (!chain->second.seen.insert(step).second)
      Report(Fault::kDoubleReduce, fmt::format("meets the keys of step {} twice", step));
    if (step == kAll || static_cast<int64_t>(chain->second.seen.size()) == parts)
      open_.erase(chain);
  }

  struct Chain {
    int64_t parts;
    std::set<int64_t> seen;
    int32_t last;  // op
  };
  void Close(std::map<BufferId, Chain>::iterator chain) {
    std::swap(op_, chain->second.last);
    Report(Fault::kPartialRead, fmt::format("queries have met the keys of {} of {} ranks",
                                            chain->second.seen.size(), chain->second.parts));
    std::swap(op_, chain->second.last);
    open_.erase(chain);
  }

  // A gradient that one rank after another has added to.
  void ArriveHome(BufferId buffer) {
    const auto at = held_.find(buffer);
    if (at == held_.end() || at->second.hops == kAll || at->second.parts.empty()) return;
    const int64_t parts = PartsOf();
    if (at->second.hops % parts == 0 && static_cast<int64_t>(at->second.parts.size()) == parts)
      return;
    Report(Fault::kPartialGradient,
           fmt::format("takes the gradient of the keys of the rank {} before this one, with the "
                       "parts of {} of {} ranks",
                       at->second.hops, at->second.parts.size(), parts));
  }
  // Ranks of the chain that wrote last.
  int64_t PartsOf() const {
    const auto& ops = program_->blocks[block_].ops;
    for (int32_t i = op_; i-- > 0;) {
      if (AttendsToPart(ops[i].kind)) return std::max<int64_t>(1, ops[i].attrs.Int(Attr::kParts));
    }
    return 1;
  }

  const Plan& plan_;
  Findings& findings_;
  const Program* program_ = nullptr;
  int32_t block_ = 0, op_ = 0;
  bool shared_ = false, zigzag_ = false;
  std::optional<int64_t> whole_;  // positions of a sequence
  std::map<BufferId, Travelling> held_;
  std::map<std::pair<int, int32_t>, Travelling> sent_;  // by axis and tag
  std::map<BufferId, Chain> open_;                      // by what a chain of steps fills
};

}  // namespace

void VerifyContext(const std::vector<Stage>& stages, Findings* findings) {
  ContextPass(stages.front().plan, findings).Run();
}

}  // namespace orrery::ir
