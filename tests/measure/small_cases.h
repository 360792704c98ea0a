// SPDX-License-Identifier: Apache-2.0
// Every kind of kernel that `plan bench gemm|attention|memory` times, in small.
#pragma once

#include <vector>

#include "runtime/program/bench/bench_cases.h"

namespace orrery {

inline DeviceShape SmallProduct(const char* op, const char* epilogue) {
  DeviceShape shape;
  shape.op = op;
  shape.epilogue = epilogue;
  shape.m = 12;
  shape.n = 20;
  shape.k = 7;
  return shape;
}

inline DeviceShape SmallAttention(const char* op) {
  DeviceShape shape;
  shape.attention = true;
  shape.op = op;
  shape.batch = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.seq_q = shape.seq_kv = 16;
  shape.head_dim = 8;
  shape.causal = true;
  return shape;
}

inline std::vector<BenchCase> SmallCases(ir::Dtype dtype) {
  std::vector<BenchCase> cases = MemoryCases(6, 32, dtype);
  for (const char* op : {"nn", "nt", "tn"}) {
    for (const char* epilogue : {"none", "bias", "accumulate"}) {
      cases.push_back(ProductCase(SmallProduct(op, epilogue), dtype));
    }
  }
  for (const char* op : {"forward", "backward"})
    cases.push_back(AttentionCase(SmallAttention(op), dtype));
  return cases;
}

}  // namespace orrery
