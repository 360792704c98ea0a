// SPDX-License-Identifier: Apache-2.0
// KernelFactors as they stand in the file of a chip's profile, below `kernel_factors`:
//
//   kernel_factors:
//     bf16:
//       mm:                     # or AttentionShape::kernel()
//         spread: 0.06          # s, l and n of kernel_factors.h
//         reach: 2
//         noise: 0.02
//         points: 120           # measurements behind the shapes
//         source: text
//         left_out_error: {formula: 0.07, table: 0.03}   # mean |error| of shapes left out
//         shapes:               # m, n, k, batch (or batch x heads, queries, keys, head width), then
//           - [4096, 4096, 1024, 1, 1.034]               # measured over formula
#pragma once

#include <string>

#include "model/base/node.h"
#include "model/hardware/profile.h"

namespace orrery {

// Reports mistakes to the node's diagnostics.
void ReadKernelFactors(const Node& factors, GpuProfile* profile);

}  // namespace orrery
