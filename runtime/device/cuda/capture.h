// SPDX-License-Identifier: Apache-2.0
// Stream capture by CUDA's runtime.
#pragma once

#include <memory>

#include "runtime/device/cuda/graphs.h"
#include "runtime/device/cuda/staging.h"

namespace orrery::cuda {

// For a stream whose Queue::step is set; all three must outlive it. `refused`: of the device, whether it was said already
// that something could not be captured (on standard error, once).
std::unique_ptr<Capture> MakeCapture(const Queue& queue, Staging* staging, bool* refused);

}  // namespace orrery::cuda
