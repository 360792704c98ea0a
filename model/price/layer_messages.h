// SPDX-License-Identifier: Apache-2.0
// Messages inside a layer, and how those of a ring run beside its kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <variant>
#include <vector>

#include "model/collectives/group_shapes.h"
#include "model/price/layer_ops.h"
#include "model/price/message_prices.h"
#include "model/price/ring_ranks.h"
#include "model/price/setting.h"

namespace orrery {

// Messages inside a layer, each kind prepared when it is first asked for: a layer uses few of them. Not for concurrent use.
class LayerMessages {
 public:
  // `shape`: of the ranks of a layer. `setting` must outlive it.
  LayerMessages(const MicroBatchOps& ops, const CostSetting& setting, const GroupShape& shape)
      : prices_(setting), shape_(shape) {
    const int local = setting.cluster->domain_gpus();
    const auto slowest = [&](int size, int inner) {
      return SlowestOfAxis(size, inner, local, setting.cluster->ranks());
    };
    if (shape.nodes() > 1) holds_nics_ = HeldBy(ops, prices_, shape);
    if (ops.context.ranks > 1) context_shape_ = slowest(ops.context.ranks, ops.context.inner);
    if (ops.ring.ranks > 1) {
      const GroupShape ring = slowest(ops.ring.ranks, ops.ring.inner);
      const bool inside = ring.nodes() == 1;
      const auto hop = [&](int per_node) {
        return prices_.Prepare(MessageRole::kContext, Collective::kSendRecv,
                               {2, per_node, std::clamp(ops.ring.inner, 1, local)}, false);
      };
      hop_ = hop(inside ? 2 : 1);
      if (inside || ring.ranks_per_node == 1) return;
      ring_ranks_ = ring.ranks_per_node;
      hop_inside_ = hop(2);
    }
  }

  // The slowest of a ring's hops sets its pace.
  double Hop(double bytes) const {
    return std::max(hop_.Time(bytes), ring_leads() ? hop_inside_.Time(bytes) : 0.0);
  }
  double HopInside(double bytes) const { return hop_inside_.Time(bytes); }
  // Some of its hops leave a node and some do not: ranks of it on a node.
  bool ring_leads() const { return ring_ranks_ > 1; }
  int ring_ranks() const { return ring_ranks_; }
  double holds_nics() const { return holds_nics_; }  // as LayerTable
  const PreparedMessage& tail() const {
    return Prepared(&tail_, MessageRole::kShard, Collective::kAllReduce, shape_);
  }
  const PreparedMessage& Of(const CollectiveShape& op, bool backward) const {
    const auto at = static_cast<std::size_t>(op.kind);
    if (op.context) return Prepared(&context_[at], MessageRole::kContext, op.kind, context_shape_);
    if (op.whole) return Prepared(&whole_[at], MessageRole::kWhole, op.kind, shape_);
    return backward ? Prepared(&backward_[at], MessageRole::kLayer, op.kind, shape_, true)
                    : Prepared(&forward_[at], MessageRole::kLayer, op.kind, shape_);
  }

 private:
  // Latency holds no link, and traffic no more of the NICs than its share of what they carry.
  static double HeldBy(const MicroBatchOps& ops, const MessagePrices& prices,
                       const GroupShape& shape) {
    double all = 0, held = 0;
    const auto add = [&](double count, const ShapedOp& op) {
      const auto* message = std::get_if<CollectiveShape>(&op.shape);
      if (message == nullptr || message->context || message->bytes <= 0) return;
      const MessageRole role = message->whole ? MessageRole::kWhole : MessageRole::kLayer;
      const MessagePrice price = prices.Price(role, message->kind, shape, message->bytes);
      const double traffic = price.seconds_per_byte * message->bytes;
      all += count * (price.latency + traffic);
      if (price.crosses && price.wire.network > 0)
        held += count * traffic * std::min(1.0, price.share.network / price.wire.network);
    };
    for (const LayerKind& kind : ops.layers) {
      for (const auto* list : {&kind.ops.forward, &kind.ops.recompute, &kind.ops.backward})
        for (const ShapedOp& op : *list) add(kind.scale * kind.count, op);
    }
    return all > 0 ? held / all : 0.0;
  }
  using Kept = std::optional<PreparedMessage>;
  const PreparedMessage& Prepared(Kept* kept, MessageRole role, Collective collective,
                                  const GroupShape& shape, bool backward = false) const {
    if (!*kept) *kept = prices_.Prepare(role, collective, shape, backward);
    return **kept;
  }

  MessagePrices prices_;
  GroupShape shape_, context_shape_;
  mutable std::array<Kept, kCollectives> forward_, backward_, whole_, context_;
  mutable Kept tail_;
  PreparedMessage hop_, hop_inside_;
  int ring_ranks_ = 1;  // on a node, where it has hops of both kinds
  double holds_nics_ = 0;
};

// Messages of a ring beside the kernels of one pass, in the order of issue: a hop starts when the one before has arrived
// and no earlier than it is issued, for until then its receiver reads what it will replace. Where some of a ring's hops leave a node
// (ring_ranks.h), the first one starts as early as its sender is ahead, and the next one finds its slot free.
class RingClock {
 public:
  explicit RingClock(RingLead lead) : lead_(lead) {}
  void Kernel(double seconds) { now_ += seconds; }
  void Hop(double seconds) {
    double start = now_;
    if (lead_.seconds > 0 && arrived_.size() < kSlots)
      start = std::max(arrived_.empty() ? now_ - lead_.seconds : arrived_.back(), -lead_.slot_free);
    arrived_.push_back(std::max(start, arrived_.empty() ? start : arrived_.back()) + seconds);
    all_ += seconds;
  }
  double Await(int hops) {
    if (hops == 0) return 0;
    const double wait = std::max(0.0, arrived_[static_cast<std::size_t>(hops - 1)] - now_);
    Wait(wait);
    return wait;
  }
  void Wait(double seconds) {
    now_ += seconds;
    exposed_ += seconds;
  }
  double exposed() const { return exposed_; }
  double hidden() const { return std::max(0.0, all_ - exposed_); }

 private:
  static constexpr std::size_t kSlots = 2;  // of the lowering's rings
  RingLead lead_;
  double now_ = 0, all_ = 0, exposed_ = 0;
  std::vector<double> arrived_;
};

}  // namespace orrery
