// SPDX-License-Identifier: Apache-2.0
// What the cache of a chip adds to its memory's bandwidth.
#pragma once

#include <cmath>

#include "model/hardware/profile.h"

namespace orrery {

// Bandwidth over that of the memory, of kernels whose operands have so many bytes.
inline double CacheFactor(const GpuProfile& gpu, double bytes) {
  const double reach = gpu.cache_reach * gpu.l2_cache.value;
  return reach > 0 ? 1.0 + gpu.cache_gain * std::exp(-bytes / reach) : 1.0;
}

}  // namespace orrery
