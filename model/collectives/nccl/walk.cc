// SPDX-License-Identifier: Apache-2.0
// Depth-first search with bandwidth taken from links on the way down and given back on the way up.
#include "model/collectives/nccl/walk.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "model/collectives/nccl/choices.h"

namespace orrery::nccl {
namespace {

constexpr int kStepsInRankOrder = 1 << 10;

enum class Order { kFree, kByRank, kAsLastChannel };

bool IsTree(Pattern pattern) {
  return pattern == Pattern::kBalancedTree || pattern == Pattern::kTree ||
         pattern == Pattern::kSplitTree;
}

class Walk {
 public:
  Walk(System* system, Graph* graph, Graph* best, int steps)
      : system_(*system),
        graph_(*graph),
        best_(*best),
        steps_(steps),
        choices_(*system, graph->distance_across) {
    used_.assign(At(system_.gpus()), 0);
    graph_.order.resize(At(kMostChannels * system_.gpus()));
    graph_.nets.resize(kMostChannels);
  }

  // Steps that were left; -1: as many channels as allowed, nothing can be better.
  int Run() {
    NextChannel();
    return steps_;
  }

 private:
  int gpus() const { return system_.gpus(); }
  int& OrderAt(int channel, int place) { return graph_.order[At(channel * gpus() + place)]; }

  void NextChannel() {
    const bool ring = graph_.pattern == Pattern::kRing;
    const int to_net = !system_.across()                       ? -1
                       : ring                                  ? gpus() - 1
                       : graph_.pattern == Pattern::kSplitTree ? 1
                                                               : 0;
    const int to_first = ring && !system_.across() ? gpus() - 1 : -1;
    if (system_.across()) {
      FromNets(to_net, to_first);
      return;
    }
    if (graph_.pattern == Pattern::kNvls) {
      Enter(graph_.channels, 0, to_net, to_first, Order::kFree);
      return;
    }
    if (graph_.channels == 0)
      Enter(0, 0, to_net, to_first, Order::kByRank);
    else
      Enter(OrderAt(graph_.channels - 1, 0), 0, to_net, to_first, Order::kAsLastChannel);
    if (graph_.same_channels && graph_.channels > 0) return;
    for (int g = 0; g < gpus(); ++g) Enter(g, 0, to_net, to_first, Order::kFree);
  }

  // The first GPU of a channel, from nowhere.
  void Enter(int gpu, int place, int to_net, int to_first, Order order) {
    used_[At(gpu)] ^= Flag();
    FromGpu(gpu, place, to_net, to_first, order);
    used_[At(gpu)] ^= Flag();
  }

  uint64_t Flag() const { return uint64_t{1} << graph_.channels; }

  void GoTo(DeviceType from, int index, int gpu, int place, int to_net, int to_first, Order order) {
    if (!Take(from, index, DeviceType::kGpu, gpu, 1)) return;
    used_[At(gpu)] ^= Flag();
    FromGpu(gpu, place, to_net, to_first, order);
    used_[At(gpu)] ^= Flag();
    Take(from, index, DeviceType::kGpu, gpu, -1);
  }

  void FromNets(int to_net, int to_first) {
    const int whole = static_cast<int>(graph_.across);  // NCCL drops the fraction here
    const std::vector<int>& nets = choices_.Nets(-1);
    const int count = static_cast<int>(nets.size());
    const bool heads_only = graph_.pattern == Pattern::kNvls || graph_.pattern == Pattern::kDirect;
    bool found = false;
    for (int i = 0; i < count; ++i) {
      if (heads_only && found) break;
      const int n = nets[At((graph_.channels + i) % count)];
      SystemDevice& net = system_.At(DeviceType::kNet, n);
      if (graph_.in_network && !system_.node().in_network) continue;
      if (net.net_rate < static_cast<float>(whole)) continue;
      if (graph_.pattern == Pattern::kRing && graph_.cross_nic == 2 && graph_.channels % 2 == 1 &&
          n != graph_.nets[At(graph_.channels - 1)][1])
        continue;
      graph_.nets[At(graph_.channels)][0] = n;
      net.net_rate -= static_cast<float>(whole);
      if (heads_only)
        found = TryHead(n, count, to_net, to_first) || found;
      else
        FromNet(n, to_net, to_first);
      system_.At(DeviceType::kNet, n).net_rate += static_cast<float>(whole);
    }
  }

