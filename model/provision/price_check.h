// SPDX-License-Identifier: Apache-2.0
// Prices that are far from what others ask for the same GPUs. Below: a price of a GPU where that of a node was meant, or a
// commitment, more often than a bargain; above: that of a month, of a whole cluster, or cents. ReadOffer() compares the rows of one file, this the files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/provision/offers.h"

namespace orrery {

// A price with what a node has.
struct NodePrice {
  Quote quote;
  std::string gpu;  // id of calib/profiles/gpu
  int gpus = 1;
  DollarsPerHour OfGpu() const { return DollarsPerHour(quote.price.price.value / gpus); }
};

// The lowest other price of the same GPU, of the same kind where one is known, if `one` is far below it.
struct FarBelow {
  NodePrice other;
  double ratio = 0;  // of the two, per GPU
};
std::optional<FarBelow> FarBelowOthers(const NodePrice& one, const std::vector<NodePrice>& all);

// "1.00 USD/h for a node of 8 h100-sxm5-80gb is 0.03 x ..."
std::string FarBelowWords(const NodePrice& one, const FarBelow& below);

// The same of a price far above all others; "": it is not.
std::string FarAboveWords(const NodePrice& one, const std::vector<NodePrice>& all);

}  // namespace orrery
