// SPDX-License-Identifier: Apache-2.0
// Figures of the runtime on this machine, one line each: name = value unit. Times are the least of several rounds; they
// need an otherwise idle core.
#include "bench/runtime/kernel_rates.h"

int main() {
  orrery::BenchKernels();
  return 0;
}
