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

// Gives an empty first chunk a layer of the fullest other chunk of its stage, else of the fullest of all.
void FillFirst(const Strategy& s, std::vector<int>* layout) {
  std::vector<int>& held = *layout;
  if (held[0] > 0) return;
  const auto stages = static_cast<std::size_t>(s.pp);
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  std::size_t fullest = in_a_v ? held.size() - 1 : 0;
  for (std::size_t at = stages; at < held.size() && !in_a_v; at += stages)
    if (held[at] > held[fullest]) fullest = at;
  if (held[fullest] == 0)
    fullest = static_cast<std::size_t>(std::ranges::max_element(held) - held.begin());
  if (held[fullest] == 0) return;
  --held[fullest];
  ++held[0];
}

}  // namespace

Layouts LayoutsOf(const LayerTable& table, int64_t layers, const Strategy& s,
                  const std::vector<double>& slowdown, bool fill_first) {
  const std::vector<int> rule = RuleOf(layers, s);
  // None where it is the default split of the framework.
  const auto of = [&](const std::vector<int64_t>& held) {
    std::shared_ptr<const std::vector<int>> spread = SpreadShares(held, s);
    if (fill_first && spread->front() == 0) {
      auto filled = std::make_shared<std::vector<int>>(*spread);
      FillFirst(s, filled.get());
      spread = std::move(filled);
    }
    return *spread == rule ? nullptr : spread;
  };
  if (s.schedule == PipelineSchedule::kZeroBubbleV) {
    const std::vector<int64_t> held = SharesOf(table, layers, s, slowdown);
    return held.empty() ? Layouts() : Layouts{of(held), nullptr};
  }

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
  Layouts made{of(held), of(lighter_held)};
  if (made.balanced && made.lighter && *made.balanced == *made.lighter) made.lighter = nullptr;
  return made;
}

}  // namespace orrery
