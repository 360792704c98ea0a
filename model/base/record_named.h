// SPDX-License-Identifier: Apache-2.0
// Files of which it only matters that they are there.
#pragma once

#include <string>

namespace orrery {

// Once RecordSources() (diagnostics.h) was called, such a file is kept as those that are read.
void RecordNamed(const std::string& path);

}  // namespace orrery
