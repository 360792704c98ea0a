// SPDX-License-Identifier: Apache-2.0
// Searches at falling bandwidth, then lifts what it found.
#include "model/collectives/nccl/search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "model/collectives/nccl/walk.h"

namespace orrery::nccl {
namespace {

constexpr int kMostHeadsInSwitch = 32;
constexpr int kMostDirectPeers = 7;

// Steps of one search, by kind, and of all together.
constexpr int kSteps = 1 << 14;
constexpr int kStepsSameChannels = 1 << 8;
constexpr int64_t kStepsInAll = 1 << 19;

// Bandwidth of a channel that is tried, from the top; src/graph/search.cc.
constexpr float kInside[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr float kAcross[] = {48, 30, 28, 24, 20, 18,  15,  12,   10,  9,
                             7,  6,  5,  4,  3,  2.4, 1.2, 0.24, 0.12};
constexpr float kInside90[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr float kAcross90[] = {48, 45, 42, 40, 30,  24,  22,   20,  17.5,
                               15, 12, 6,  3,  2.4, 1.2, 0.24, 0.12};
constexpr float kInside100[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr float kAcross100[] = {96,   48, 45.1F, 42, 40, 30,  24,  22,   20,
                                17.5, 15, 12,    6,  3,  2.4, 1.2, 0.24, 0.12};

std::span<const float> Speeds(int capability, bool across) {
  if (capability >= 100) {
    if (across) return kAcross100;
    return kInside100;
  }
  if (capability >= 90) {
    if (across) return kAcross90;
    return kInside90;
  }
  if (across) return kAcross;
  return kInside;
}

// Few fast channels become twice as many of half the speed.
void Duplicate(int capability, int gpus, Graph* graph) {
  if (graph->channels == 0 || graph->pattern == Pattern::kNvls || graph->inside < 25) return;
  if (capability > 80 && graph->inside < 50 && graph->channels > 4) return;
  const int channels = std::min(graph->channels * 2, graph->most_channels);
  for (int c = graph->channels; c < channels; ++c) {
    const int from = c - graph->channels;
    std::copy_n(graph->order.begin() + from * gpus, gpus, graph->order.begin() + c * gpus);
    graph->nets[At(c)] = graph->nets[At(from)];
  }
  const auto by = static_cast<float>((channels + graph->channels - 1) / graph->channels);
  graph->inside /= by;
  graph->across /= by;
  graph->channels = channels;
}

class Sweep {
 public:
  Sweep(System* system, Graph* graph)
      : system_(*system),
        best_(*graph),
        speeds_(Speeds(system->node().capability, system->across())) {}

  void Run() {
    const int capability = system_.node().capability, gpus = system_.gpus();
    if (!Start(capability, gpus)) return;
    Lower();
    Duplicate(capability, gpus, &best_);
    Lift();
    if (best_.channels > 0 || best_.in_network || best_.pattern == Pattern::kNvls) return;
    for (int g = 0; g < gpus; ++g) best_.order[At(g)] = g;
    best_.nets[0] = {0, 0};
    best_.inside = best_.across = 0.1F;
    best_.distance_inside = best_.distance_across = kBetweenSockets;
    best_.channels = 1;
  }

 private:
  bool Start(int capability, int gpus) {
    const bool alternates = best_.pattern == Pattern::kRing ||
                            best_.pattern == Pattern::kBalancedTree ||
                            best_.pattern == Pattern::kSplitTree;
    may_cross_ = system_.nets() > 1 && alternates;
    best_.cross_nic = 0;
    best_.inside = best_.across = 0;
    best_.channels = 0;
    best_.order.assign(At(kMostChannels * gpus), 0);
    best_.nets.assign(kMostChannels, {0, 0});
    if (gpus > 1) {
      nearest_inside_ = system_.NearestPath(DeviceType::kGpu);
      farthest_inside_ = system_.FarthestPath(DeviceType::kGpu);
    }
    if (system_.across()) {
      nearest_across_ = system_.NearestPath(DeviceType::kNet);
      farthest_across_ = system_.FarthestPath(DeviceType::kNet);
      farthest_inside_ = farthest_across_;
    }
    best_.distance_inside = nearest_inside_;
    best_.distance_across = nearest_across_;
    try_same_ = best_.pattern != Pattern::kNvls;
    best_.same_channels = try_same_;
    if (best_.pattern == Pattern::kNvls) {
      if (system_.count(DeviceType::kNvSwitch) == 0 || capability < 90) return false;
      best_.most_channels = std::min(kMostHeadsInSwitch, gpus);
      if (!system_.across() && gpus > 1) best_.least_channels = best_.most_channels;
    }
    if (best_.pattern == Pattern::kDirect)
      best_.most_channels = std::min(kMostDirectPeers + 1, gpus);
    if (gpus == 1 && best_.pattern != Pattern::kRing) best_.pattern = Pattern::kTree;
    if (best_.pattern == Pattern::kRing && system_.SplitNvLink() && best_.most_channels >= 2 &&
        best_.least_channels == 1)
      best_.least_channels = 2;
    trial_ = best_;
    float total = system_.total();
    if (gpus > 1 && best_.pattern != Pattern::kRing)
      total *= static_cast<float>(gpus * 1.0 / (gpus - 1));
    while ((speeds_[speed_] > system_.channel_limit() ||
            speeds_[speed_] * static_cast<float>(trial_.least_channels) > total) &&
           speed_ + 1 < speeds_.size())
      ++speed_;
    trial_.inside = trial_.across = speeds_[speed_];
    return true;
  }

  // One search; -1 or 0: nothing can be better, or steps ran out.
  int Try() {
    const int steps = trial_.same_channels ? kStepsSameChannels : kSteps;
    left_ -= steps;
    trial_.channels = 0;
    return FindChannelsAt(&system_, &trial_, &best_, steps);
  }

  bool Enough(int steps) const {
    return steps == -1 || static_cast<float>(best_.channels) * best_.across >= system_.total();
  }

  void Lower() {
    for (;;) {
      const int steps = Try();
      if (Enough(steps)) return;
      const bool through_amd =
          system_.node().cpu == HostKind::kAmd && trial_.distance_inside == kBetweenSockets;
      if (trial_.same_channels && !through_amd) {
        trial_.same_channels = false;
        continue;
      }
      trial_.same_channels = try_same_;
      left_ += steps;
      if (left_ < 0 && best_.channels > 0) return;
      if (!NextKind() && !NextDistance() && !NextSpeed()) return;
    }
  }

  bool NextKind() {
    if (system_.node().capability >= 90 && trial_.pattern == Pattern::kBalancedTree) {
      trial_.pattern = Pattern::kTree;
      return true;
    }
    trial_.pattern = best_.pattern;
    return false;
  }

  static Distance Farther(Distance distance) { return static_cast<Distance>(distance + 1); }

  bool NextDistance() {
    const Distance most_inside = system_.across() ? trial_.distance_across : farthest_inside_;
    if (trial_.distance_inside < most_inside &&
        (best_.channels == 0 || trial_.distance_inside < best_.distance_inside)) {
      trial_.distance_inside = Farther(trial_.distance_inside);
      if (trial_.distance_inside < kDisconnected) return true;
    }
    trial_.distance_inside = nearest_inside_;
    if (system_.across() && trial_.distance_across < farthest_across_ &&
        (best_.channels == 0 || trial_.distance_across < best_.distance_across ||
         trial_.distance_across < kOtherGpusNic)) {
      trial_.distance_across = Farther(trial_.distance_across);
      if (trial_.distance_across < kDisconnected) return true;
    }
    trial_.distance_across = nearest_across_;
    if (may_cross_ && trial_.cross_nic == 0 &&
        (best_.pattern == Pattern::kRing || best_.pattern == Pattern::kBalancedTree)) {
      trial_.cross_nic = 2;
      return true;
    }
    trial_.cross_nic = 0;
    return false;
  }

  bool NextSpeed() {
    if (speed_ + 1 >= speeds_.size()) return false;
    if (best_.channels > 0 && speeds_[speed_ + 1] / best_.across <= .49) return false;
    trial_.inside = trial_.across = speeds_[++speed_];
    return true;
  }

  // From the channels that were found: the same number at more bandwidth.
  void Lift() {
    trial_ = best_;
    speed_ = 0;
    while (speed_ + 1 < speeds_.size() && speeds_[speed_] > best_.across) ++speed_;
    trial_.inside = trial_.across = speeds_[speed_];
    trial_.least_channels = best_.channels;
    int steps = -1;
    while (steps != 0 && speed_ > 0) {
      if (best_.pattern == Pattern::kRing) {
        trial_.inside = trial_.across = speeds_[--speed_];
      } else if (best_.pattern == Pattern::kNvls && trial_.across == best_.across &&
                 trial_.across < trial_.inside * 2) {
        trial_.least_channels = trial_.most_channels = best_.channels;
        trial_.across = speeds_[--speed_];
      } else if (trial_.inside == best_.inside && trial_.inside < trial_.across * 2) {
        trial_.inside = speeds_[--speed_];
      } else {
        return;
      }
      steps = Try();
      if (Enough(steps)) continue;
    }
  }

  System& system_;
  Graph& best_;
  Graph trial_;
  std::span<const float> speeds_;
  std::size_t speed_ = 0;
  bool may_cross_ = false, try_same_ = true;
  Distance nearest_inside_ = kSameDevice, farthest_inside_ = kBetweenSockets;
  Distance nearest_across_ = kOneSwitch, farthest_across_ = kBetweenSockets;
  int64_t left_ = kStepsInAll;
};

}  // namespace

const char* Name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kBalancedTree:
      return "balanced_tree";
    case Pattern::kSplitTree:
      return "split_tree";
    case Pattern::kTree:
      return "tree";
    case Pattern::kRing:
      return "ring";
    case Pattern::kNvls:
      return "nvls";
    case Pattern::kDirect:
      return "collnet_direct";
  }
  return "";
}

void FindChannels(System* system, Graph* graph) { Sweep(system, graph).Run(); }

}  // namespace orrery::nccl