  bool TryHead(int n, int nets, int to_net, int to_first) {
    const int gpu = system_.At(DeviceType::kNet, n).nearest_gpu;
    if (graph_.channels >= nets || gpu < 0) return false;
    for (int c = 0; c < graph_.channels; ++c) {
      if (OrderAt(c, 0) == gpu) return false;
    }
    GoTo(DeviceType::kNet, n, gpu, 0, to_net, to_first, Order::kFree);
    return true;
  }

  void FromNet(int n, int to_net, int to_first) {
    if (graph_.channels > 0 && graph_.same_channels) {
      GoTo(DeviceType::kNet, n, OrderAt(graph_.channels - 1, 0), 0, to_net, to_first,
           Order::kAsLastChannel);
      return;
    }
    if (graph_.channels == 0 && system_.count(DeviceType::kNvSwitch) == 0) {
      // In rank order first, on a count of its own.
      const int steps = steps_;
      steps_ = kStepsInRankOrder;
      GoTo(DeviceType::kNet, n, 0, 0, to_net, to_first, Order::kByRank);
      steps_ = steps_ == -1 ? -1 : steps;
    }
    const int nearest = system_.At(DeviceType::kNet, n).nearest_gpu;
    if (nearest >= 0) GoTo(DeviceType::kNet, n, nearest, 0, to_net, to_first, Order::kFree);
    for (const int gpu : choices_.GpusNear(n)) {
      if (gpu != nearest) GoTo(DeviceType::kNet, n, gpu, 0, to_net, to_first, Order::kFree);
    }
  }

  // At a GPU, as number `place` of its channel.
  void FromGpu(int gpu, int place, int to_net, int to_first, Order order) {
    if (steps_ <= 0) return;
    --steps_;
    if (place == gpus()) {
      Complete();
      return;
    }
    OrderAt(graph_.channels, place) = gpu;
    if (place == to_net) {
      BackToNet(gpu, place, to_first, order);
    } else if (graph_.pattern == Pattern::kNvls) {
      ThroughSwitch(gpu);
    } else if (graph_.pattern == Pattern::kDirect) {
      ToAllOthers(gpu);
    } else if (place < gpus() - 1) {
      ToNextGpus(gpu, place, to_net, to_first, order);
    } else if (place == to_first) {
      const int first = OrderAt(graph_.channels, 0);
      if (!Take(DeviceType::kGpu, gpu, DeviceType::kGpu, first, 1)) return;
      FromGpu(first, place + 1, to_net, -1, order);
      Take(DeviceType::kGpu, gpu, DeviceType::kGpu, first, -1);
    } else {
      FromGpu(gpu, gpus(), -1, -1, order);
    }
  }

  void Complete() {
    ++graph_.channels;
    if (IsBetter()) {
      best_ = graph_;
      if (graph_.channels == graph_.most_channels) steps_ = -1;
    }
    if (graph_.channels < graph_.most_channels) NextChannel();
    --graph_.channels;
  }

  bool IsBetter() const {
    if (graph_.channels < graph_.least_channels) return false;
    const auto channels = static_cast<float>(graph_.channels);
    const auto known = static_cast<float>(best_.channels);
    if (graph_.pattern == Pattern::kNvls) {
      return (graph_.channels > best_.channels && graph_.channels <= gpus()) ||
             channels * graph_.across > known * best_.across;
    }
    if (channels * graph_.inside != known * best_.inside)
      return channels * graph_.inside > known * best_.inside;
    return graph_.pattern == best_.pattern && graph_.cross_nic == best_.cross_nic &&
           graph_.hops < best_.hops;
  }

  void BackToNet(int gpu, int place, int to_first, Order order) {
    if (!system_.across()) return;
    const int start = graph_.nets[At(graph_.channels)][0];
    for (const int n : choices_.Nets(gpu)) {
      if (!MayReturnBy(start, n, place)) continue;
      // A balanced tree loads its first two GPUs with half of the traffic each.
      const bool balanced = graph_.pattern == Pattern::kBalancedTree;
      const int next_to_net = balanced && place == 0 ? 1 : -1;
      const float across = graph_.across;
      if (balanced) graph_.across /= 2;
      const bool taken = Take(DeviceType::kGpu, gpu, DeviceType::kNet, n, 1);
      graph_.across = across;
      if (!taken) continue;
      graph_.nets[At(graph_.channels)][1] = n;
      FromGpu(gpu, place, next_to_net, to_first, order);
      if (balanced) graph_.across /= 2;
      Take(DeviceType::kGpu, gpu, DeviceType::kNet, n, -1);
      graph_.across = across;
    }
  }

