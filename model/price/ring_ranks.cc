// SPDX-License-Identifier: Apache-2.0
// The recurrence over ranks and ops, repeated until ranks stay as far apart as they are.
#include "model/price/ring_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery {
namespace {

constexpr int kMostRingLayers = 32;
constexpr double kSettled = 1e-4;  // of a layer

struct RingRank {
  double now = 0, start = 0;
  double received = 0, sent = 0;             // ends of the last hop on each stream
  std::vector<std::vector<double>> arrived;  // by list and hop
  std::map<int, double> read;                // by slot: the last op on it ends
};

class Ring {
 public:
  Ring(std::span<const RingOp> ops, int lists, int ranks,
       const std::function<double(double, bool)>& hop_seconds)
      : ops_(ops), hop_seconds_(hop_seconds), ranks_(static_cast<std::size_t>(ranks)) {
    slots_.resize(static_cast<std::size_t>(lists));
    waits_.waits.resize(static_cast<std::size_t>(lists));
  }

  RingWaits Run() {
    for (int layer = 0; layer < kMostRingLayers; ++layer) {
      Layer();
      if (Settled()) break;
    }
    return waits_;
  }

 private:
  // All ranks took as long as the first one.
  bool Settled() const {
    const auto took = [](const RingRank& rank) { return rank.now - rank.start; };
    const double first = took(ranks_.front());
    return std::ranges::all_of(ranks_, [&](const RingRank& rank) {
      return std::abs(took(rank) - first) <= kSettled * first;
    });
  }

  void Layer() {
    for (RingRank& rank : ranks_) {
      rank.start = rank.now;
      rank.arrived.assign(slots_.size(), {});
    }
    for (auto& slots : slots_) slots.clear();
    for (auto& waits : waits_.waits) waits.clear();
    waits_.lead = {ranks_.front().now - ranks_.back().now, 0};
    bool first = true;
    for (const RingOp& op : ops_) {
      Kernel(op);
      if (op.hop == nullptr) continue;
      if (first) {
        const auto read = ranks_.front().read.find(op.hop->to);
        if (read != ranks_.front().read.end())
          waits_.lead.slot_free = ranks_.front().start - read->second;
        first = false;
      }
      Hop(op);
    }
  }

  void Kernel(const RingOp& op) {
    const auto list = static_cast<std::size_t>(op.list);
    for (RingRank& rank : ranks_) {
      double wait = 0;
      if (op.awaited > 0)
        wait =
            std::max(0.0, rank.arrived[list][static_cast<std::size_t>(op.awaited - 1)] - rank.now);
      rank.now += wait + op.seconds;
      if (op.awaited > 0)
        Used(&rank, slots_[list][static_cast<std::size_t>(op.awaited - 1)], rank.now);
      if (&rank == &ranks_.front()) waits_.waits[list].push_back(wait);
    }
  }

  void Hop(const RingOp& op) {
    const auto list = static_cast<std::size_t>(op.list);
    const HopShape& hop = *op.hop;
    slots_[list].push_back(hop.to);
    for (std::size_t to = 0; to < ranks_.size(); ++to) {
      RingRank& receiver = ranks_[to];
      const RingRank& sender = ranks_[to == 0 ? ranks_.size() - 1 : to - 1];
      const double has = hop.forwards > 0
                             ? sender.arrived[list][static_cast<std::size_t>(hop.forwards - 1)]
                             : sender.now;
      const auto read = receiver.read.find(hop.to);
      const double free = read == receiver.read.end() ? 0 : read->second;
      ends_.push_back(std::max({has, sender.sent, receiver.received, free}) +
                      hop_seconds_(hop.bytes, to == 0));
    }
    for (std::size_t to = 0; to < ranks_.size(); ++to) {
      RingRank& sender = ranks_[to == 0 ? ranks_.size() - 1 : to - 1];
      ranks_[to].received = ends_[to];
      ranks_[to].arrived[list].push_back(ends_[to]);
      sender.sent = ends_[to];
      Used(&sender, hop.from, ends_[to]);
    }
    ends_.clear();
  }

  static void Used(RingRank* rank, int slot, double until) {
    if (slot < 0) return;
    double& read = rank->read[slot];
    read = std::max(read, until);
  }

  std::span<const RingOp> ops_;
  const std::function<double(double, bool)>& hop_seconds_;
  std::vector<RingRank> ranks_;
  std::vector<std::vector<int>> slots_;  // by list and hop
  std::vector<double> ends_;
  RingWaits waits_;
};

}  // namespace

RingWaits WaitsOfRing(std::span<const RingOp> ops, int lists, int ranks,
                      const std::function<double(double bytes, bool leaves)>& hop_seconds) {
  return Ring(ops, lists, ranks, hop_seconds).Run();
}

}  // namespace orrery
