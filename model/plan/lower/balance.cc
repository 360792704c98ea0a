// SPDX-License-Identifier: Apache-2.0
// Splits layers over virtual pipeline stages.
#include "model/plan/lower/balance.h"

namespace orrery {

std::vector<LayerRange> BalanceLayers(int64_t layers, const Strategy& strategy) {
  const int64_t parts = int64_t{1} * strategy.pp * strategy.vpp;
  const int64_t weight =
      layers + (strategy.count_embedding ? 1 : 0) + (strategy.count_head ? 1 : 0);
  std::vector<int64_t> share(parts, weight / parts);
  for (int64_t extra = 0; extra < weight % parts; ++extra) {
    share[parts > 1 ? 1 + extra % (parts - 1) : 0] += 1;
  }
  if (strategy.count_embedding) share.front() -= 1;
  if (strategy.count_head) share.back() -= 1;
  std::vector<LayerRange> ranges(parts);
  int64_t first = 0;
  for (int64_t part = 0; part < parts; ++part) {
    ranges[part] = {first, share[part]};
    first += share[part];
  }
  return ranges;
}

}  // namespace orrery
