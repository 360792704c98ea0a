// SPDX-License-Identifier: Apache-2.0
// What labs are up, and what their links have carried.
#pragma once

#include <string>

namespace orrery::lab {

std::string StatusText(const std::string& name);  // "": all labs of this user

}  // namespace orrery::lab
