// SPDX-License-Identifier: Apache-2.0
// Verify, pass 4: all members of a communicator issue the same collectives in the same order; every
// send meets its receive. Ranks of one stage run one program, so only what crosses stages, or runs
// around a ring, can differ.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

// One executed communication op, as its partners must see it.
struct Issue {
  OpKind kind;
  int64_t bytes;
  Dtype dtype;
  int32_t tag;
  int32_t reduce_op;
  int32_t micro_batch;
  int32_t block, op;
  uint8_t stream;
};

struct Communicator {
  int group;
  uint8_t stream;
  auto operator<=>(const Communicator&) const = default;
};
class MatchingPass {
 public:
  MatchingPass(const std::vector<Stage>& stages, Findings* findings)
      : stages_(stages), plan_(stages[0].plan), findings_(*findings) {}

  void Run() {
    collectives_.resize(stages_.size());
    for (size_t s = 0; s < stages_.size(); ++s) Collect(s);
    for (size_t g = 0; g < plan_.groups.size(); ++g) {
      if (CrossesStages(plan_, static_cast<int>(g))) CompareGroup(static_cast<int>(g));
    }
    for (const auto& [channel, sends] : sends_) ComparePair(channel, sends, receives_[channel]);
    for (const auto& [channel, receives] : receives_) {
      if (!sends_.contains(channel)) ComparePair(channel, {}, receives);
    }
  }

 private:
  void Collect(size_t s) {
    const Stage& stage = stages_[s];
    struct Filed {  // where the issues of one op go
      Issue issue;
      std::vector<Issue>* list;
    };
    std::vector<std::vector<Filed>> of_variant;
    for (const Variant& variant : stage.variants) {
      of_variant.emplace_back();
      for (int32_t i : variant.ops) {
        const Op& op = stage.op(variant, i);
        const OpClass cls = Info(op.kind).op_class;
        if (cls != OpClass::kPointToPoint &&
            !(cls == OpClass::kCollective && CrossesStages(plan_, op.group)))
          continue;
        const ViewId view = op.in.empty() ? op.out[0] : op.in[0];
        of_variant.back().push_back(
            {{op.kind, stage.ViewBytes(view), stage.buffer_of(view).dtype, op.tag,
              static_cast<int32_t>(op.attrs.Int(Attr::kReduceOp)), 0, variant.block, i, op.stream},
             ListOf(s, op)});
      }
    }
    for (size_t c = 0; c < stage.layout.calls.size(); ++c) {
      for (const Filed& filed : of_variant[stage.variant_of[c]]) {
        filed.list->push_back(filed.issue);
        filed.list->back().micro_batch = stage.layout.calls[c].micro_batch;
      }
    }
  }

  std::vector<Issue>* ListOf(size_t s, const Op& op) {
    if (Info(op.kind).op_class == OpClass::kCollective)
      return &collectives_[s][{op.group, op.stream}];
    auto& side = op.kind == OpKind::kSend ? sends_ : receives_;
    return &side[ChannelOf(plan_.mesh, static_cast<int>(s), op)];
  }

