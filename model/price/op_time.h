// SPDX-License-Identifier: Apache-2.0
// Seconds of one op of a plan: on the device by OpCost, and of the host thread that issues it.
#pragma once

#include "model/engine/event/split.h"
#include "model/plan/ir/plan.h"
#include "model/plan/lower/overlap.h"
#include "model/price/op_cost.h"

namespace orrery::sim {

class OpTime {
 public:
  // Several `nodes` lengthen kernels and host time (stragglers); `layer_factor` all times of layers
  // (model/price/layer_factors.h). The profiles must outlive this.
  OpTime(const GpuProfile& gpu, const StackProfile& stack, Precision precision, int64_t nodes,
         double layer_factor = 1.0);

  // Device seconds; 0 for communication and input. `accumulates`: gradients are added up over
  // several micro-batches.
  double Device(const ir::Program& program, const ir::Op& op, bool accumulates) const;
  bool HostWaits() const { return stack_->host_waits > 0.5; }
  // Shares of reductions and gathers of a whole step that the software waits for.
  AwaitedShares Awaited(const ir::Plan& plan) const {
    return {VisibleShare(VisibleReductionOf(*stack_), HoldsWholeReplicas(plan)),
            stack_->data_exposed};
  }
  double Host(const ir::Program& program, const ir::Op& op) const;

 private:
  double Scale(const ir::Op& op) const {
    return op.segment == ir::Segment::kLayer ? layer_factor_ : 1.0;
  }
  double OfLayers(const ir::Program& program, const ir::Op& op, bool accumulates) const;
  double Matmul(const ir::Program& program, const ir::Op& op, bool accumulates) const;
  double Memory(const ir::Program& program, const ir::Op& op) const;
  double Around(const ir::Op& op) const;
  double Optimizer(const ir::Program& program, const ir::Op& op) const;

  OpCost cost_;
  const StackProfile* stack_;
  double host_factor_, pace_;
  double layer_factor_;
};

}  // namespace orrery::sim
