// SPDX-License-Identifier: Apache-2.0
// Orders NICs and GPUs as NCCL's search does (src/graph/search.cc, see search.h).
#include "model/collectives/nccl/choices.h"

#include <algorithm>

namespace orrery::nccl {

Choices::Choices(const System& system, Distance farthest) : system_(system), farthest_(farthest) {
  nets_.resize(At(system_.gpus() + 1));
  ways_.resize(At(system_.gpus() * (system_.nets() + 1)));
  for (int n = 0; n < system_.nets(); ++n) {
    Distance distance = kDisconnected;
    near_.push_back(system_.Nearest(DeviceType::kNet, n, DeviceType::kGpu, &distance));
    if (distance == kDisconnected) near_.back().clear();
  }
}

const std::vector<int>& Choices::Nets(int gpu) {
  std::vector<int>& nets = nets_[At(gpu + 1)];
  if (!nets.empty()) return nets;
  const auto add = [&](int net) {
    if (std::ranges::find(nets, net) == nets.end()) nets.push_back(net);
  };
  const int first = gpu < 0 ? 0 : gpu, end = gpu < 0 ? system_.gpus() : gpu + 1;
  if (system_.hosts() > 1) {
    // Over several hosts: the first of every GPU, then the second of every GPU.
    std::vector<std::vector<int>> lists;
    std::size_t longest = 0;
    for (int g = first; g < end; ++g) {
      lists.push_back(system_.NetsOf(g));
      longest = std::max(longest, lists.back().size());
    }
    for (std::size_t c = 0; c < longest; ++c) {
      for (const auto& list : lists) {
        if (c < list.size()) add(list[c]);
      }
    }
  } else {
    for (int g = first; g < end; ++g) std::ranges::for_each(system_.NetsOf(g), add);
  }
  for (int t = 0; t <= farthest_; ++t) {
    for (int g = first; g < end; ++g) {
      for (int n = 0; n < std::min(system_.nets(), kMostChannels); ++n) {
        if (system_.PathOf(DeviceType::kGpu, g, DeviceType::kNet, n).distance == t) add(n);
      }
    }
  }
  return nets;
}

const std::vector<Way>& Choices::WaysFrom(int gpu, int net) {
  std::vector<Way>& ways = ways_[At(gpu * (system_.nets() + 1) + net + 1)];
  if (!ways.empty()) return ways;
  for (int i = 1; i < system_.gpus(); ++i) {
    Way way;
    way.gpu = (gpu + i) % system_.gpus();
    way.turn = i;
    const Path& path = system_.PathOf(DeviceType::kGpu, gpu, DeviceType::kGpu, way.gpu);
    if (path.steps.empty()) continue;
    way.hops = static_cast<int>(path.steps.size());
    way.rate = static_cast<int>(path.bandwidth);
    if (net >= 0) {
      const Path& back = system_.PathOf(DeviceType::kNet, net, DeviceType::kGpu, way.gpu);
      way.net_rate = static_cast<int>(back.bandwidth);
      way.net_hops = static_cast<int>(back.steps.size());
    }
    ways.push_back(way);
  }
  std::ranges::sort(ways, {}, &Way::Score);
  return ways;
}

std::vector<Way> Choices::SortedWays(int gpu, int net) {
  std::vector<Way> ways = WaysFrom(gpu, net);
  if (net < 0) return ways;
  for (Way& way : ways) way.pcie = static_cast<int>(system_.PcieLeft(way.gpu));
  std::ranges::sort(ways, {}, &Way::Score);
  return ways;
}

}  // namespace orrery::nccl
