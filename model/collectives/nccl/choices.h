// SPDX-License-Identifier: Apache-2.0
// What a walk tries next, best first: the NICs of a channel, and the GPUs after a GPU.
#pragma once

#include <array>
#include <vector>

#include "model/collectives/nccl/system.h"

namespace orrery::nccl {

// One GPU that another may go to.
struct Way {
  int gpu = 0;
  int turn = 0;  // counted from the other
  int hops = 0, rate = 0;
  int net_hops = 0, net_rate = 0;  // to the NIC of the channel
  int pcie = 0;                    // what its slot has left

  // Smaller is better: near to the NIC, then on good links, then in turn.
  std::array<int, 6> Score() const { return {-net_rate, -pcie, net_hops, -rate, hops, turn}; }
};

class Choices {
 public:
  // `farthest`: a NIC may be from its GPU. The system must outlive it; bandwidth may be taken from it meanwhile.
  Choices(const System& system, Distance farthest);

  // NICs to try, the preferred ones of each GPU first; `gpu` -1: of all.
  const std::vector<int>& Nets(int gpu);
  // The GPUs nearest to a NIC.
  const std::vector<int>& GpusNear(int net) const { return near_[static_cast<std::size_t>(net)]; }
  // All other GPUs, with what the search has left of the slots. `net`: of the channel; -1: no matter.
  std::vector<Way> SortedWays(int gpu, int net);

 private:
  // The same with empty slots.
  const std::vector<Way>& WaysFrom(int gpu, int net);

  const System& system_;
  const Distance farthest_;
  std::vector<std::vector<int>> nets_;  // by GPU + 1: see Nets()
  std::vector<std::vector<int>> near_;  // by NIC
  std::vector<std::vector<Way>> ways_;  // by GPU and NIC + 1: see WaysFrom()
};

}  // namespace orrery::nccl
