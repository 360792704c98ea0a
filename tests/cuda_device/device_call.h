// SPDX-License-Identifier: Apache-2.0
// Test support: op calls on a GPU.
#pragma once

#include "tests/cpu_kernels/typed_call.h"

namespace orrery {

// Why no GPU can be tested here; empty: one can.
std::string NoGpu();

// Copies operands there, runs the op with the vendor's products or without, and copies them back.
std::vector<Vector> RunOnGpu(const TypedCall& typed, ir::Dtype storage, bool vendor_products);

}  // namespace orrery

#define SKIP_WITHOUT_GPU() \
  if (const std::string why = ::orrery::NoGpu(); !why.empty()) GTEST_SKIP() << why
