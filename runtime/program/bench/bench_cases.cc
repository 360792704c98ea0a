// SPDX-License-Identifier: Apache-2.0
// Operands and attributes as model/plan/ir/op.h documents them.
#include "runtime/program/bench/bench_cases.h"

#include <memory>

namespace orrery {
namespace {

using bench::KernelOperand;
using ir::Attr;
using ir::Dtype;
using ir::OpKind;

std::string DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return "bf16";
    case Dtype::kF16:
      return "fp16";
    case Dtype::kTf32:
      return "tf32";
    default:
      return "fp32";
  }
}

double BytesOf(const bench::KernelCase& one) {
  double bytes = 0;
  for (const auto* list : {&one.in, &one.out}) {
    for (const KernelOperand& operand : *list)
      bytes += static_cast<double>(operand.n * ir::DtypeBytes(operand.dtype));
  }
  return bytes;
}

ir::Op MakeOp(OpKind kind, std::initializer_list<std::pair<Attr, double>> attrs) {
  ir::Op op;
  op.kind = kind;
  op.attrs = ir::Attrs(attrs);
  return op;
}

BenchCase Finish(BenchCase one, measured::KernelKind kind, std::string op, Dtype dtype) {
  one.row.kind = kind;
  one.row.op = std::move(op);
  one.row.dtype = DtypeName(dtype);
  one.row.bytes = BytesOf(one.run);
  one.row.flops = ir::OpFlops(one.run.op);
  return one;
}

}  // namespace

BenchCase ProductCase(const DeviceShape& s, Dtype dtype) {
  const bool bias = s.epilogue == "bias", acc = s.epilogue == "accumulate";
  BenchCase one;
  one.run.op = MakeOp(OpKind::kMatmul, {{Attr::kM, s.m},
                                        {Attr::kN, s.n},
                                        {Attr::kK, s.k},
                                        {Attr::kTransA, s.op[0] == 't'},
                                        {Attr::kTransB, s.op[1] == 't'},
                                        {Attr::kAcc, acc},
                                        {Attr::kBias, bias}});
  one.run.in = {{s.m * s.k, dtype}, {s.n * s.k, dtype}};
  if (bias) one.run.in.push_back({s.n, dtype});
  if (acc) one.run.in.push_back({s.m * s.n, dtype});
  one.run.out = {{s.m * s.n, dtype, acc ? static_cast<int>(one.run.in.size()) - 1 : -1}};
  one.row.m = s.m;
  one.row.n = s.n;
  one.row.k = s.k;
  one.row.epilogue = s.epilogue;
  return Finish(std::move(one), measured::KernelKind::kGemm, s.op, dtype);
}

BenchCase AttentionCase(const DeviceShape& s, Dtype dtype) {
  const int64_t rows = s.batch * s.seq_q, qkv = rows * (s.heads + 2 * s.kv_heads) * s.head_dim;
  const int64_t context = rows * s.heads * s.head_dim;
  const std::initializer_list<std::pair<Attr, double>> attrs = {
      {Attr::kBatch, s.batch}, {Attr::kSeq, s.seq_q},   {Attr::kNh, s.heads},
      {Attr::kKv, s.kv_heads}, {Attr::kHd, s.head_dim}, {Attr::kCausal, s.causal},
      {Attr::kFlash, 1}};
  const KernelOperand sums{rows * s.heads, Dtype::kF32};
  BenchCase one;
  one.run.op = MakeOp(OpKind::kAttn, attrs);
  one.run.in = {{qkv, dtype}};
  one.run.out = {{context, dtype}, sums};
  if (s.op == "backward") {
    one.run.before = std::make_shared<bench::KernelCase>(one.run);
    one.run.before_in = {1};
    one.run.before_out = {2, 3};
    one.run.op = MakeOp(OpKind::kAttnBwd, attrs);
    one.run.in = {{context, dtype}, {qkv, dtype}, {context, dtype}, sums};
    one.run.out = {{qkv, dtype}};
  }
  one.row.batch = s.batch;
  one.row.heads = s.heads;
  one.row.kv_heads = s.kv_heads;
  one.row.seq_q = s.seq_q;
  one.row.seq_kv = s.seq_kv;
  one.row.head_dim = s.head_dim;
  one.row.causal = s.causal;
  one.row.algorithm = "flash";
  return Finish(std::move(one), measured::KernelKind::kAttention, s.op, dtype);
}

std::vector<BenchCase> MemoryCases(int64_t rows, int64_t width, Dtype dtype) {
  const int64_t n = rows * width;
  const KernelOperand x{n, dtype}, gain{width, dtype}, stats{2 * rows, Dtype::kF32},
      rstd{rows, Dtype::kF32};
  struct Row {
    const char* name;
    OpKind kind;
    std::vector<KernelOperand> in, out;
  };
  const Row kRows[] = {
      {"add", OpKind::kAdd, {x, x}, {x}},
      {"layer_norm", OpKind::kLayerNorm, {x, gain, gain}, {x, stats}},
      {"layer_norm_bwd", OpKind::kLayerNormBwd, {x, x, stats, gain}, {x}},
      {"rms_norm", OpKind::kRmsNorm, {x, gain}, {x, rstd}},
      {"gelu", OpKind::kGelu, {x}, {x}},
      {"gelu_bwd", OpKind::kGeluBwd, {x, x}, {x}},
      {"swiglu", OpKind::kSwiglu, {{2 * n, dtype}}, {x}},
      {"column_sum", OpKind::kColSum, {gain, x}, {{width, dtype, 0}}},
  };
  std::vector<BenchCase> cases;
  for (const Row& row : kRows) {
    BenchCase one;
    one.run.op = MakeOp(row.kind, {{Attr::kRows, rows}, {Attr::kH, width}, {Attr::kElements, n}});
    one.run.in = row.in;
    one.run.out = row.out;
    one.row.m = rows;
    one.row.n = width;
    cases.push_back(Finish(std::move(one), measured::KernelKind::kMemory, row.name, dtype));
  }
  return cases;
}

}  // namespace orrery
