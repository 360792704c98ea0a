// SPDX-License-Identifier: Apache-2.0
// Test support: a device on emulated kernels that puts everything off for as long as streams and events allow, so that
// what the executor forgets to wait for shows.
#pragma once

#include <memory>

#include "runtime/device/accelerator.h"

namespace orrery {

struct EmulatedCounts {
  int64_t fused = 0;  // pairs of ops that ran as one product
  int64_t ops = 0;
  int64_t captures = 0, launches = 0;  // of graphs
  int64_t refusals = 0;
};

enum class Graphs { kOff, kOn, kRefused };  // refused: every capture fails

// `later`: ops run only when their results are asked for, streams in turn at random; else at once.
std::unique_ptr<device::Accelerator> OpenEmulatedDevice(bool later, uint64_t seed,
                                                        EmulatedCounts* counts = nullptr,
                                                        Graphs graphs = Graphs::kOff);

}  // namespace orrery
