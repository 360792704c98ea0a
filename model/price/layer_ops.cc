// SPDX-License-Identifier: Apache-2.0
// Reads the shapes of operations out of a small plan.
#include "model/price/layer_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "model/base/check.h"
#include "model/price/op_shape.h"

namespace orrery {
namespace {

int64_t EffectiveWindow(const ModelSpec& model, int64_t layer, int64_t seq_len) {
  const int64_t window = model.Window(layer);
  return window < seq_len ? window : 0;
}

constexpr int64_t kMostMlpLayers = 64;  // layers of a plain MLP differ: this many are lowered

std::vector<ShapedOp>* PhaseList(ir::Phase phase, SegmentOps* segment) {
  switch (phase) {
    case ir::Phase::kForward:
      return &segment->forward;
    case ir::Phase::kRecompute:
      return &segment->recompute;
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
      return &segment->backward;
    case ir::Phase::kInput:
    case ir::Phase::kParamGather:
    case ir::Phase::kGradReduce:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kPipeline:
    case ir::Phase::kSetup:
      return nullptr;
  }
  return nullptr;
}

// The different windows of a model's layers on so many tokens; one that holds them all counts as none (0).
std::vector<int64_t> Windows(const ModelSpec& model, int64_t seq_len) {
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < model.layers; ++i) {
    const int64_t window = EffectiveWindow(model, i, seq_len);
    if (std::find(windows.begin(), windows.end(), window) == windows.end())
      windows.push_back(window);
    if (model.windows.empty()) break;
  }
  return windows;
}

// One layer of each kind; the stack of a plain MLP as it is.
ModelSpec OneLayerOfEach(ModelSpec model, int64_t seq_len) {
  if (model.family == Family::kMlp) {
    model.layers = std::min(model.layers, kMostMlpLayers);
    return model;
  }
  model.windows = Windows(model, seq_len);
  model.layers = static_cast<int64_t>(model.windows.size());
  model.decoder_layers = std::min<int64_t>(model.decoder_layers, 1);
  return model;
}

std::vector<LayerKind> Kinds(const ModelSpec& model, const ModelSpec& small, int64_t seq_len) {
  if (model.family == Family::kMlp) {
    return {
        LayerKind{{}, 1.0 / static_cast<double>(small.layers), static_cast<double>(model.layers)}};
  }
  std::vector<LayerKind> kinds(small.windows.size());
  for (int64_t i = 0; i < model.layers; ++i) {
    const int64_t window = EffectiveWindow(model, i, seq_len);
    const auto kind = std::find(small.windows.begin(), small.windows.end(), window);
    kinds[static_cast<std::size_t>(kind - small.windows.begin())].count += 1;
  }
  if (model.decoder_layers > 0)
    kinds.push_back(LayerKind{{}, 1.0, static_cast<double>(model.decoder_layers)});
  return kinds;
}

Strategy SmallStrategy(const MicroBatchKey& key) {
  Strategy strategy;
  strategy.tp = key.tp;
  strategy.micro_batch = key.micro_batch;
  strategy.sequence_parallel = key.sequence_parallel;
  strategy.recompute = key.recompute;
  strategy.flash_attention = key.flash_attention;
  strategy.fp32_grads = key.fp32_grads;
  strategy.recompute_unread = key.recompute_unread;
  return strategy;
}

void Sort(const ir::Plan& plan, double context_parallel, bool mlp, MicroBatchOps* out) {
  const ir::Program& program = plan.programs.front();
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      SegmentOps* segment = nullptr;
      switch (op.segment) {
        case ir::Segment::kEmbedding:
          segment = &out->embedding;
          break;
        case ir::Segment::kHead:
          segment = &out->head;
          break;
        case ir::Segment::kLayer: {
          const std::size_t kind = mlp ? 0 : static_cast<std::size_t>(std::max<int>(op.layer, 0));
          ORRERY_CHECK(kind < out->layers.size(), "layer {} of {} kinds", kind, out->layers.size());
          segment = &out->layers[kind].ops;
          break;
        }
        case ir::Segment::kStep:
          if (op.kind == ir::OpKind::kMuon)
            out->matrix_update = std::get<UpdateShape>(ShapeOf(program, op)->shape);
          continue;
      }
      std::vector<ShapedOp>* list = PhaseList(op.phase, segment);
      if (list == nullptr) continue;
      if (const auto shaped = ShapeOf(program, op, context_parallel)) list->push_back(*shaped);
    }
  }
}

}  // namespace

std::variant<MicroBatchOps, Refusal> ShapeMicroBatch(const ModelSpec& model, const Workload& work,
                                                     const MicroBatchKey& key) {
  if (work.seq_len % key.cp != 0) {
    return Refusal{
        fmt::format("cp={} does not divide the sequence length {}", key.cp, work.seq_len), ""};
  }
  Workload local = work;
  local.seq_len = work.seq_len / key.cp;
  local.masked_positions = std::min(work.masked_positions, local.seq_len);
  local.global_batch = key.micro_batch;
  local.clip_norm = 0;
  const ModelSpec small = OneLayerOfEach(model, local.seq_len);
  LowerResult lowered = Lower(small, local, SmallStrategy(key));
  if (const auto* refusal = std::get_if<Refusal>(&lowered)) return *refusal;
  MicroBatchOps out;
  out.layers = Kinds(model, small, local.seq_len);
  Sort(std::get<ir::Plan>(lowered), key.cp, model.family == Family::kMlp, &out);
  const double element =
      work.precision == Precision::kFp32 || work.precision == Precision::kTf32 ? 4.0 : 2.0;
  out.boundary_bytes = static_cast<double>(local.seq_len * key.micro_batch) *
                       static_cast<double>(model.hidden) * element;
  return out;
}

}  // namespace orrery
