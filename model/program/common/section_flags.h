// SPDX-License-Identifier: Apache-2.0
// Flags whose values stand in a section of a file.
#pragma once

#include <vector>

#include "model/base/node.h"
#include "model/program/common/flags.h"

namespace orrery::cli {

// "--global-batch" stands as `global_batch` below `section`, which may be absent. Flags that were
// given keep their values; the others take the file's, with their places. Unknown keys and empty
// values are recorded.
void FillFlags(const Node& root, const char* section, const std::vector<Flag*>& flags);

}  // namespace orrery::cli
