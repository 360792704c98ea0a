// SPDX-License-Identifier: Apache-2.0
// Runs single ops by the emulated CUDA kernels.
#include "tests/cuda_emulation/emulated_call.h"

#include "runtime/device/cuda/ops.h"

namespace orrery {
namespace {

thread_local int last_fault = 0;

}  // namespace

void RunEmulated(const cpu::KernelArgs& args) {
  static thread_local std::vector<double> scratch(size_t{1} << 17);
  std::fill(scratch.begin(), scratch.end(), std::numeric_limits<double>::quiet_NaN());
  last_fault = 0;
  cuda::Queue queue;
  queue.scratch = scratch.data();
  queue.scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(double));
  queue.fault = &last_fault;
  cuda::Run(args, queue);
}

std::vector<Vector> RunEmulated(const TypedCall& typed, ir::Dtype storage) {
  return RunTyped(typed, storage, [](const cpu::KernelArgs& args) { RunEmulated(args); });
}

int LastFault() { return last_fault; }

}  // namespace orrery
