// SPDX-License-Identifier: Apache-2.0
// Which splits of the layers over stages and chunks the search looks at.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/plan/lower/strategy.h"
#include "model/price/layer_table.h"

namespace orrery {

// Layouts by chunk that are worth a look beside the default split of the framework; null: there is none, or it is that one.
struct Layouts {
  // LayerSplit::kBalanced and kLighter of space.h.
  std::shared_ptr<const std::vector<int>> balanced, lighter;
};
// For the stages and chunks of `strategy`, a model of so many layers and the times of its micro-batch. `slowdown`: of
// kernels, by stage; empty: all are alike. `fill_first`: the first chunk must hold a layer.
Layouts LayoutsOf(const LayerTable& table, int64_t layers, const Strategy& strategy,
                  const std::vector<double>& slowdown = {}, bool fill_first = false);
// Layers of each stage as fast as they can be; `most`: at most. Empty: there is no such split.
std::vector<int64_t> SharesOf(const LayerTable& table, int64_t layers, const Strategy& strategy,
                              const std::vector<double>& slowdown,
                              const std::vector<int64_t>& most = {});
// The chunks of stages that hold so many layers.
std::shared_ptr<const std::vector<int>> SpreadShares(const std::vector<int64_t>& held,
                                                     const Strategy& strategy);

}  // namespace orrery
