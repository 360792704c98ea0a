// SPDX-License-Identifier: Apache-2.0
// Samples made ready on a thread of their own while the step before them computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery::train {

struct TokenSample {
  std::vector<uint32_t> tokens;  // as in the file
  std::vector<uint32_t> input;   // what the model sees; empty: `tokens`
  std::vector<int32_t> masked;   // positions to predict, rising
};
using TokenSamplePtr = std::shared_ptr<const TokenSample>;

class ReadAhead {
 public:
  // `make` is called from two threads at once.
  explicit ReadAhead(std::function<TokenSample(int64_t)> make);
  ~ReadAhead();

  // Waits for a sample that is being made, makes one that nobody has asked for.
  TokenSamplePtr Get(int64_t index);
  // Makes these ready, in this order, and forgets all others.
  void Want(const std::vector<int64_t>& indices);
  int64_t made_late() const { return late_; }  // samples that Get had to make itself

 private:
  void Work();

  const std::function<TokenSample(int64_t)> make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, TokenSamplePtr> ready_;
  std::deque<int64_t> wanted_;
  int64_t making_ = -1, late_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace orrery::train