  bool MayReturnBy(int start, int net, int place) const {
    if (graph_.pattern == Pattern::kTree && net != start) return false;
    if (graph_.pattern == Pattern::kRing && graph_.cross_nic == 2) {
      if (graph_.channels % 2 == 1 && net != graph_.nets[At(graph_.channels - 1)][0]) return false;
    } else if (graph_.cross_nic == 0 && net != start) {
      return false;
    }
    return graph_.pattern != Pattern::kBalancedTree || place == 0 ||
           net == graph_.nets[At(graph_.channels)][1];
  }

  // The head of a channel pulls twice, every other GPU once.
  void ThroughSwitch(int head) {
    const auto load = [&](int gpu) { return gpu == head ? 2.0F : 1.0F; };
    int down = 0, up = 0;
    while (down < gpus() && Take(DeviceType::kNvSwitch, 0, DeviceType::kGpu, down, load(down)))
      ++down;
    if (down == gpus()) {
      while (up < gpus() && Take(DeviceType::kGpu, up, DeviceType::kNvSwitch, 0, load(up))) ++up;
      if (up == gpus()) FromGpu(-1, gpus(), -1, -1, Order::kFree);
    }
    while (up > 0) {
      --up;
      Take(DeviceType::kGpu, up, DeviceType::kNvSwitch, 0, -load(up));
    }
    while (down > 0) {
      --down;
      Take(DeviceType::kNvSwitch, 0, DeviceType::kGpu, down, -load(down));
    }
  }

  void ToAllOthers(int head) {
    const float share = 1.0F / static_cast<float>(gpus() - 1);
    int out = 0, in = 0;
    while (out < gpus() && Take(DeviceType::kGpu, head, DeviceType::kGpu, out, share)) ++out;
    if (out == gpus()) {
      while (in < gpus() && Take(DeviceType::kGpu, in, DeviceType::kGpu, head, share)) ++in;
      if (in == gpus()) {
        int place = 1;
        for (int g = 0; g < gpus(); ++g) {
          if (g != head) OrderAt(graph_.channels, place++) = g;
        }
        FromGpu(-1, gpus(), -1, -1, Order::kFree);
      }
      while (in > 0) {
        --in;
        Take(DeviceType::kGpu, in, DeviceType::kGpu, head, -share);
      }
    }
    while (out > 0) {
      --out;
      Take(DeviceType::kGpu, head, DeviceType::kGpu, out, -share);
    }
  }

  // Takes `times` the bandwidth of a channel from a path, or gives it back where negative. False:
  // the path is too far or has not so much left, and nothing was taken.
  bool Take(DeviceType from, int index, DeviceType to, int other, float times) {
    const auto is_local = [](DeviceType type) {
      return type == DeviceType::kGpu || type == DeviceType::kNvSwitch;
    };
    const bool inside = is_local(from) && is_local(to);
    const Distance most = inside ? graph_.distance_inside : graph_.distance_across;
    const Path& path = system_.PathOf(from, index, to, other);
    if (path.distance >= kDisconnected) return false;
    if (times == 1 && path.distance > most) return false;
    if (times == 1 && IsTree(graph_.pattern) &&
        system_.PathOf(to, other, from, index).distance > most)
      return false;
    const float bandwidth = (inside ? graph_.inside : graph_.across) * times;
    const int done = Follow(path, from, static_cast<int>(path.steps.size()), bandwidth);
    if (done < static_cast<int>(path.steps.size())) {
      Follow(path, from, done, -bandwidth);
      return false;
    }
    graph_.hops = static_cast<int>(static_cast<float>(graph_.hops) +
                                   times * static_cast<float>(path.steps.size()));
    return true;
  }

  static void Subtract(float* from, float what) {
    *from = static_cast<float>(static_cast<int>((*from - what) * 1000 + .5F)) / 1000;
  }

