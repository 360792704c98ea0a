// SPDX-License-Identifier: Apache-2.0
// Every collective and message on an endpoint, with results that are known beforehand.
#pragma once

#include <string>

#include "runtime/comm/communicator.h"

namespace orrery::runtime_test {

// Called by all ranks. "" or what came out wrong first.
std::string ExerciseEndpoint(comm::Endpoint* endpoint);

}  // namespace orrery::runtime_test
