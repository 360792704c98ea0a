// SPDX-License-Identifier: Apache-2.0
// Ops to time alone: the products, attentions and memory-bound ops of a model, as cases and as
// rows.
#pragma once

#include <string>
#include <vector>

#include "calib/import/kernel_csv.h"
#include "calib/measure/shapes.h"
#include "runtime/timing/time_kernel.h"

namespace orrery {

struct BenchCase {
  bench::KernelCase run;
  measured::KernelSample row;  // without its time
};

BenchCase ProductCase(const DeviceShape& shape, ir::Dtype dtype);
BenchCase AttentionCase(const DeviceShape& shape, ir::Dtype dtype);
// Norms, activations and sums over `rows` of `width`.
std::vector<BenchCase> MemoryCases(int64_t rows, int64_t width, ir::Dtype dtype);

}  // namespace orrery
