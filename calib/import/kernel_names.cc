// SPDX-License-Identifier: Apache-2.0
// Words in kernel names, in order of precedence.
#include "calib/import/kernel_names.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "model/plan/ir/op.h"

namespace orrery::measured {
namespace {

struct KernelWord {
  const char* part;  // in lower case
  Work work;
};

// The first that a name contains decides: a reduction inside NCCL is a collective, a softmax inside
// a fused attention is attention, an addition inside a product's epilogue is a product.
constexpr KernelWord kWords[] = {
    {"sendrecv", Work::kPointToPoint},
    {"nccl", Work::kCollective},
    {"rccl", Work::kCollective},
    {"hccl", Work::kCollective},
    {"memcpy", Work::kCopy},
    {"memset", Work::kCopy},
    {"flash", Work::kAttention},
    {"fmha", Work::kAttention},
    {"sdpa", Work::kAttention},
    {"attention", Work::kAttention},
    {"_attn", Work::kAttention},
    {"gemm", Work::kProduct},
    {"gemv", Work::kProduct},
    {"xmma", Work::kProduct},
    {"cutlass", Work::kProduct},
    {"cublas", Work::kProduct},
    {"nvjet", Work::kProduct},
    {"splitkreduce", Work::kProduct},
    {"cijk_", Work::kProduct},
    {"s16816", Work::kProduct},
    {"s884", Work::kProduct},
    {"multi_tensor", Work::kOptimizer},
    {"adam", Work::kOptimizer},
    {"lamb_", Work::kOptimizer},
    {"_sgd", Work::kOptimizer},
    {"elementwise", Work::kElementwise},
    {"layer_norm", Work::kElementwise},
    {"layernorm", Work::kElementwise},
    {"rms_norm", Work::kElementwise},
    {"rmsnorm", Work::kElementwise},
    {"batch_norm", Work::kElementwise},
    {"softmax", Work::kElementwise},
    {"dropout", Work::kElementwise},
    {"gelu", Work::kElementwise},
    {"swiglu", Work::kElementwise},
    {"silu", Work::kElementwise},
    {"relu", Work::kElementwise},
    {"rotary", Work::kElementwise},
    {"rope", Work::kElementwise},
    {"embedding", Work::kElementwise},
    {"cross_entropy", Work::kElementwise},
    {"nll_loss", Work::kElementwise},
    {"bias", Work::kElementwise},
    {"reduce", Work::kElementwise},
    {"indexselect", Work::kElementwise},
    {"index", Work::kElementwise},
    {"scatter", Work::kElementwise},
    {"gather", Work::kElementwise},
    {"catarray", Work::kElementwise},
    {"transpose", Work::kElementwise},
    {"triton_", Work::kElementwise},  // fused by a compiler
};

Work WorkOfClass(ir::OpClass op_class) {
  switch (op_class) {
    case ir::OpClass::kMatmul:
      return Work::kProduct;
    case ir::OpClass::kAttention:
      return Work::kAttention;
    case ir::OpClass::kMemory:
      return Work::kElementwise;
    case ir::OpClass::kOptimizer:
      return Work::kOptimizer;
    case ir::OpClass::kCollective:
      return Work::kCollective;
    case ir::OpClass::kPointToPoint:
      return Work::kPointToPoint;
    case ir::OpClass::kInput:
    case ir::OpClass::kHostLink:
      return Work::kCopy;
  }
  return Work::kOther;
}

}  // namespace

Work WorkOfKernel(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const KernelWord& word : kWords) {
    if (lower.find(word.part) != std::string::npos) return word.work;
  }
  return Work::kOther;
}

bool WorkOfOp(const std::string& name, Work* work) {
  static const std::map<std::string, Work> kOps = [] {
    std::map<std::string, Work> ops;
    for (const ir::OpInfo& info : ir::OpTable()) ops[info.name] = WorkOfClass(info.op_class);
    return ops;
  }();
  const auto found = kOps.find(name);
  if (found == kOps.end()) return false;
  *work = found->second;
  return true;
}

}  // namespace orrery::measured
