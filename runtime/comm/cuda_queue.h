// SPDX-License-Identifier: Apache-2.0
// DeviceQueue on a CUDA device.
#pragma once

#include <memory>

#include "runtime/comm/device_queue.h"

namespace orrery::comm {

std::unique_ptr<DeviceQueue> MakeCudaQueue(int device);

}  // namespace orrery::comm
