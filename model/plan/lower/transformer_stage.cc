// SPDX-License-Identifier: Apache-2.0
// The chunks of one pipeline stage of a decoder or encoder: receive, layers, send, and the way back.
#include <algorithm>

#include "model/plan/lower/ends.h"

namespace orrery {

using ir::Life;
using ir::LoadWhat;
using ir::Phase;
using ir::Segment;
using ir::ViewId;

namespace {

struct Chunk {
  int index = 0;  // of this stage
  int virtual_stage = 0;
  bool first = false, last = false;
  // What lies before and behind it is on this stage.
  bool from_here = false, to_here = false;
  bool passed_on = false;  // to_here, and the chunk behind it sends what it gets: it holds no layer
  int forth = 1;           // to the stage of the chunk behind it
  bool back = false;       // the way back of a V
  LayerRange range;
  std::vector<std::vector<Layer>> units;  // layers of each flat unit
};

std::vector<Chunk> MakeChunks(StageBuilder& stage) {
  const LowerContext& ctx = stage.ctx();
  std::vector<Chunk> chunks(ctx.strategy.vpp);
  for (int c = 0; c < ctx.strategy.vpp; ++c) {
    Chunk& chunk = chunks[c];
    chunk.index = c;
    const bool in_a_v = ctx.strategy.schedule == PipelineSchedule::kZeroBubbleV;
    chunk.virtual_stage = VirtualStage(in_a_v, ctx.strategy.pp, stage.stage(), c);
    if (in_a_v) {
      const bool turn = stage.stage() + 1 == ctx.strategy.pp;
      chunk.back = c == 1;
      (chunk.back ? chunk.from_here : chunk.to_here) = turn;
      // A second queue to the same neighbour: once around the axis more.
      if (chunk.back) chunk.forth = -1 - ctx.strategy.pp;
    }
    chunk.first = chunk.virtual_stage == 0;
    chunk.last = chunk.virtual_stage + 1 == static_cast<int>(ctx.chunks.size());
    chunk.range = ctx.chunks[chunk.virtual_stage];
    chunk.passed_on = chunk.to_here && ctx.chunks[chunk.virtual_stage + 1].count == 0;
    for (int64_t at = 0; at < chunk.range.count; at += ctx.strategy.bucket_layers) {
      const int64_t count = std::min<int64_t>(ctx.strategy.bucket_layers, chunk.range.count - at);
      chunk.units.push_back(AddLayerUnit(stage, static_cast<int>(chunk.range.first + at),
                                         static_cast<int>(count), false, ParamRef{}, at));
    }
  }
  return chunks;
}

class StageEmitter {
 public:
  StageEmitter(StageBuilder& stage, const EndParams& ends)
      : stage_(stage), ends_(ends), ctx_(stage.ctx()) {}

  void Forward(const Chunk& chunk) {
    stage_.SelectBlock(Numbers().Forward(chunk.index));
    stage_.Label(Phase::kForward, Segment::kLayer);
    if (chunk.first) {
      EmbeddingForward(stage_, ends_, LoadWhat::kTokens, "", Stream(chunk, chunk.range.first));
    } else if (!chunk.from_here) {
      stage_.RecvBoundary(Stream(chunk, chunk.range.first), -chunk.forth,
                          ctx_.StreamOf(kRecvAct, chunk.back), chunk.virtual_stage);
    }
    for (const auto& unit : chunk.units) {
      for (const Layer& layer : unit) {
        stage_.Label(Phase::kForward, Segment::kLayer, layer.index);
        LayerForward(stage_, layer, ForwardPrefix(layer), Stream(chunk, layer.index),
                     Stream(chunk, layer.index + 1), -1, false);
      }
    }
    if (chunk.last || chunk.to_here) return;
    stage_.Label(Phase::kForward, Segment::kLayer);
    stage_.SendBoundary(Stream(chunk, End(chunk)), chunk.forth, ctx_.StreamOf(kSendAct, chunk.back),
                        chunk.virtual_stage + 1);
  }

