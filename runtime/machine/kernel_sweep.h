// SPDX-License-Identifier: Apache-2.0
// Times the CPU kernels where they are used: small models of every family are trained on all cores at
// once, and each op's time is kept under its shape. (Kernels that are repeated alone find their operands
// in the cache and are 4 to 9 % faster than in a step.)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/plan/lower/lower.h"
#include "model/price/op_shape.h"

namespace orrery::machine {

struct KernelTime {
  MeasuredShape of;
  double seconds = 0;  // mean over its uses of the lower quartile over steps and ranks
};

// A model that was left out of the table, and what the table says of it.
struct LeftOut {
  std::string name;
  double predicted = 0, measured = 0;  // seconds of all kernels of a step on one rank
};

struct KernelSweep {
  std::vector<KernelTime> kernels;  // in order of MeasuredShape
  std::vector<LeftOut> left_out;
  double peak = 0;  // FLOP/s of a large product
};

// `note` is told what is being done. Throws std::runtime_error when a model cannot be trained.
KernelSweep SweepKernels(int64_t cores, Precision precision,
                         const std::function<void(const std::string&)>& note);

}  // namespace orrery::machine
