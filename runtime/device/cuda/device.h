// SPDX-License-Identifier: Apache-2.0
// A GPU as the executor sees it: one allocation, the plan's streams, kernels and the vendor's matrix products.
#pragma once

#include <memory>

#include "runtime/device/accelerator.h"

namespace orrery::cuda {

// Number `index` among the GPUs that this process sees. Used by the thread that opens it. Throws cpu::KernelError.
// `graphs`: ops that repeat are launched as CUDA graphs (graphs.h); ops that it was given must then stay as they are for
// as long as the device is.
std::unique_ptr<device::Accelerator> OpenDevice(int index, bool graphs = false);

}  // namespace orrery::cuda
