// SPDX-License-Identifier: Apache-2.0
// From plans to the list of what a device is asked to do.
#include "calib/measure/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/arch/parameters.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

using ir::Attr;
using ir::OpKind;

constexpr double kLargestWhole = 20e9;  // parameters of a model on one rank
constexpr int kTensorRanks = 8;

ir::Plan PlanOf(const LoadedModel& model, int64_t tokens) {
  Workload work;
  work.seq_len = model.defaults.seq_len.value_or(model.spec.max_positions);
  Strategy strategy;
  strategy.micro_batch = static_cast<int>(std::max<int64_t>(1, tokens / work.seq_len));
  if (static_cast<double>(CountParameters(model.spec).total) > kLargestWhole)
    strategy.tp = kTensorRanks;
  work.global_batch = strategy.micro_batch;
  work.masked_positions = MaskedPositions(model.spec, model.defaults, work.seq_len);
  LowerResult lowered = Lower(model.spec, work, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&lowered))
    throw InputError(fmt::format("{}: {}", model.spec.name, refusal->reason), refusal->hint);
  return std::get<ir::Plan>(std::move(lowered));
}

DeviceShape ProductShape(const ir::Op& op) {
  DeviceShape shape;
  shape.op = {op.attrs.Int(Attr::kTransA) != 0 ? 't' : 'n',
              op.attrs.Int(Attr::kTransB) != 0 ? 't' : 'n'};
  shape.m = op.attrs.Int(Attr::kM);
  shape.n = op.attrs.Int(Attr::kN);
  shape.k = op.attrs.Int(Attr::kK);
  shape.epilogue = op.attrs.Int(Attr::kAcc) != 0    ? "accumulate"
                   : op.attrs.Int(Attr::kBias) != 0 ? "bias"
                                                    : "none";
  return shape;
}

DeviceShape AttentionOf(const ir::Op& op) {
  const bool cross = op.kind == OpKind::kCrossAttn || op.kind == OpKind::kCrossAttnBwd;
  const bool backward = op.kind == OpKind::kAttnBwd || op.kind == OpKind::kCrossAttnBwd;
  DeviceShape shape;
  shape.attention = true;
  shape.op = backward ? "backward" : "forward";
  shape.batch = op.attrs.Int(Attr::kBatch);
  shape.heads = op.attrs.Int(Attr::kNh);
  shape.kv_heads = cross || op.attrs.Int(Attr::kKv) == 0 ? shape.heads : op.attrs.Int(Attr::kKv);
  shape.seq_q = op.attrs.Int(Attr::kSeq);
  shape.seq_kv = cross ? op.attrs.Int(Attr::kSeqKv) : shape.seq_q;
  shape.head_dim = op.attrs.Int(Attr::kHd);
  shape.causal = !cross && op.attrs.Int(Attr::kCausal) != 0;
  return shape;
}

bool IsAttention(OpKind kind) {
  return kind == OpKind::kAttn || kind == OpKind::kAttnBwd || kind == OpKind::kCrossAttn ||
         kind == OpKind::kCrossAttnBwd;
}

// The views that a gelu of this block reads.
std::set<ir::ViewId> GeluInputs(const ir::Block& block) {
  std::set<ir::ViewId> views;
  for (const ir::Op& op : block.ops) {
    if (op.kind == OpKind::kGelu) views.insert(op.in.front());
  }
  return views;
}

void AddBlock(const ir::Block& block, std::map<DeviceShape, int64_t>* calls) {
  const std::set<ir::ViewId> gelu = GeluInputs(block);
  for (const ir::Op& op : block.ops) {
    if (IsAttention(op.kind)) ++(*calls)[AttentionOf(op)];
    if (op.kind != OpKind::kMatmul) continue;
    DeviceShape shape = ProductShape(op);
    ++(*calls)[shape];
    if (!gelu.contains(op.out.front())) continue;
    shape.epilogue = shape.epilogue == "bias" ? "bias+gelu" : "gelu";
    ++(*calls)[shape];
  }
}

}  // namespace

std::vector<ModelShape> ShapesOf(const LoadedModel& model, const std::string& name,
                                 int64_t tokens) {
  std::map<DeviceShape, int64_t> calls;
  for (const ir::Program& program : PlanOf(model, tokens).programs) {
    for (const ir::Block& block : program.blocks) AddBlock(block, &calls);
  }
  std::vector<ModelShape> shapes;
  for (const auto& [shape, count] : calls) shapes.push_back({shape, {name}, count});
  return shapes;
}

std::vector<ModelShape> CatalogueShapes() {
  std::map<DeviceShape, ModelShape> all;
  for (const std::string& name : ModelNames()) {
    for (const ModelShape& one : ShapesOf(LoadModel(name), name)) {
      ModelShape& row = all[one.shape];
      row.shape = one.shape;
      row.models.push_back(name);
      row.calls = std::max(row.calls, one.calls);
    }
  }
  std::vector<ModelShape> rows;
  for (auto& [shape, row] : all) rows.push_back(std::move(row));
  return rows;
}

std::string ShapesCsv(const std::vector<ModelShape>& shapes) {
  std::string text =
      "kind,op,epilogue,m,n,k,batch,heads,kv_heads,seq_q,seq_kv,head_dim,causal,calls,models\n";
  for (const ModelShape& row : shapes) {
    const DeviceShape& s = row.shape;
    text += s.attention
                ? fmt::format("attention,{},,,,,{},{},{},{},{},{},{},", s.op, s.batch, s.heads,
                              s.kv_heads, s.seq_q, s.seq_kv, s.head_dim, s.causal ? 1 : 0)
                : fmt::format("gemm,{},{},{},{},{},{},,,,,,,", s.op, s.epilogue, s.m, s.n, s.k,
                              s.batch);
    text += fmt::format("{},{}\n", row.calls, fmt::join(row.models, " "));
  }
  return text;
}

}  // namespace orrery
