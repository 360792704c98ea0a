// SPDX-License-Identifier: Apache-2.0
// Splits layers over virtual pipeline stages.
#include "model/plan/lower/balance.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

std::vector<LayerRange> Ranges(const std::vector<int64_t>& counts) {
  std::vector<LayerRange> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

}  // namespace

std::vector<LayerRange> BalanceLayers(int64_t layers, const Strategy& strategy) {
  if (strategy.layout) return Ranges({strategy.layout->begin(), strategy.layout->end()});
  const int64_t parts = int64_t{1} * strategy.pp * strategy.vpp;
  const int64_t weight =
      layers + (strategy.count_embedding ? 1 : 0) + (strategy.count_head ? 1 : 0);
  std::vector<int64_t> share(parts, weight / parts);
  for (int64_t extra = 0; extra < weight % parts; ++extra) {
    share[parts > 1 ? 1 + extra % (parts - 1) : 0] += 1;
  }
  if (strategy.count_embedding) share.front() -= 1;
  if (strategy.count_head) share.back() -= 1;
  return Ranges(share);
}

std::vector<int> BalancedLayout(int64_t layers, int stages, int chunks, double embedding,
                                double head, const std::vector<double>& slowdown) {
  std::vector<double> load(static_cast<std::size_t>(stages), 0.0);
  std::vector<int64_t> held(load.size(), 0);
  // The fewest layers of a stage: one in each chunk that holds nothing else.
  const auto fewest = [&](int stage) {
    return chunks - (stage == 0 ? 1 : 0) - (stage + 1 == stages ? 1 : 0);
  };
  int64_t left = layers;
  for (int stage = 0; stage < stages; ++stage) {
    held[stage] = fewest(stage);
    left -= held[stage];
    load[stage] = static_cast<double>(held[stage]) + (stage == 0 ? embedding : 0) +
                  (stage + 1 == stages ? head : 0);
  }
  if (left < 0) return {};
  const auto with_one_more = [&](std::size_t stage) {
    return slowdown.empty() ? load[stage] : (load[stage] + 1) * slowdown[stage];
  };
  for (; left > 0; --left) {
    std::size_t least = 0;
    for (std::size_t stage = 1; stage < load.size(); ++stage) {
      if (with_one_more(stage) <= with_one_more(least)) least = stage;
    }
    held[least] += 1;
    load[least] += 1;
  }
  std::vector<int> layout(static_cast<std::size_t>(stages) * chunks);
  for (int stage = 0; stage < stages; ++stage) {
    // The chunk beside an end of the model gets what is left last.
    int64_t rest = held[stage];
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int turn = stage == 0 ? chunks - 1 - chunk : chunk;
      const int64_t share = (rest + chunks - chunk - 1) / (chunks - chunk);
      layout[static_cast<std::size_t>(turn) * stages + stage] = static_cast<int>(share);
      rest -= share;
    }
  }
  return layout;
}

std::string LayoutWords(const std::vector<int>& layout) {
  std::string text;
  for (std::size_t at = 0; at < layout.size();) {
    std::size_t end = at;
    while (end < layout.size() && layout[end] == layout[at]) ++end;
    text += text.empty() ? "" : ", ";
    text += end - at == 1 ? fmt::format("{}", layout[at])
                          : fmt::format("{} x {}", end - at, layout[at]);
    at = end;
  }
  return text;
}

}  // namespace orrery
