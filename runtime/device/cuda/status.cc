// SPDX-License-Identifier: Apache-2.0
// Throws what CUDA reports.
#include "runtime/device/cuda/status.h"

#include <fmt/format.h>

#include <new>

#include "runtime/device/cpu/kernels.h"

namespace orrery::cuda {

void Check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw cpu::KernelError(fmt::format("{}: CUDA reports {} ({})", doing, cudaGetErrorString(status),
                                     cudaGetErrorName(status)));
}

void CheckLibrary(int status, const char* library, const std::string& doing) {
  if (status == 0) return;
  throw cpu::KernelError(fmt::format("{}: {} reports status {}", doing, library, status));
}

}  // namespace orrery::cuda
