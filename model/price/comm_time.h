// SPDX-License-Identifier: Apache-2.0
// How a collective is run, and what of its time is not bandwidth.
//
// The algorithm and protocol are those that the closed form chooses. Of its time
// a + g sqrt(S) + S / b, the first two go into a timer before the traffic; the traffic itself is
// routed, and its size is divided by the share of the line rate that the algorithm reaches alone.
// Where a sweep of the machine was measured, both follow from it: alone, the message takes that time.
#pragma once

#include <memory>
#include <string_view>

#include "model/collectives/algorithm.h"
#include "model/collectives/measured.h"
#include "model/plan/ir/op.h"
#include "model/price/layer_table.h"
#include "model/price/message.h"

namespace orrery::sim {

struct MessageTime {
  std::string_view algorithm;
  double latency = 0;        // seconds before the traffic
  double wire_per_byte = 1;  // bytes that the line carries per byte of S that the algorithm moves
  double wire_inside = 1;    // same, on scale-up links
  double seconds_per_byte = 0;  // of S, after the latency, with the links of its group to itself
  double floor_per_byte = 0;    // seconds per byte of S: faster it never goes, whatever the links
  std::shared_ptr<const MeasuredTime> measured;  // the sweep behind it; null: the closed form
};

// What communication and the compute beside it do to each other, see meetings.h.
struct Beside {
  double slowdown = 0;
  double hidden = 0;
};

// `setting` must outlive it.
class CommTime {
 public:
  explicit CommTime(const CostSetting& setting) : setting_(setting) {}

  // `phase` tells which of the software's bandwidth shares apply. S as in algorithm.h; ranks >= 2.
  // `only`: the algorithm to take; "": the fastest. Throws InputError when it cannot do this.
  // `whole_step`: as in Message. Gathers of a whole step have the shares of its reduction: Megatron and
  // DeepSpeed send both in the same buckets over the same communicator, and the profiles' constants of
  // gathers are those of layers that are gathered, and reduced, inside a pass.
  MessageTime Time(Collective collective, const GroupShape& shape, double bytes, ir::Phase phase,
                   std::string_view only = "", bool whole_step = true) const;

  // Shares that the software hides, as the closed form takes them. Collectives inside a layer: part
  // of them is fused with the products that need them. Messages in two parts: compute stands still while
  // one is awaited, the other costs it nothing.
  Beside BesideOf(const Message& message, const GroupShape& shape) const;
  // Bytes up to which the software sends messages of a phase together, 0: each alone. Norms that
  // optimizers of whole tensors (LAMB) exchange also travel together.
  double Bucket(ir::Phase phase) const {
    const bool together = phase == ir::Phase::kGradReduce || phase == ir::Phase::kParamGather ||
                          phase == ir::Phase::kOptimizer;
    return together ? setting_.stack->bucket.value : 0;
  }

 private:
  struct Use {
    BandwidthUse bandwidth;
    double latency = 0;
  };
  Use UseOf(ir::Phase phase, Collective collective, const GroupShape& shape, bool whole_step) const;
  double LineShare(std::string_view algorithm, const GroupShape& shape,
                   const BandwidthUse& use) const;

  CostSetting setting_;
};

}  // namespace orrery::sim
