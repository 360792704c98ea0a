// SPDX-License-Identifier: Apache-2.0
// Orders the passes of all stages by what they wait for.
#include "model/engine/closed/pass_graph.h"

#include <algorithm>

namespace orrery {
namespace {

constexpr std::size_t kMostPasses = 400'000;  // kept; 40 bytes each
constexpr int kNone = -1;

class GraphMaker {
 public:
  explicit GraphMaker(const PassGraphKey& key) : key_(key) {
    graph_.passes.emplace_back();
    graph_.of_stage.resize(key.stages);
    for (int stage = 0; stage < key.stages; ++stage) {
      StageState& state = states_.emplace_back();
      state.order = PassOrder(key.order, key.stages, stage, key.chunks, key.micro_batches);
      state.next = state.order.Next();
      graph_.ahead.push_back(state.order.ahead());
    }
  }

  // Forward passes wait for stages before theirs, backward passes for those behind.
  PassGraph Make() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < key_.stages; ++stage)
        while (Advance(stage)) moved = true;
      for (int stage = key_.stages - 1; stage >= 0; --stage)
        while (Advance(stage)) moved = true;
    }
    return std::move(graph_);
  }

 private:
  struct StageState {
    PassOrder order;
    PassCall next;
    bool ended = false;
  };
  struct Neighbour {
    int stage = 0;
    bool wraps = false;  // from the last stage to the first one, or back
  };

  Neighbour Beside(int stage, int step) const {
    const int other = (stage + step + key_.stages) % key_.stages;
    return {other, other != stage + step};
  }
  // The number of the index-th pass of a kind; kNone: not ordered yet.
  int Number(int stage, int kind, int index) const {
    const std::vector<int>& ordered = graph_.of_stage[stage][kind];
    return index < static_cast<int>(ordered.size()) ? ordered[index] : kNone;
  }
  // The same pass of the micro-batch before; negative: none.
  int SameChunkBefore(int index) const {
    const int p = key_.stages;
    return key_.chunks == 1 || index % p > 0 ? index - 1 : index - p * key_.chunks + p - 1;
  }

  bool Receives(int stage, const PassCall& pass) const {
    if (pass.kind == PassCall::kForward) return stage > 0 || pass.chunk > 0;
    if (pass.kind == PassCall::kBackward)
      return stage + 1 < key_.stages || pass.chunk + 1 < key_.chunks;
    return false;
  }

  // 0: it receives nothing.
  int Sender(int stage, const PassCall& pass) const {
    if (!Receives(stage, pass)) return 0;
    const Neighbour sender = Beside(stage, pass.kind == PassCall::kForward ? -1 : 1);
    return Number(sender.stage, pass.kind, sender.wraps ? pass.index - key_.stages : pass.index);
  }

  // Gradients have two slots; tensors, where a stage has one chunk, one more than forward passes run ahead.
  int SlotOfReceived(int stage, const PassCall& pass) const {
    int user = -1;
    if (pass.kind == PassCall::kBackward) {
      user = SameChunkBefore(SameChunkBefore(pass.index));
    } else if (key_.chunks == 1) {
      user = pass.index - graph_.ahead[stage] - 2;
    }
    return user < 0 ? 0 : std::max(0, Number(stage, PassCall::kBackward, user));
  }

  // What the second pass before it sent has arrived: it has two slots.
  int SlotOfSent(int stage, const PassCall& pass) const {
    if (pass.kind == PassCall::kWeightGrad) return 0;
    const int index = SameChunkBefore(pass.index), user = index < 0 ? -1 : SameChunkBefore(index);
    if (user < 0) return 0;
    const int step = pass.kind == PassCall::kForward ? 1 : -1;
    const Neighbour receiver = Beside(stage, step);
    if (receiver.wraps && pass.chunk == (step > 0 ? key_.chunks - 1 : 0)) return 0;
    return Number(receiver.stage, pass.kind, receiver.wraps ? user + key_.stages : user);
  }

  bool Advance(int stage) {
    StageState& state = states_[stage];
    if (state.ended) return false;
    const PassCall call = state.next;
    const int sender = Sender(stage, call);
    const int sent = sender == kNone ? kNone : SlotOfSent(stage, call);
    if (sent == kNone) return false;
    std::vector<int>& ordered = graph_.of_stage[stage][call.kind];
    PassGraph::Pass pass;
    pass.stage = stage;
    pass.work = (call.chunk * key_.stages + stage) * 3 + call.kind;
    pass.hop = stage * 2 + (call.kind == PassCall::kBackward);
    pass.receives = Receives(stage, call);
    pass.loads = stage == 0 && call.chunk == 0 && call.kind == PassCall::kForward;
    pass.first = call.kind == PassCall::kForward && call.micro_batch == 0;
    pass.sender = sender;
    pass.before = ordered.empty() ? 0 : ordered.back();
    pass.received = pass.receives ? SlotOfReceived(stage, call) : 0;
    pass.sent = sent;
    ordered.push_back(static_cast<int>(graph_.passes.size()));
    graph_.passes.push_back(pass);
    state.ended = state.order.done();
    if (!state.ended) state.next = state.order.Next();
    return true;
  }

  const PassGraphKey key_;
  PassGraph graph_;
  std::vector<StageState> states_;
};

}  // namespace

PassGraph MakePassGraph(const PassGraphKey& key) { return GraphMaker(key).Make(); }

const PassGraph& PassGraphs::Of(const PassGraphKey& key) {
  const std::array<int, 6> number = {key.order.forward_first,
                                     key.order.interleaved,
                                     key.order.fills_bubble,
                                     key.stages,
                                     key.chunks,
                                     key.micro_batches};
  const auto found = kept_.find(number);
  if (found != kept_.end()) return found->second;
  PassGraph graph = MakePassGraph(key);
  passes_ += graph.passes.size();
  if (passes_ > kMostPasses) {
    kept_.clear();
    passes_ = graph.passes.size();
  }
  return kept_.emplace(number, std::move(graph)).first->second;
}

}  // namespace orrery
