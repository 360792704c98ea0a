// SPDX-License-Identifier: Apache-2.0
// Encoder-decoder models (T5) on one pipeline stage: two stacks, the encoder's output feeds every decoder layer.
#include <algorithm>

#include "model/plan/lower/ends.h"

namespace orrery {

using ir::Attr;
using ir::Init;
using ir::LoadWhat;
using ir::OpKind;
using ir::Phase;
using ir::Segment;
using ir::ViewId;

namespace {

class EncoderDecoder {
 public:
  explicit EncoderDecoder(StageBuilder& stage) : stage_(stage), ctx_(stage.ctx()) {
    AddEmbeddingUnits(stage_, ends_);
    AddStackParams();
    const int64_t encoder = ctx_.model.layers, decoder = ctx_.model.decoder_layers;
    encoder_ = AddLayers(0, encoder, false);
    decoder_ = AddLayers(encoder, decoder, true);
    AddHeadUnits(stage_, ends_);
  }

  void Forward() {
    stage_.SelectBlock(Numbers().Forward(0));
    EmbeddingForward(stage_, ends_, LoadWhat::kTokens, "e.", Stream(false, 0));
    Layers(encoder_, false);
    stage_.Label(Phase::kForward, Segment::kLayer);
    const ViewId normed = EmitNorm(stage_, "enc.n", Stream(false, encoder_.size()),
                                   ends_.encoder_gamma, ends_.encoder_beta, ctx_.ShardRows(), -1);
    const ViewId memory = stage_.GatherSequence(normed, "enc.nf", ctx_.model.hidden);
    EmbeddingForward(stage_, ends_, LoadWhat::kDecoderTokens, "d0.", Stream(true, 0));
    memory_ = memory;
    Layers(decoder_, true);
  }

  void Backward() {
    stage_.SelectBlock(Numbers().Backward(0));
    const int64_t h = ctx_.model.hidden;
    HeadForwardBackward(stage_, ends_, Stream(true, decoder_.size()), Grad(true, decoder_.size()));
    stage_.Label(Phase::kBackward, Segment::kLayer);
    const ViewId dmemory = stage_.Act("d.enc.nf", ctx_.Rows() * h);
    stage_.Emit(OpKind::kZero, {dmemory}, {});
    if (bias_unit_ >= 0) stage_.BeginGrad(bias_unit_);
    LayersBackward(decoder_, true, dmemory);
    EmbeddingBackward(stage_, ends_, LoadWhat::kDecoderTokens, "d0.", Grad(true, 0), stage_.block(),
                      false);
    EncoderNormBackward(dmemory);
    LayersBackward(encoder_, false, -1);
    if (bias_unit_ >= 0) stage_.EndGrad(bias_unit_, true);
    EmbeddingBackward(stage_, ends_, LoadWhat::kTokens, "e.", Grad(false, 0), stage_.block(), true);
  }

 private:
  BlockNumbers Numbers() const { return {1, false}; }

  void AddStackParams() {
    const ModelSpec& model = ctx_.model;
    std::vector<ParamDecl> norm{{"enc.fin.g", {model.hidden}, -1, Init::kOnes, false}};
    if (model.norm == Norm::kLayerNorm)
      norm.push_back({"enc.fin.b", {model.hidden}, -1, Init::kZeros, false});
    const auto norm_refs = stage_.AddUnit("encfin", norm, ctx_.sp(), false);
    ends_.encoder_gamma = norm_refs[0];
    if (norm_refs.size() > 1) ends_.encoder_beta = norm_refs[1];
    if (model.relative_buckets == 0) return;
    std::vector<ParamDecl> tables{{"enc.rel", {model.relative_buckets, model.heads}, 1},
                                  {"dec.rel", {model.relative_buckets, model.heads}, 1}};
    for (ParamDecl& table : tables) table.common = true;
    const auto refs = stage_.AddUnit("rel", tables, false, false);
    ends_.relative_encoder = refs[0];
    ends_.relative_decoder = refs[1];
    bias_unit_ = refs[0].unit;
  }

  std::vector<Layer> AddLayers(int64_t first, int64_t count, bool decoder) {
    std::vector<Layer> layers;
    const ParamRef bias = decoder ? ends_.relative_decoder : ends_.relative_encoder;
    for (int64_t at = 0; at < count; at += ctx_.strategy.bucket_layers) {
      const int64_t size = std::min<int64_t>(ctx_.strategy.bucket_layers, count - at);
      for (Layer& layer : AddLayerUnit(stage_, static_cast<int>(first + at), static_cast<int>(size),
                                       decoder, bias, at)) {
        layers.push_back(std::move(layer));
      }
    }
    return layers;
  }

  void Layers(const std::vector<Layer>& layers, bool decoder) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      stage_.Label(Phase::kForward, Segment::kLayer, layers[i].index);
      LayerForward(stage_, layers[i], ForwardPrefix(layers[i]), Stream(decoder, i),
                   Stream(decoder, i + 1), memory_, false);
    }
  }

  void LayersBackward(const std::vector<Layer>& layers, bool decoder, ViewId dmemory) {
    for (int i = static_cast<int>(layers.size()) - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      stage_.Label(Phase::kBackward, Segment::kLayer, layers[at].index);
      const bool opens = at + 1 == layers.size() || layers[at + 1].units != layers[at].units;
      const bool closes = i == 0 || layers[at - 1].units != layers[at].units;
      for (const int unit : layers[at].units)
        if (opens) stage_.BeginGrad(unit);
      LayerBackward(stage_, layers[at], Stream(decoder, at), Grad(decoder, at + 1),
                    Grad(decoder, at), memory_, dmemory, stage_.block());
      for (const int unit : layers[at].units)
        if (closes) stage_.EndGrad(unit, true);
    }
  }

  // The encoder's final norm: its gradient is the sum over the decoder layers, reduced over the tensor axis once.
  void EncoderNormBackward(ViewId dmemory) {
    const int64_t h = ctx_.model.hidden, rows = ctx_.ShardRows();
    stage_.Label(Phase::kBackward, Segment::kLayer);
    ViewId dnormed = dmemory;
    if (ctx_.strategy.tp > 1) dnormed = stage_.ReduceGathered(dmemory, "d.enc.ns", h);
    const ViewId x = Stream(false, encoder_.size());
    stage_.BeginGrad(ends_.encoder_gamma.unit);
    EmitNormWeightGrad(stage_, "enc.n", dnormed, x, ends_.encoder_gamma, ends_.encoder_beta, rows);
    stage_.EndGrad(ends_.encoder_gamma.unit, true);
    EmitNormBackward(stage_, "enc.n", dnormed, x, ends_.encoder_gamma, rows,
                     Grad(false, encoder_.size()), -1);
  }

  ViewId Stream(bool decoder, std::size_t index) {
    return stage_.Act((decoder ? "dx" : "ex") + std::to_string(index),
                      ctx_.ShardRows() * ctx_.model.hidden);
  }
  ViewId Grad(bool decoder, std::size_t index) {
    return stage_.Act((decoder ? "d.dx" : "d.ex") + std::to_string(index),
                      ctx_.ShardRows() * ctx_.model.hidden);
  }

  StageBuilder& stage_;
  const LowerContext& ctx_;
  EndParams ends_;
  std::vector<Layer> encoder_, decoder_;
  int bias_unit_ = -1;
  ViewId memory_ = -1;
};

}  // namespace

void EmitEncoderDecoder(StageBuilder& stage) {
  EncoderDecoder emitter(stage);
  emitter.Forward();
  emitter.Backward();
}

}  // namespace orrery
