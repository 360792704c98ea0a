// SPDX-License-Identifier: Apache-2.0
// By class and phase of the op.
#include "model/price/op_term.h"

#include "model/base/check.h"

namespace orrery {

CommAxis AxisOf(const ir::Plan& plan, const ir::Op& op) {
  return ir::Info(op.kind).op_class == ir::OpClass::kPointToPoint
             ? AxisOfTransfer(plan, op.peer.axis)
             : AxisOfGroup(plan, plan.groups[static_cast<std::size_t>(op.group)]);
}

bool Updates(const ir::Op& op) {
  return op.phase == ir::Phase::kGradNorm || op.phase == ir::Phase::kOptimizer;
}

double Breakdown::*TermOf(const ir::Plan& plan, const ir::Op& op) {
  switch (ir::Info(op.kind).op_class) {
    case ir::OpClass::kCollective:
    case ir::OpClass::kPointToPoint:
      return ExposedOf(AxisOf(plan, op));
    case ir::OpClass::kInput:
      return &Breakdown::fixed;
    case ir::OpClass::kHostLink:
      return &Breakdown::offload;
    case ir::OpClass::kMatmul:
    case ir::OpClass::kAttention:
    case ir::OpClass::kMemory:
    case ir::OpClass::kOptimizer:
      break;
  }
  return Updates(op) ? &Breakdown::optimizer : &Breakdown::compute;
}

const char* TermNameOf(const ir::Plan& plan, const ir::Op& op) {
  for (const BreakdownTerm& term : BreakdownTerms()) {
    if (term.seconds == TermOf(plan, op)) return term.name;
  }
  ORRERY_CHECK(false, "an op without a term");
}

}  // namespace orrery