  // Up to `most` steps; returns how many had the bandwidth.
  int Follow(const Path& path, DeviceType from, int most, float bandwidth) {
    float pcie = bandwidth;
    if (path.distance == kThroughCpu && from == DeviceType::kGpu &&
        system_.node().cpu == HostKind::kIntel)
      pcie = bandwidth * 6 / 5;  // Intel's root complex splits packets between GPUs
    for (int i = 0; i < most; ++i) {
      const Path::Hop& hop = path.hops[At(i)];
      const float forward = hop.pcie ? pcie : bandwidth;
      const float backward = hop.back == nullptr ? 0 : forward / 8;
      if (*hop.left < forward || (backward != 0 && *hop.back < backward)) return i;
      Subtract(hop.left, forward);
      if (backward != 0) Subtract(hop.back, backward);
    }
    return most;
  }

  bool Free(int gpu) const { return (used_[At(gpu)] & Flag()) == 0; }

  void ToNextGpus(int gpu, int place, int to_net, int to_first, Order order) {
    const auto go = [&](int next) {
      GoTo(DeviceType::kGpu, gpu, next, place + 1, to_net, to_first, order);
    };
    if (order == Order::kByRank) return go(place + 1);
    if (order == Order::kAsLastChannel) {
      if (graph_.channels > 0) go(OrderAt(graph_.channels - 1, place + 1));
      return;
    }
    if (system_.count(DeviceType::kNvSwitch) > 0) return ToNeighbours(gpu, go);
    const int net = to_net >= 0 ? graph_.nets[At(graph_.channels)][0] : -1;
    const std::vector<Way> ways = choices_.SortedWays(gpu, net);
    const Way* first = nullptr;
    bool alike = true;
    for (const Way& way : ways) {
      if (!Free(way.gpu)) continue;
      if (first == nullptr) first = &way;
      alike = alike && way.rate == first->rate && way.hops == first->hops;
    }
    // Far from its NIC still: the farthest from it first, where links inside are all alike.
    const bool backwards = to_net >= 0 && to_net != place + 1 && alike;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const Way& way = ways[backwards ? ways.size() - 1 - i : i];
      if (Free(way.gpu)) go(way.gpu);
    }
  }

  // Over a switch only neighbours are tried: few partners keep it fast.
  template <class Go>
  void ToNeighbours(int gpu, const Go& go) const {
    const int before = (gpu - 1 + gpus()) % gpus(), after = (gpu + 1) % gpus();
    const bool tree =
        graph_.pattern == Pattern::kSplitTree || graph_.pattern == Pattern::kBalancedTree;
    const int second = tree ? before : after, first = tree ? after : before;
    const bool both = tree || graph_.pattern == Pattern::kRing;
    if (both && before != after && Free(first)) go(first);
    if (Free(second)) go(second);
  }

  System& system_;
  Graph& graph_;
  Graph& best_;
  int steps_ = 0;
  Choices choices_;
  std::vector<uint64_t> used_;  // by GPU: a bit per channel
};

}  // namespace

// The search follows paths hundreds of thousands of times.
void System::ResolvePaths() {
  const auto back = [&](int device, const SystemLink& link) -> float* {
    auto& links = At(link.to).links;
    const auto found = std::ranges::find_if(
        links, [&](const SystemLink& one) { return one.to == device && one.type == link.type; });
    return found == links.end() ? nullptr : &found->bandwidth;
  };
  constexpr int kAmpere = 80;
  for (SystemDevice& from : devices_) {
    for (std::vector<Path>& paths : from.paths) {
      for (Path& path : paths) {
        for (const Path::Step& step : path.steps) {
          SystemLink& link = At(step.device).links[static_cast<std::size_t>(step.link)];
          // Writing into an older GPU costs reads.
          const bool reads = At(link.to).type == DeviceType::kGpu && node_.capability < kAmpere &&
                             from.type != DeviceType::kGpu;
          path.hops.push_back({&link.bandwidth, reads ? back(step.device, link) : nullptr,
                               link.type == LinkType::kPcie});
        }
      }
    }
  }
}

int FindChannelsAt(System* system, Graph* graph, Graph* best, int steps) {
  return Walk(system, graph, best, steps).Run();
}

}  // namespace orrery::nccl