  void CompareGroup(int group) {
    int reference = -1;
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (!IsMember(plan_, group, static_cast<int>(s))) {
        for (const auto& [key, issues] : collectives_[s]) {
          if (key.group == group)
            Report(s, issues[0],
                   fmt::format("takes part in {}, of which its stage is no member",
                               plan_.groups[group].name));
        }
      } else if (reference < 0) {
        reference = static_cast<int>(s);
      } else {
        CompareStages(group, static_cast<size_t>(reference), s);
      }
    }
  }

  void CompareStages(int group, size_t a, size_t b) {
    for (size_t stream = 0; stream < plan_.streams.size(); ++stream) {
      const auto left = collectives_[a].find({group, static_cast<uint8_t>(stream)});
      const auto right = collectives_[b].find({group, static_cast<uint8_t>(stream)});
      static const std::vector<Issue> kNone;
      const auto& x = left == collectives_[a].end() ? kNone : left->second;
      const auto& y = right == collectives_[b].end() ? kNone : right->second;
      const std::string comm =
          fmt::format("{} on stream {}", plan_.groups[group].name, plan_.streams[stream]);
      for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        if (const char* what = Difference(x[i], y[i])) {
          Report(
              b, y[i],
              fmt::format("collective {} of {} differs from stage {}'s in {}", i, comm, a, what));
          break;
        }
      }
      if (x.size() > y.size())
        Report(a, x[y.size()],
               fmt::format("is collective {} of {}; stage {} issues only {}", y.size(), comm, b,
                           y.size()));
      if (x.size() < y.size())
        Report(b, y[x.size()],
               fmt::format("is collective {} of {}; stage {} issues only {}", x.size(), comm, a,
                           x.size()));
    }
  }

  static const char* Difference(const Issue& a, const Issue& b) {
    if (a.kind != b.kind) return "kind";
    if (a.bytes != b.bytes) return "bytes";
    if (a.dtype != b.dtype) return "type";
    if (a.reduce_op != b.reduce_op) return "operation";
    return a.tag != b.tag ? "call site (tag)" : nullptr;
  }

  void ComparePair(const Channel& channel, const std::vector<Issue>& sends,
                   const std::vector<Issue>& receives) {
    const bool between = channel.axis == plan_.mesh.program_axis;
    const int size = plan_.mesh.axes[channel.axis].size;
    const auto from = static_cast<size_t>(channel.from);
    const auto to =
        between ? static_cast<size_t>(((channel.from + channel.delta) % size + size) % size) : from;
    auto p2p = [&](Fault fault, size_t stage, const Issue& issue, const std::string& message) {
      findings_.Add(fault, stages_[stage].program.stage, Where(stage, issue), message);
    };
    for (size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      const Issue &a = sends[i], &b = receives[i];
      if (a.bytes != b.bytes)
        p2p(Fault::kShape, to, b,
            fmt::format("receives {} bytes of the {} that stage {} sends", b.bytes, a.bytes, from));
      if (a.stream != sends[0].stream)
        p2p(Fault::kP2pMismatch, from, a, "one channel on two sending streams has no order");
      if (b.stream != receives[0].stream)
        p2p(Fault::kP2pMismatch, to, b, "one channel on two receiving streams has no order");
      const char* what = a.micro_batch != b.micro_batch ? "micro-batch"
                         : a.tag != b.tag               ? "call site (tag)"
                         : a.dtype != b.dtype           ? "type"
                                                        : nullptr;
      if (what == nullptr) continue;
      p2p(Fault::kP2pMismatch, to, b,
          fmt::format("receive {} from stage {} differs in {} from {}", i, from, what,
                      Where(from, a)));
      return;
    }
    if (sends.size() > receives.size())
      p2p(Fault::kP2pMismatch, from, sends[receives.size()],
          fmt::format("stage {} does not receive this", to));
    if (sends.size() < receives.size())
      p2p(Fault::kP2pMismatch, to, receives[sends.size()],
          fmt::format("stage {} does not send this", from));
  }

  std::string Where(size_t s, const Issue& issue) const {
    return WhereOp(stages_[s].program, issue.block, issue.op, issue.micro_batch);
  }
  void Report(size_t s, const Issue& issue, const std::string& message) {
    findings_.Add(Fault::kCollectiveMismatch, stages_[s].program.stage, Where(s, issue), message);
  }

  const std::vector<Stage>& stages_;
  const Plan& plan_;
  Findings& findings_;
  std::vector<std::map<Communicator, std::vector<Issue>>>
      collectives_;  // by stage; only those that cross stages
  std::map<Channel, std::vector<Issue>> sends_, receives_;
};

}  // namespace

void VerifyMatching(const std::vector<Stage>& stages, Findings* findings) {
  MatchingPass(stages, findings).Run();
}

}  // namespace orrery::ir
