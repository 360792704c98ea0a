// SPDX-License-Identifier: Apache-2.0
// Sums, means and least times over kinds of layers.
#pragma once

#include <vector>

#include "model/price/layer_table.h"

namespace orrery {

// Adds `factor` times `from`.
void Scale(double factor, const LayerTime& from, LayerTime* to);
void Scale(double factor, std::vector<PassPart>* parts);

// From sums to the difference of means. `share`: of the layers that `of` adds up; `others` adds up the rest.
void SubtractMeans(double share, const LayerTime& others, LayerTime* of);

// The table of layers that take the least of these, and of what may be put off, and so be hidden, the most. None is taken
// for recomputed.
LayerTable LeastOfKinds(const LayerTable& table, const std::vector<LayerTime>& kinds);

}  // namespace orrery
