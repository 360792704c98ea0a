// SPDX-License-Identifier: Apache-2.0
// Large pieces of memory to a device.
#pragma once

#include "runtime/device/accelerator.h"

namespace orrery::bench {

// Returns when it is there.
void UploadAll(device::Accelerator* accelerator, void* to, const void* from, int64_t bytes);

}  // namespace orrery::bench
