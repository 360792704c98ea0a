// SPDX-License-Identifier: Apache-2.0
// Status codes of CUDA and its libraries as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace orrery::cuda {

// cpu::KernelError "DOING: what CUDA says"; std::bad_alloc when memory is lacking.
void Check(cudaError_t status, const char* doing);
// Of cuBLASLt and the like, whose success is 0.
void CheckLibrary(int status, const char* library, const std::string& doing);

}  // namespace orrery::cuda
