// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process.
#pragma once

#include <functional>
#include <string>

#include "runtime/comm/communicator.h"

namespace orrery::launch {

// Runs `body` on its own thread for each rank and returns why the first rank failed ("" when none
// has). Ranks that do not end within `grace_s` after a failure cannot be ended by this process
// alone: `stuck` is called with the reason, once, and is not expected to return.
std::string RunLocalRanks(int64_t ranks, const std::function<void(comm::Endpoint*)>& body,
                          double grace_s = 5,
                          const std::function<void(const std::string&)>& stuck = {});

}  // namespace orrery::launch
