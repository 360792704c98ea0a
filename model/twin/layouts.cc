// SPDX-License-Identifier: Apache-2.0
// Splits of the layers that are worth a look.
#include "model/twin/layouts.h"

#include <algorithm>

#include "model/plan/lower/balance.h"

namespace orrery {
namespace {

// Layers that the embedding is said to weigh more, step by step, until the first stage gives one away.
constexpr double kGivenAway = 0.25, kMostGivenAway = 2;

}  // namespace

Layouts LayoutsOf(const LayerTable& table, int64_t layers, const Strategy& s) {
  const auto pass = [](const LayerTime& time) {
    return std::max(time.forward.busy() + time.backward.busy(),
                    time.forward.host + time.backward.host);
  };
  const double layer = pass(table.layer);
  const auto stages = [&](double more) {
    return BalancedStages(layers, s.pp, s.vpp, pass(table.embedding) / layer + more,
                          pass(table.head) / layer);
  };
  const std::vector<int64_t> held = stages(0);
  if (held.empty()) return {};
  std::vector<int64_t> lighter_held = held;
  for (double more = kGivenAway; more <= kMostGivenAway && lighter_held[0] == held[0];
       more += kGivenAway)
    lighter_held = stages(more);
  const std::vector<int> balanced = SpreadOverChunks(held, s.vpp);
  std::vector<int> lighter = SpreadOverChunks(lighter_held, s.vpp);
  std::vector<int> rule;
  for (const LayerRange& range : BalanceLayers(layers, s))
    rule.push_back(static_cast<int>(range.count));
  Layouts made;
  if (balanced != rule) made.balanced = std::make_shared<const std::vector<int>>(balanced);
  if (lighter != balanced && lighter != rule)
    made.lighter = std::make_shared<const std::vector<int>>(std::move(lighter));
  return made;
}

}  // namespace orrery
