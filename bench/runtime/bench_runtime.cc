// SPDX-License-Identifier: Apache-2.0
// Figures of the runtime on this machine, one line each: name = value unit. Times are the least of several rounds; they
// need an otherwise idle core.
#include "bench/runtime/executor_share.h"
#include "bench/runtime/kernel_rates.h"

int main() {
  orrery::BenchExecutor();
  orrery::BenchKernels();
  return 0;
}
