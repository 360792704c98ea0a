// SPDX-License-Identifier: Apache-2.0
// What a kernel works at, from its name.
#pragma once

#include <string>

#include "calib/import/training_log.h"

namespace orrery::measured {

// By the names that cuBLAS, CUTLASS, cuDNN, FlashAttention, NCCL, PyTorch and Apex give; AMD's and
// Habana's libraries as far as they follow them. Unknown names are kOther.
Work WorkOfKernel(const std::string& name);

// By the name of an operation of this project's plans. False: no operation of that name.
bool WorkOfOp(const std::string& name, Work* work);

}  // namespace orrery::measured
