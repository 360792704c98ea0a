// SPDX-License-Identifier: Apache-2.0
// Data sources by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/train/synthetic.h"

namespace orrery::train {

inline constexpr int64_t kRandomSetSamples = 2048;  // as in the tutorial

std::vector<std::string> SourceNames();  // "synthetic", "random-set"
// Null: no source has that name.
std::unique_ptr<DataSource> MakeSource(const std::string& name, const DataSpec& spec,
                                       int64_t global_batch);

}  // namespace orrery::train
