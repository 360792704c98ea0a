// SPDX-License-Identifier: Apache-2.0
// Asks CUDA for GPUs.
#include "runtime/device/cuda/probe.h"

#include <cuda_runtime_api.h>

#include "runtime/device/cuda/status.h"

namespace orrery::cuda {

Findings Probe(bool memory) {
  Findings found;
  cudaDriverGetVersion(&found.driver);
  cudaRuntimeGetVersion(&found.runtime);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    if (status != cudaErrorNoDevice && status != cudaErrorInsufficientDriver)
      found.error = cudaGetErrorString(status);
    return found;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    Check(cudaGetDeviceProperties(&properties, i), "asking a GPU for its properties");
    Gpu gpu{properties.name, properties.major, properties.minor, properties.multiProcessorCount};
    gpu.total_bytes = gpu.free_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    if (memory) {
      size_t free = 0, total = 0;
      Check(cudaSetDevice(i), "choosing a GPU");
      Check(cudaMemGetInfo(&free, &total), "asking a GPU for its memory");
      gpu.free_bytes = static_cast<int64_t>(free);
    }
    found.gpus.push_back(gpu);
  }
  return found;
}

}  // namespace orrery::cuda
