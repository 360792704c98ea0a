// SPDX-License-Identifier: Apache-2.0
// Timers in batches. Ranks in step ask for the same delay at the same instant: they share one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/engine/event/index.h"
#include "model/engine/network/network.h"

namespace orrery::sim {

// `Owner` has OnDue(const Due&), for each, and AfterDue(), once per batch. It must outlive this.
template <class Due, class Owner>
class DueTimers {
 public:
  DueTimers(net::Network* network, Owner* owner) : network_(*network), owner_(*owner) {}

  void Add(const Due& due, double delay) {
    const double now = network_.Now().value;
    if (open_ < 0 || open_now_ != now || open_delay_ != delay) {
      open_ = NewBatch();
      open_now_ = now;
      open_delay_ = delay;
      network_.After(Seconds(delay), [this, batch = open_] { End(batch); });
    }
    batches_[At(open_)].push_back(due);
  }

  // What comes at the same instant has a timer of its own.
  void Close() { open_ = -1; }

 private:
  int32_t NewBatch() {
    if (free_.empty()) {
      batches_.emplace_back();
      return static_cast<int32_t>(batches_.size()) - 1;
    }
    const int32_t batch = free_.back();
    free_.pop_back();
    return batch;
  }

  void End(int32_t batch) {
    if (open_ == batch) open_ = -1;
    std::vector<Due> dues = std::move(batches_[At(batch)]);
    for (const Due& due : dues) owner_.OnDue(due);
    dues.clear();
    batches_[At(batch)] = std::move(dues);  // keeps its memory
    free_.push_back(batch);
    owner_.AfterDue();
  }

  net::Network& network_;
  Owner& owner_;
  std::vector<std::vector<Due>> batches_;
  std::vector<int32_t> free_;
  int32_t open_ = -1;  // the batch that takes more
  double open_now_ = 0, open_delay_ = 0;
};

}  // namespace orrery::sim
