// SPDX-License-Identifier: Apache-2.0
// Data sources by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_shape.h"
#include "runtime/data/synthetic.h"

namespace orrery::train {

inline constexpr int64_t kRandomSetSamples = 2048;  // as in the tutorial

std::vector<std::string> SourceNames();  // "synthetic", "random-set"
// A token file (data/token_file.h) where no source has that name. Throws DataError.
std::unique_ptr<DataSource> MakeSource(const std::string& name, const DataSpec& spec,
                                       const DataShape& shape, int64_t global_batch);

// Opens a token file as MakeSource does and reads its first GiB for tokens beyond the vocabulary.
// Throws DataError, with the byte at fault.
void CheckTokenFile(const std::string& path, const DataSpec& spec, const DataShape& shape);

}  // namespace orrery::train
