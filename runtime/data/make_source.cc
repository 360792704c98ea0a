// SPDX-License-Identifier: Apache-2.0
// The table of data sources.
#include "runtime/data/make_source.h"

#include "runtime/data/token_source.h"

namespace orrery::train {

std::vector<std::string> SourceNames() { return {"synthetic", "random-set"}; }

std::unique_ptr<DataSource> MakeSource(const std::string& name, const DataSpec& spec,
                                       const DataShape& shape, int64_t global_batch) {
  if (name == "synthetic") return std::make_unique<SyntheticSource>(spec);
  if (name == "random-set")
    return std::make_unique<RandomSet>(spec.seed, kRandomSetSamples, global_batch);
  return std::make_unique<TokenSource>(name, spec, shape, global_batch);
}

void CheckTokenFile(const std::string& path, const DataSpec& spec, const DataShape& shape) {
  TokenSource(path, spec, shape, 1).file().Check(int64_t{1} << 30);
}

}  // namespace orrery::train
