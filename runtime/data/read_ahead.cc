// SPDX-License-Identifier: Apache-2.0
// The thread that reads ahead.
#include "runtime/data/read_ahead.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace orrery::train {

ReadAhead::ReadAhead(std::function<TokenSample(int64_t)> make)
    : make_(std::move(make)), thread_([this] { Work(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

TokenSamplePtr ReadAhead::Get(int64_t index) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return making_ != index; });
  if (const auto found = ready_.find(index); found != ready_.end()) return found->second;
  std::erase(wanted_, index);
  ++late_;
  lock.unlock();
  auto sample = std::make_shared<const TokenSample>(make_(index));
  lock.lock();
  ready_.emplace(index, sample);
  return sample;
}

void ReadAhead::Want(const std::vector<int64_t>& indices) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(ready_, [&](const auto& entry) {
      return std::find(indices.begin(), indices.end(), entry.first) == indices.end();
    });
    wanted_.clear();
    for (const int64_t index : indices) {
      if (ready_.count(index) == 0 && index != making_) wanted_.push_back(index);
    }
  }
  changed_.notify_all();
}

void ReadAhead::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !wanted_.empty(); });
    if (ends_) return;
    making_ = wanted_.front();
    wanted_.pop_front();
    lock.unlock();
    TokenSamplePtr sample;
    try {
      sample = std::make_shared<const TokenSample>(make_(making_));
    } catch (const std::exception&) {  // Get() meets the same and reports it
    }
    lock.lock();
    if (sample) ready_.emplace(making_, std::move(sample));
    making_ = -1;
    changed_.notify_all();
  }
}

}  // namespace orrery::train