  void Backward(const Chunk& chunk) {
    stage_.SelectBlock(Numbers().Backward(chunk.index));
    stage_.Label(Phase::kBackward, Segment::kLayer);
    if (!ctx_.NeedsStreamGrad(End(chunk))) return;
    if (chunk.last) {
      HeadForwardBackward(stage_, ends_, Stream(chunk, End(chunk)), StreamGrad(chunk, End(chunk)));
    } else if (!chunk.to_here) {
      stage_.RecvBoundary(StreamGrad(chunk, End(chunk)), chunk.forth,
                          ctx_.StreamOf(kRecvGrad, chunk.back), chunk.virtual_stage + 1);
    }
    for (auto unit = chunk.units.rbegin(); unit != chunk.units.rend(); ++unit)
      BackwardUnit(chunk, *unit);
    if (!ctx_.NeedsStreamGrad(chunk.range.first)) return;
    if (chunk.first) {
      EmbeddingBackward(stage_, ends_, LoadWhat::kTokens, "", StreamGrad(chunk, chunk.range.first),
                        WeightGradBlock(chunk), true);
    } else if (!chunk.from_here) {
      stage_.Label(Phase::kBackward, Segment::kLayer);
      stage_.SendBoundary(StreamGrad(chunk, chunk.range.first), -chunk.forth,
                          ctx_.StreamOf(kSendGrad, chunk.back), chunk.virtual_stage);
    }
  }

 private:
  BlockNumbers Numbers() const { return {ctx_.strategy.vpp, ctx_.split_backward()}; }
  int WeightGradBlock(const Chunk& chunk) const {
    return ctx_.split_backward() ? Numbers().WeightGrad(chunk.index)
                                 : Numbers().Backward(chunk.index);
  }
  static int64_t End(const Chunk& chunk) { return chunk.range.first + chunk.range.count; }

  void BackwardUnit(const Chunk& chunk, const std::vector<Layer>& unit) {
    InWeightGradBlock(stage_, WeightGradBlock(chunk), [&] {
      stage_.Label(Phase::kWeightGrad, Segment::kLayer, unit.back().index);
      for (const int trained : unit.front().units) stage_.BeginGrad(trained);
    });
    for (auto layer = unit.rbegin(); layer != unit.rend(); ++layer) {
      stage_.Label(Phase::kBackward, Segment::kLayer, layer->index);
      const ViewId dx =
          ctx_.NeedsStreamGrad(layer->index) ? StreamGrad(chunk, layer->index) : ViewId{-1};
      LayerBackward(stage_, *layer, Stream(chunk, layer->index),
                    StreamGrad(chunk, layer->index + 1), dx, -1, -1, WeightGradBlock(chunk));
    }
    InWeightGradBlock(stage_, WeightGradBlock(chunk), [&] {
      for (const int trained : unit.front().units) stage_.EndGrad(trained, true);
    });
  }

  // Of a chunk's output and of its gradient.
  static bool GoesOut(const Chunk& chunk) {
    return !chunk.last && (!chunk.to_here || chunk.passed_on);
  }

  // Residual stream in front of layer `index`; a chunk's own input and output at its two ends. A chunk without a layer sends
  // what it has received.
  ViewId Stream(const Chunk& chunk, int64_t index) {
    const bool received = index == chunk.range.first && !chunk.first && !chunk.from_here;
    const bool sent = index == End(chunk) && GoesOut(chunk);
    return Boundary((sent ? "y" : "x") + std::to_string(index), received, sent);
  }

  ViewId StreamGrad(const Chunk& chunk, int64_t index) {
    const bool received = index == End(chunk) && GoesOut(chunk);
    const bool sent = index == chunk.range.first && !chunk.first && !chunk.from_here;
    return Boundary((received ? "d.y" : "d.x") + std::to_string(index), received, sent);
  }

  // What is sent or received itself lives as long as a micro-batch and has slack; so do the parts of a
  // scattered tensor, and then the tensor is like any other.
  ViewId Boundary(const std::string& name, bool received, bool sent) {
    const bool whole = (received || sent) && !ctx_.scatter_gather();
    const int extra = received ? ctx_.strategy.recv_slots : sent ? ctx_.strategy.send_slots - 1 : 0;
    return stage_.Make(name, ctx_.ShardRows() * ctx_.model.hidden, ctx_.activation,
                       ir::BufferClass::kActivation, whole ? Life::kMicroBatch : Life::kDerived,
                       whole ? extra : 0);
  }

  StageBuilder& stage_;
  const EndParams& ends_;
  const LowerContext& ctx_;
};

}  // namespace

void EmitTransformerStage(StageBuilder& stage) {
  EndParams ends;
  if (stage.stage() == 0) AddEmbeddingUnits(stage, ends);
  const std::vector<Chunk> chunks = MakeChunks(stage);
  if (std::ranges::any_of(chunks, &Chunk::last)) AddHeadUnits(stage, ends);
  StageEmitter emitter(stage, ends);
  for (const Chunk& chunk : chunks) emitter.Forward(chunk);
  for (const Chunk& chunk : chunks) emitter.Backward(chunk);
}

}  // namespace orrery
