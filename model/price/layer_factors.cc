// SPDX-License-Identifier: Apache-2.0
// Names shapes of layers and finds their factors.
#include "model/price/layer_factors.h"

#include <fmt/format.h>

#include "model/plan/lower/names.h"

namespace orrery {
namespace {

template <class Visit>
void VisitOps(const ir::Plan& plan, const Visit& visit) {
  for (const ir::Program& program : plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) visit(program, op);
    }
  }
}

double FactorOf(const FrameworkProfile& framework, const std::string& shape) {
  const auto found = framework.layer_factors.find(shape);
  return found == framework.layer_factors.end() ? 1.0 : found->second;
}

}  // namespace

Precision PrecisionOf(const ir::Plan& plan) {
  std::optional<ir::Dtype> type;
  VisitOps(plan, [&](const ir::Program& program, const ir::Op& op) {
    if (type || op.kind != ir::OpKind::kMatmul) return;
    const ir::View& view = program.views[static_cast<std::size_t>(op.in[0])];
    type = program.buffers[static_cast<std::size_t>(view.buffer)].dtype;
  });
  return type == ir::Dtype::kBf16   ? Precision::kBf16
         : type == ir::Dtype::kF16  ? Precision::kFp16
         : type == ir::Dtype::kTf32 ? Precision::kTf32
                                    : Precision::kFp32;
}

std::string LayerShapeText(const std::string& gpu, const ModelSpec& model, const Workload& work,
                           const MicroBatchKey& key) {
  return fmt::format(
      "{} {}, hidden {}, {}ffn {}, heads {}/{}, {} x {} tokens, tp {}{}, {}, "
      "recompute {}",
      gpu, NameIn(kPrecisionNames, work.precision), model.hidden, model.gated ? "gated " : "",
      model.ffn, model.heads, model.kv_heads, key.micro_batch, work.seq_len / key.cp, key.tp,
      key.sequence_parallel ? " sp" : "", key.flash_attention ? "flash" : "materialised",
      NameIn(kRecomputeNames, key.recompute));
}

std::string LayerShapeText(const std::string& gpu, const ir::Plan& plan) {
  using ir::Attr;
  using ir::OpKind;
  ModelSpec model;
  Workload work;
  MicroBatchKey key;
  work.precision = PrecisionOf(plan);
  if (const int axis = plan.mesh.AxisIndex("tp"); axis >= 0)
    key.tp = plan.mesh.axes[static_cast<std::size_t>(axis)].size;
  int64_t rows_of_norm = 0, activated = 0;
  VisitOps(plan, [&](const ir::Program&, const ir::Op& op) {
    if (op.segment != ir::Segment::kLayer) return;
    if (op.phase == ir::Phase::kRecompute && key.recompute != Recompute::kFull)
      key.recompute = op.kind == OpKind::kMatmul ? Recompute::kFull : Recompute::kSelective;
    if (op.kind == OpKind::kAttn && work.seq_len == 0) {
      model.heads = op.attrs.Int(Attr::kNh) * key.tp;
      model.kv_heads = op.attrs.Int(Attr::kKv) * key.tp;
      key.micro_batch = static_cast<int>(op.attrs.Int(Attr::kBatch));
      key.flash_attention = op.attrs.Int(Attr::kFlash) != 0;
      work.seq_len = op.attrs.Int(Attr::kSeq);
    }
    if (op.kind == OpKind::kLayerNorm || op.kind == OpKind::kRmsNorm) {
      rows_of_norm = op.attrs.Int(Attr::kRows);
      model.hidden = op.attrs.Int(Attr::kH);
    }
    if (op.kind == OpKind::kGelu || op.kind == OpKind::kRelu || op.kind == OpKind::kSwiglu) {
      activated = op.attrs.Int(Attr::kElements);
      model.gated = op.kind == OpKind::kSwiglu;
    }
  });
  const int64_t tokens = work.seq_len * key.micro_batch;
  if (tokens == 0) return "";
  model.ffn = activated * key.tp / tokens;
  key.sequence_parallel = rows_of_norm < tokens;
  return LayerShapeText(gpu, model, work, key);
}

double LayerFactor(const GpuProfile& gpu, const FrameworkProfile& framework, const ModelSpec& model,
                   const Workload& work, const MicroBatchKey& key) {
  if (framework.layer_factors.empty()) return 1.0;
  return FactorOf(framework, LayerShapeText(gpu.header.id, model, work, key));
}

double LayerFactor(const GpuProfile& gpu, const FrameworkProfile& framework, const ir::Plan& plan) {
  if (framework.layer_factors.empty()) return 1.0;
  return FactorOf(framework, LayerShapeText(gpu.header.id, plan));
}

}  // namespace orrery
