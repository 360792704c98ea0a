// SPDX-License-Identifier: Apache-2.0
// Splits layers over virtual pipeline stages.
#include "model/plan/lower/balance.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
int64_t ChunksOf(const Strategy& strategy) {
  return strategy.layout ? static_cast<int64_t>(strategy.layout->size())
                         : int64_t{1} * strategy.pp * strategy.vpp;
}

int64_t LayersOfChunk(int64_t layers, const Strategy& strategy, int64_t virtual_stage) {
  if (strategy.layout) return (*strategy.layout)[static_cast<std::size_t>(virtual_stage)];
  const int64_t parts = ChunksOf(strategy);
  const int64_t weight =
      layers + (strategy.count_embedding ? 1 : 0) + (strategy.count_head ? 1 : 0);
  const bool one_more = virtual_stage > 0 && virtual_stage <= weight % parts;
  const bool first = virtual_stage == 0, last = virtual_stage + 1 == parts;
  return weight / parts + (one_more ? 1 : 0) - (first && strategy.count_embedding ? 1 : 0) -
         (last && strategy.count_head ? 1 : 0);
}

std::vector<LayerRange> BalanceLayers(int64_t layers, const Strategy& strategy) {
  const int64_t chunks = ChunksOf(strategy);
  std::vector<LayerRange> ranges;
  ranges.reserve(static_cast<std::size_t>(chunks));
  int64_t first = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    ranges.push_back({first, LayersOfChunk(layers, strategy, chunk)});
    first += ranges.back().count;
  }
  return ranges;
}

namespace {

// Gives `left` layers away, each to the stage with the least load, of several to the last. Stages between the ends are alike:
// of those the last one at the lowest level is next.
void FillLikeStages(int64_t left, std::vector<double>& load, std::vector<int64_t>& held) {
  const std::size_t last = load.size() - 1;
  std::size_t next = last - 1;
  for (; left > 0; --left) {
    std::size_t least = load[next] <= load[0] ? next : 0;
    if (load[last] <= load[least]) least = last;
    held[least] += 1;
    load[least] += 1;
    if (least == next && least != 0 && least != last) next = next == 1 ? last - 1 : next - 1;
  }
}

void FillStages(int64_t left, const std::vector<double>& slowdown, std::vector<double>& load,
                std::vector<int64_t>& held) {
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
}

}  // namespace

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
  if (slowdown.empty() && stages > 2) {
    FillLikeStages(left, load, held);
  } else {
    FillStages(left, slowdown, load, held);
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
