// SPDX-License-Identifier: Apache-2.0
// Several sources as one list of observations.
#include <algorithm>

#include "calib/fit/fit.h"

namespace orrery {

Evidence::Evidence(std::vector<const MeasurementSource*> sources, ProfileStore store)
    : sources_(std::move(sources)), store_(std::move(store)) {
  for (const MeasurementSource* source : sources_) {
    first_.push_back(static_cast<int>(observations_.size()));
    for (const Observation& seen : source->observations()) observations_.push_back(&seen);
  }
}

std::vector<double> Evidence::Predict(const ProfileStore& store,
                                      const std::vector<int>& which) const {
  std::vector<double> all, part;
  std::vector<int> local;
  auto at = which.begin();
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const int end = s + 1 < first_.size() ? first_[s + 1] : static_cast<int>(observations_.size());
    local.clear();
    for (; at != which.end() && *at < end; ++at) local.push_back(*at - first_[s]);
    if (local.empty()) continue;
    sources_[s]->Predict(store, local, &part);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace orrery
