// SPDX-License-Identifier: Apache-2.0
// Splits of the layers that are worth a look.
#include "model/twin/layouts.h"

#include <algorithm>

#include "model/plan/lower/balance.h"

namespace orrery {
namespace {

// Layers that the embedding is said to weigh more, step by step, until the first stage gives one away.
constexpr double kGivenAway = 0.25, kMostGivenAway = 2;

// Seconds of a micro-batch.
double PassSecondsOf(const LayerTime& time) {
  return std::max(time.forward.busy() + time.backward.busy(),
                  time.forward.host + time.backward.host);
}

// Of a layer, by stage: kernels take longer, messages do not.
std::vector<double> OfLayers(const LayerTable& table, const std::vector<double>& slowdown) {
  const double kernels = table.layer.forward.device + table.layer.backward.device;
  const double all = table.layer.forward.busy() + table.layer.backward.busy();
  std::vector<double> of_layers;
  for (const double factor : slowdown)
    of_layers.push_back(all > 0 ? 1 + (factor - 1) * kernels / all : 1.0);
  return of_layers;
}

}  // namespace

std::vector<int64_t> SharesOf(const LayerTable& table, int64_t layers, const Strategy& s,
                              const std::vector<double>& slowdown,
                              const std::vector<int64_t>& most) {
  const double layer = PassSecondsOf(table.layer);
  double embedding = PassSecondsOf(table.embedding) / layer,
         head = PassSecondsOf(table.head) / layer;
  if (s.schedule == PipelineSchedule::kZeroBubbleV) embedding += head, head = 0;  // on one stage
  return BalancedStages(layers, s.pp, s.vpp, embedding, head, OfLayers(table, slowdown), most);
}

std::shared_ptr<const std::vector<int>> SpreadShares(const std::vector<int64_t>& held,
                                                     const Strategy& s) {
  return std::make_shared<const std::vector<int>>(s.schedule == PipelineSchedule::kZeroBubbleV
                                                      ? SpreadInAV(held)
                                                      : SpreadOverChunks(held, s.vpp));
}

namespace {

std::vector<int> RuleOf(int64_t layers, const Strategy& s) {
  std::vector<int> rule;
  for (const LayerRange& range : BalanceLayers(layers, s))
    rule.push_back(static_cast<int>(range.count));
  return rule;
}

Layouts InAV(const LayerTable& table, int64_t layers, const Strategy& s,
             const std::vector<double>& slowdown) {
  const std::vector<int64_t> held = SharesOf(table, layers, s, slowdown);
  if (held.empty()) return {};
  std::shared_ptr<const std::vector<int>> balanced = SpreadShares(held, s);
  return *balanced == RuleOf(layers, s) ? Layouts() : Layouts{std::move(balanced), nullptr};
}

}  // namespace

Layouts LayoutsOf(const LayerTable& table, int64_t layers, const Strategy& s,
                  const std::vector<double>& slowdown) {
  if (s.schedule == PipelineSchedule::kZeroBubbleV) return InAV(table, layers, s, slowdown);
  const double layer = PassSecondsOf(table.layer);
  const std::vector<double> of_layers = OfLayers(table, slowdown);
  const auto stages = [&](double more) {
    return BalancedStages(layers, s.pp, s.vpp, PassSecondsOf(table.embedding) / layer + more,
                          PassSecondsOf(table.head) / layer, of_layers);
  };
  const std::vector<int64_t> held = stages(0);
  if (held.empty()) return {};
  std::vector<int64_t> lighter_held = held;
  for (double more = kGivenAway; more <= kMostGivenAway && lighter_held[0] == held[0];
       more += kGivenAway)
    lighter_held = stages(more);
  const std::vector<int> balanced = SpreadOverChunks(held, s.vpp);
  std::vector<int> lighter = SpreadOverChunks(lighter_held, s.vpp);
  const std::vector<int> rule = RuleOf(layers, s);
  Layouts made;
  if (balanced != rule) made.balanced = std::make_shared<const std::vector<int>>(balanced);
  if (lighter != balanced && lighter != rule)
    made.lighter = std::make_shared<const std::vector<int>>(std::move(lighter));
  return made;
}

}  // namespace orrery
