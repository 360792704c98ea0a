// SPDX-License-Identifier: Apache-2.0
// Plain multi-layer perceptron with a mean squared error (Linear(20,1) of the PyTorch DDP tutorials).
#include <algorithm>

#include "model/plan/lower/ends.h"

namespace orrery {

using ir::Attr;
using ir::Init;
using ir::Life;
using ir::LoadWhat;
using ir::OpKind;
using ir::Phase;
using ir::Segment;
using ir::ViewId;

namespace {

struct LinearLayer {
  int64_t index, in, out;
  ParamRef w, b;
};

class MlpStage {
 public:
  explicit MlpStage(StageBuilder& stage)
      : stage_(stage), ctx_(stage.ctx()), range_(ctx_.chunks[stage.stage()]) {
    for (int64_t i = range_.first; i < range_.first + range_.count; ++i) AddLayer(i);
  }

  void Forward() {
    stage_.SelectBlock(Numbers().Forward(0));
    stage_.Label(Phase::kForward, Segment::kLayer);
    if (First()) {
      Load(X(0), LoadWhat::kFeatures, ctx_.model.in_features);
    } else {
      stage_.Recv(X(range_.first), -1, kRecvAct, stage_.stage());
    }
    for (const LinearLayer& layer : layers_) {
      stage_.Label(Phase::kForward, Segment::kLayer, static_cast<int>(layer.index));
      const ViewId sum = HasRelu(layer)
                             ? stage_.Act("h" + std::to_string(layer.index), batch() * layer.out)
                             : X(layer.index + 1);
      stage_.Matmul(sum, X(layer.index), stage_.Weight(layer.w), batch(), layer.out, layer.in,
                    false, true, false, layer.b ? stage_.Weight(layer.b) : -1);
      if (HasRelu(layer)) stage_.Emit(OpKind::kRelu, {X(layer.index + 1)}, {sum}, Elements(layer));
    }
    if (!Last()) stage_.Send(X(EndIndex()), 1, kSendAct, stage_.stage() + 1);
  }

  void Backward() {
    stage_.SelectBlock(Numbers().Backward(0));
    stage_.Label(Phase::kBackward, Segment::kHead);
    Last() ? Loss() : stage_.Recv(D(EndIndex()), 1, kRecvGrad, stage_.stage() + 1);
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) BackwardLayer(*layer);
    if (!First()) stage_.Send(D(range_.first), -1, kSendGrad, stage_.stage());
  }

 private:
  BlockNumbers Numbers() const { return {1, ctx_.split_backward()}; }
  bool First() const { return stage_.stage() == 0; }
  bool Last() const { return stage_.stage() + 1 == ctx_.strategy.pp; }
  int64_t batch() const { return ctx_.batch(); }
  int64_t EndIndex() const { return range_.first + range_.count; }
  bool HasRelu(const LinearLayer& layer) const { return layer.index + 1 < ctx_.model.layers; }
  int64_t Width(int64_t index) const {
    return index == 0                   ? ctx_.model.in_features
           : index == ctx_.model.layers ? ctx_.model.out_features
                                        : ctx_.model.hidden;
  }
  ir::Attrs Elements(const LinearLayer& layer) const {
    return {{Attr::kElements, double(batch() * layer.out)}};
  }

  void AddLayer(int64_t index) {
    LinearLayer layer{index, Width(index), Width(index + 1), {}, {}};
    const std::string base = "l" + std::to_string(index);
    std::vector<ParamDecl> decls{{base + ".w", {layer.out, layer.in}}};
    if (ctx_.model.linear_bias)
      decls.push_back({base + ".b", {layer.out}, -1, Init::kZeros, false});
    const auto refs = stage_.AddUnit("u" + std::to_string(index), decls, false, true);
    layer.w = refs[0];
    if (refs.size() > 1) layer.b = refs[1];
    layers_.push_back(layer);
  }

  void Load(ViewId out, LoadWhat what, int64_t width) {
    stage_.SetPhase(Phase::kInput);
    stage_
        .Emit(OpKind::kLoad, {out}, {},
              {{Attr::kWhat, double(static_cast<int>(what))},
               {Attr::kBatch, double(batch())},
               {Attr::kSeq, 1},
               {Attr::kH, double(width)}})
        .group = kGroupData;
  }

  void Loss() {
    const int64_t n = batch() * ctx_.model.out_features;
    const ViewId target = stage_.Act("target", n);
    Load(target, LoadWhat::kTargets, ctx_.model.out_features);
    stage_.SetPhase(Phase::kBackward);
    std::vector<ViewId> in{X(EndIndex()), target, stage_.loss()};
    if (stage_.loss_scale() >= 0) in.push_back(stage_.loss_scale());
    stage_.Emit(
        OpKind::kMse, {D(EndIndex()), stage_.loss()}, in,
        {{Attr::kElements, double(n)},
         {Attr::kScale, 1.0 / (double(ctx_.work.global_batch) * double(ctx_.model.out_features))}});
  }

  void BackwardLayer(const LinearLayer& layer) {
    stage_.Label(Phase::kBackward, Segment::kLayer, static_cast<int>(layer.index));
    ViewId d = D(layer.index + 1);
    if (HasRelu(layer)) {
      const ViewId sum = stage_.Act("h" + std::to_string(layer.index), batch() * layer.out);
      const ViewId dsum = stage_.Act("d.h" + std::to_string(layer.index), batch() * layer.out);
      stage_.Emit(OpKind::kReluBwd, {dsum}, {d, sum}, Elements(layer));
      d = dsum;
    }
    if (layer.index > 0) {
      stage_.Matmul(D(layer.index), d, stage_.Weight(layer.w), batch(), layer.in, layer.out, false,
                    false);
    }
    const int block = ctx_.split_backward() ? Numbers().WeightGrad(0) : Numbers().Backward(0);
    InWeightGradBlock(stage_, block, [&] {
      stage_.BeginGrad(layer.w.unit);
      stage_.Matmul(stage_.Grad(layer.w), d, X(layer.index), layer.out, layer.in, batch(), true,
                    false, true);
      if (layer.b) {
        const ViewId target = stage_.Grad(layer.b);
        stage_.Emit(OpKind::kColSum, {target}, {target, d},
                    {{Attr::kRows, double(batch())}, {Attr::kH, double(layer.out)}});
      }
      stage_.EndGrad(layer.w.unit, true);
    });
  }

  ViewId X(int64_t index) {
    const bool received = index == range_.first && !First(), sent = index == EndIndex() && !Last();
    const int extra = received ? ctx_.strategy.recv_slots : sent ? ctx_.strategy.send_slots - 1 : 0;
    return stage_.Make("x" + std::to_string(index), batch() * Width(index), ctx_.activation,
                       ir::BufferClass::kActivation,
                       received || sent ? Life::kMicroBatch : Life::kDerived, extra);
  }
  ViewId D(int64_t index) {
    const bool received = index == EndIndex() && !Last(), sent = index == range_.first && !First();
    const int extra = received ? ctx_.strategy.recv_slots : sent ? ctx_.strategy.send_slots - 1 : 0;
    return stage_.Make("d.x" + std::to_string(index), batch() * Width(index), ctx_.activation,
                       ir::BufferClass::kActivation,
                       received || sent ? Life::kMicroBatch : Life::kDerived, extra);
  }

  StageBuilder& stage_;
  const LowerContext& ctx_;
  LayerRange range_;
  std::vector<LinearLayer> layers_;
};

}  // namespace

void EmitMlpStage(StageBuilder& stage) {
  MlpStage emitter(stage);
  emitter.Forward();
  emitter.Backward();
}

}  // namespace orrery
