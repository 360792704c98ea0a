// SPDX-License-Identifier: Apache-2.0
// Price of one op: seconds of the device, by OpCost, and of the host thread that issues it.
//
// The constants of a chip and of a framework apply to ops here and in op_cost.cc, nowhere else. Both engines ask with
// the same ShapedOp: the closed form for the ops of one layer, the simulator for those of a whole plan.
#pragma once

#include <vector>

#include "model/plan/ir/plan.h"
#include "model/price/held.h"
#include "model/price/host_prices.h"
#include "model/price/op_shape.h"
#include "model/price/setting.h"

namespace orrery {

struct OpPrice {
  double device = 0;
  double host = 0;
};

// Seconds of a kernel that streams: gap + bytes x per_byte.
struct StreamPrice {
  double gap = 0;
  double per_byte = 0;
  double Of(double bytes) const { return bytes > 0 ? gap + bytes * per_byte : 0.0; }
};

class OpPrices {
 public:
  // The profiles must outlive this. `kernels`: AtFullPace() of the ops of a micro-batch by their index, where it is known
  // already; null: it is not.
  OpPrices(const CostSetting& setting, Precision precision,
           const std::vector<double>* kernels = nullptr);

  // `accumulates`: gradients are added up over several micro-batches.
  OpPrice Price(const ShapedOp& op, bool accumulates) const;
  OpPrice Price(const ir::Plan& plan, const ir::Program& program, const ir::Op& op,
                bool accumulates) const;
  // Seconds of the device before the pace of a site and of many nodes, which slow all kernels alike.
  double AtFullPace(const ShapedOp& op) const;
  // True for a cast that is part of the kernel in front of it.
  bool Fused(const ShapedOp& op) const;
  // Adding up gradients of so many elements, part of the price of the product that does it.
  double Accumulate(double elements) const;
  // Casting the weight of a product that has so many elements, and its gradient, under autocast.
  double Cast(double elements) const;
  // Of a named kernel that streams large buffers.
  StreamPrice Stream(const char* kernel) const;
  // Of one that casts, or finds the scales of casts.
  StreamPrice CastStream(const char* kernel) const;
  // Of the optimizer, which no straggler slows.
  StreamPrice UpdateStream(const char* kernel) const;
  // Of the update of one parameter with its moments, large tensors.
  double UpdatePerElement(const Workload& work) const;
  // Of the products that orthogonalise these matrices in 16 bits, each a kernel: what Muon's update adds.
  double NewtonSchulz(const std::vector<ir::UnitMatrix>& matrices) const;

  // Of copies to and from the host, and of updates by the CPU.
  const HostPrices& OfHost() const { return host_; }

  // The issuing thread stops at loads and at the first use of what another stage sent.
  bool HostWaits() const { return framework_->host_waits > 0.5; }
  // How the framework holds the plan's buffers.
  Holding Holds() const { return HoldingOf(*framework_); }
  // Whether the framework's timer of a micro-step waits for the device.
  bool TimerWaits() const { return framework_->timer_waits > 0.5; }

 private:
  double Device(const ShapedOp& op) const;
  double Update(const UpdateShape& shape) const;
  double Around(const ShapedOp& op) const;
  double Host(const ShapedOp& op) const;

  OpCost cost_;
  const FrameworkProfile* framework_;
  HostPrices host_;
  double host_factor_, pace_;
  double cast_bytes_;  // per weight of a product and micro-batch
  const std::vector<double>* kernels_;
};

}  // namespace orrery
