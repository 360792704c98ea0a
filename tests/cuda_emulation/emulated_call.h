// SPDX-License-Identifier: Apache-2.0
// Test support: op calls by the emulated CUDA kernels.
#pragma once

#include "tests/cpu_kernels/typed_call.h"

namespace orrery {

// Runs an op by the emulated kernels on operands in host memory, with scratch memory of its own.
void RunEmulated(const cpu::KernelArgs& args);
std::vector<Vector> RunEmulated(const TypedCall& typed, ir::Dtype storage);
int LastFault();  // of the last op of this thread

}  // namespace orrery
