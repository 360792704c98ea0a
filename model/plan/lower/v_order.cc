// SPDX-License-Identifier: Apache-2.0
// Runs a V of passes of usual lengths and writes down who ran what.
#include "model/plan/lower/v_order.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "model/base/check.h"

namespace orrery {
namespace {

using Orders = std::vector<std::vector<PassCall>>;
constexpr int kKinds = 3, kChunks = 2;
// Forward, backward, weight gradient, relative: of six usual proportions of layers and of 2 to 12 stages, lists made for these
// leave least idle on average (6 %); lists made for equal passes leave up to 55 % where passes are not equal.
constexpr std::array<int, kKinds> kLengths = {5, 7, 4};
constexpr std::size_t kMostPasses = 2'000'000;  // kept; 16 bytes each

class VRun {
 public:
  VRun(int stages, int micro_batches)
      : p_(stages),
        m_(micro_batches),
        free_(stages, 0),
        called_(stages),
        ended_(stages),
        orders_(stages) {}

  Orders Run() {
    const std::size_t all = std::size_t{kKinds} * kChunks * p_ * m_;
    for (std::size_t done = 0; done < all; ++now_) {
      bool busy = false;
      for (int stage = 0; stage < p_; ++stage) {
        if (free_[stage] <= now_) done += Step(stage);
        busy = busy || free_[stage] > now_;
      }
      ORRERY_CHECK(busy, "no pass of {} stages is ready", p_);
    }
    return std::move(orders_);
  }

 private:
  using Counts = std::array<std::array<int, kChunks>, kKinds>;
  using Dates = std::array<std::array<std::vector<int>, kChunks>, kKinds>;

  // Whether the pass of a virtual stage has ended before now.
  bool Ended(PassCall::Kind kind, int virtual_stage, int micro_batch) const {
    const StageChunk at = ChunkAt(true, p_, virtual_stage);
    const std::vector<int>& dates = ended_[at.stage][kind][at.chunk];
    return micro_batch < static_cast<int>(dates.size()) && dates[micro_batch] <= now_;
  }

  bool Ready(int stage, PassCall::Kind kind, int chunk) const {
    const int next = called_[stage][kind][chunk], v = VirtualStage(true, p_, stage, chunk);
    if (next == m_) return false;
    switch (kind) {
      case PassCall::kForward:
        return Held(stage) < 2 * p_ && (v == 0 || Ended(kind, v - 1, next));
      case PassCall::kBackward:
        return v + 1 < 2 * p_ ? Ended(kind, v + 1, next) : Ended(PassCall::kForward, v, next);
      case PassCall::kWeightGrad:
        return Ended(PassCall::kBackward, v, next);
    }
    return false;
  }

  // Forward passes whose activations the gradients of weights still need.
  int Held(int stage) const {
    const Counts& counts = called_[stage];
    return counts[PassCall::kForward][0] + counts[PassCall::kForward][1] -
           counts[PassCall::kWeightGrad][0] - counts[PassCall::kWeightGrad][1];
  }

  std::size_t Step(int stage) {
    const auto& weights = called_[stage][PassCall::kWeightGrad];
    const int older = weights[0] < weights[1] ? 0 : 1;
    for (const auto& [kind, chunk] : {std::pair{PassCall::kForward, 1},
                                      {PassCall::kForward, 0},
                                      {PassCall::kBackward, 0},
                                      {PassCall::kBackward, 1},
                                      {PassCall::kWeightGrad, older},
                                      {PassCall::kWeightGrad, 1 - older}}) {
      if (!Ready(stage, kind, chunk)) continue;
      auto& counts = called_[stage][kind];
      orders_[stage].push_back({kind, chunk, counts[chunk], counts[0] + counts[1]});
      ++counts[chunk];
      free_[stage] = now_ + kLengths[kind];
      ended_[stage][kind][chunk].push_back(free_[stage]);
      return 1;
    }
    return 0;
  }

  const int p_, m_;
  int now_ = 0;
  std::vector<int> free_;  // from when on
  std::vector<Counts> called_;
  std::vector<Dates> ended_;
  Orders orders_;
};

}  // namespace

std::shared_ptr<const std::vector<PassCall>> PassesInV(int stages, int stage, int micro_batches) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::shared_ptr<const Orders>> known;
  static std::size_t passes = 0;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Orders>& orders = known[{stages, micro_batches}];
  if (!orders) {
    auto made = std::make_shared<const Orders>(VRun(stages, micro_batches).Run());
    passes += std::size_t{kKinds} * kChunks * stages * micro_batches;
    if (passes > kMostPasses) {
      known.clear();
      passes = 0;
      return {made, &(*made)[stage]};
    }
    orders = std::move(made);
  }
  return {orders, &(*orders)[stage]};
}

}  // namespace orrery
