// SPDX-License-Identifier: Apache-2.0
// Orders the passes of all stages by what they wait for.
#include "model/engine/closed/pass_graph.h"

#include <algorithm>

namespace orrery {
namespace {

constexpr std::size_t kMostGraphPasses = 400'000;  // kept; 32 bytes each
constexpr int kNone = -1;

class GraphMaker {
 public:
  explicit GraphMaker(const PassGraphKey& key) : key_(key) {
    graph_.passes.emplace_back();
    graph_.of_stage.resize(key.stages);
    of_chunk_.resize(std::size_t{1} * key.stages * key.chunks);
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
    int latest = 0;  // its pass
  };
  // The pass of a virtual stage; kNone: not ordered yet.
  int Number(int virtual_stage, int kind, int micro_batch) const {
    const std::vector<int>& ordered = of_chunk_[virtual_stage][kind];
    return micro_batch < static_cast<int>(ordered.size()) ? ordered[micro_batch] : kNone;
  }
  int Place(int stage, int chunk) const {
    return VirtualStage(key_.order.in_a_v, key_.stages, stage, chunk);
  }
  // The virtual stage that a pass has its tensor from (step -1 of forward passes), or that has its own.
  bool HasNeighbour(int place, int kind, int step) const {
    if (kind == PassCall::kWeightGrad) return false;
    const int other = place + (kind == PassCall::kForward ? step : -step);
    if (other < 0 || other == key_.stages * key_.chunks) return false;
    return ChunkAt(key_.order.in_a_v, key_.stages, other).stage !=
           ChunkAt(key_.order.in_a_v, key_.stages, place).stage;
  }

  // Gradients have two slots; tensors, where a stage has one chunk, one more than forward passes run ahead.
  int SlotOfReceived(int place, int stage, const PassCall& pass) const {
    int user = -1;
    if (pass.kind == PassCall::kBackward) {
      user = pass.micro_batch - 2;
    } else if (key_.chunks == 1) {
      user = pass.micro_batch - graph_.ahead[stage] - 2;
    }
    return user < 0 ? 0 : std::max(0, Number(place, PassCall::kBackward, user));
  }

  bool Advance(int stage) {
    StageState& state = states_[stage];
    if (state.ended) return false;
    const PassCall call = state.next;
    const int place = Place(stage, call.chunk), forth = call.kind == PassCall::kForward ? 1 : -1;
    const bool receives = HasNeighbour(place, call.kind, -1);
    const bool head = call.kind == PassCall::kBackward && place + 1 == key_.stages * key_.chunks;
    const int sender = receives ? Number(place - forth, call.kind, call.micro_batch)
                       : head   ? Number(place, PassCall::kForward, call.micro_batch)
                                : 0;
    // What the second pass before it sent has arrived: it has two slots.
    const bool waits = HasNeighbour(place, call.kind, 1) && call.micro_batch >= 2;
    const int sent = waits ? Number(place + forth, call.kind, call.micro_batch - 2) : 0;
    if (sender == kNone || sent == kNone) return false;
    std::vector<int>& ordered = graph_.of_stage[stage][call.kind];
    PassGraph::Pass pass;
    pass.stage = static_cast<int16_t>(stage);
    pass.work = place * 3 + call.kind;
    const bool back = key_.order.in_a_v && call.chunk == 1;
    pass.hop = static_cast<int16_t>(stage * 2 + ((call.kind == PassCall::kBackward) != back));
    pass.receives = receives;
    pass.loads = stage == 0 && call.chunk == 0 && call.kind == PassCall::kForward;
    pass.first = call.kind == PassCall::kForward && call.micro_batch == 0;
    pass.last = call.kind == PassCall::kBackward && call.micro_batch == key_.micro_batches - 1;
    pass.sender = sender;
    std::vector<int>& of_chunk = of_chunk_[place][call.kind];
    const std::vector<int>& queue =
        key_.order.in_a_v ? of_chunk : ordered;  // messages of a V have two
    pass.before = queue.empty() ? 0 : queue.back();
    pass.received = pass.receives ? SlotOfReceived(place, stage, call) : 0;
    pass.sent = sent;
    ordered.push_back(static_cast<int>(graph_.passes.size()));
    of_chunk.push_back(ordered.back());
    if (state.latest > 0 && receives) graph_.passes[state.latest].next = pass.work;
    state.latest = static_cast<int>(graph_.passes.size());
    graph_.passes.push_back(pass);
    state.ended = state.order.done();
    if (!state.ended) state.next = state.order.Next();
    return true;
  }

  const PassGraphKey key_;
  PassGraph graph_;
  std::vector<StageState> states_;
  std::vector<std::array<std::vector<int>, 3>> of_chunk_;  // by virtual stage and kind
};

}  // namespace

PassGraph MakePassGraph(const PassGraphKey& key) { return GraphMaker(key).Make(); }

const PassGraph& PassGraphs::Of(const PassGraphKey& key) {
  const std::array<int, 7> number = {key.order.forward_first,
                                     key.order.interleaved,
                                     key.order.fills_bubble,
                                     key.order.in_a_v,
                                     key.stages,
                                     key.chunks,
                                     key.micro_batches};
  const auto found = kept_.find(number);
  if (found != kept_.end()) return found->second;
  PassGraph graph = MakePassGraph(key);
  passes_ += graph.passes.size();
  if (passes_ > kMostGraphPasses) {
    kept_.clear();
    passes_ = graph.passes.size();
  }
  return kept_.emplace(number, std::move(graph)).first->second;
}

}  // namespace orrery
