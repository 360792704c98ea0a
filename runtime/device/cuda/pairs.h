// SPDX-License-Identifier: Apache-2.0
// Ops that follow each other on a stream and can be one call: a product with bias and the gelu of its result, and a
// product whose result gelu's gradient replaces in place. A product is held back until the next op shows.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {

class OpPairs {
 public:
  explicit OpPairs(const Queue& queue) : queue_(queue) {}

  void Run(const cpu::KernelArgs& args);
  void Flush();
  // Runs `action` behind what is held back, or at once.
  void Behind(std::function<void()> action);

 private:
  void Release();

  const Queue& queue_;
  std::optional<cpu::KernelArgs> held_;
  std::vector<std::function<void()>> behind_;
};

// Runs both as one product; false: they are no such pair, or the library has no way.
bool Fuse(const cpu::KernelArgs& first, const cpu::KernelArgs& second, const Queue& queue);

}  // namespace orrery::cuda
