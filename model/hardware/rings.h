// SPDX-License-Identifier: Apache-2.0
// Rings that fit side by side on the point-to-point links of one node.
#pragma once

#include <vector>

#include "model/hardware/spec.h"

namespace orrery {

// The largest number of directed Hamiltonian cycles over GPUs 0..n-1 that share no directed link.
// On the V100 hybrid cube mesh: 1, 2, 4, 0, 2, 4, 6 for n = 2..8, and measured bus bandwidth is
// 22.5 GB/s times that number. Exact unless the search exceeds its fixed budget (dense meshes of
// eight or more GPUs), then a lower bound. n = 1 has no ring.
int PackedRings(const std::vector<MeshLink>& mesh, int n);

// Same where GPUs without a link to each other may pass data on through a third GPU of the group, which takes a link
// into it and a link out of it: 2 on five GPUs of the cube mesh, which has no cycle of its own.
int RelayedRings(const std::vector<MeshLink>& mesh, int n);

// Such cycles themselves, each from GPU 0 on.
std::vector<std::vector<int>> FindRings(const std::vector<MeshLink>& mesh, int n);

}  // namespace orrery
