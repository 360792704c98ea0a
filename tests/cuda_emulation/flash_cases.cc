// SPDX-License-Identifier: Apache-2.0
// Random attention calls of the sizes that matrix units take.
#include "tests/cuda_emulation/flash_cases.h"

namespace orrery {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

struct Case {
  const char* name;
  int64_t batch, seq, seq_kv, nh, kv, hd;  // seq_kv 0: self attention
  bool causal;
  double rate = 0, scale = 0;
};

constexpr Case kCases[] = {
    {"causal_64", 1, 130, 0, 2, 2, 64, true},
    {"plain_64", 2, 65, 0, 1, 1, 64, false},
    {"one_query", 1, 1, 0, 1, 1, 64, true},
    {"grouped_64", 1, 70, 0, 4, 2, 64, true},
    {"causal_128", 1, 100, 0, 1, 1, 128, true},
    {"plain_128", 1, 33, 0, 2, 1, 128, false, 0, 0.2},
    {"dropout_64", 2, 67, 0, 2, 2, 64, true, 0.2},
    {"dropout_128", 1, 40, 0, 1, 1, 128, false, 0.3},
    {"cross_64", 2, 20, 90, 2, 2, 64, false, 0, 0.5},
    {"cross_128", 1, 70, 37, 1, 1, 128, false, 0.1},
};

double AsReal(int64_t n) { return static_cast<double>(n); }

TypedCall ForwardCall(const Case& c) {
  Attrs attrs{{Attr::kBatch, AsReal(c.batch)},
              {Attr::kSeq, AsReal(c.seq)},
              {Attr::kNh, AsReal(c.nh)},
              {Attr::kHd, AsReal(c.hd)},
              {Attr::kFlash, 1},
              {Attr::kRate, c.rate},
              {Attr::kScale, c.scale},
              {Attr::kSite, 3},
              {Attr::kAxis, 0}};
  const int64_t rows = c.seq * c.batch, context = rows * c.nh * c.hd;
  OpCall call;
  if (c.seq_kv > 0) {
    attrs.Set(Attr::kSeqKv, AsReal(c.seq_kv));
    call = {OpKind::kCrossAttn,
            attrs,
            {Random(context, 1), Random(c.seq_kv * c.batch * 2 * c.nh * c.hd, 2)}};
  } else {
    attrs.Set(Attr::kKv, AsReal(c.kv));
    attrs.Set(Attr::kCausal, c.causal);
    call = {OpKind::kAttn, attrs, {Random(rows * (c.nh + 2 * c.kv) * c.hd, 1)}};
  }
  call.out_sizes = {context, rows * c.nh};
  call.coords = {1};
  call.step = 5;
  call.first_sample = 4;
  return {c.name, call, c.seq_kv > 0 ? "ff" : "f", "fs"};
}

TypedCall BackwardCall(const TypedCall& forward, const std::vector<Vector>& saved) {
  OpCall call = forward.call;
  const bool cross = call.kind == OpKind::kCrossAttn;
  call.kind = cross ? OpKind::kCrossAttnBwd : OpKind::kAttnBwd;
  call.out_sizes.clear();
  for (const Vector& x : forward.call.in) call.out_sizes.push_back(static_cast<int64_t>(x.size()));
  call.in.insert(call.in.begin(), Random(forward.call.out_sizes[0], 7));
  call.in.insert(call.in.end(), saved.begin(), saved.end());
  return {forward.name + "_bwd", call, cross ? "ffffs" : "fffs", cross ? "ff" : "f"};
}

}  // namespace

std::vector<TypedCall> FlashCalls() {
  std::vector<TypedCall> calls;
  for (const Case& c : kCases) {
    const TypedCall forward = ForwardCall(c);
    calls.push_back(forward);
    calls.push_back(BackwardCall(forward, RunOp(Rounded(forward, ir::Dtype::kBf16).call)));
  }
  return calls;
}

}  // namespace orrery
