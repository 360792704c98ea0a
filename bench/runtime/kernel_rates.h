// SPDX-License-Identifier: Apache-2.0
// Rates of the CPU kernels: the machine's peak GEMM rate, and a whole training step as a share of it.
#pragma once

namespace orrery {

// Prints one line per figure: name = value unit.
void BenchKernels();

}  // namespace orrery
