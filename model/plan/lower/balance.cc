// SPDX-License-Identifier: Apache-2.0
// Splits layers over virtual pipeline stages.
#include "model/plan/lower/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace orrery {
int64_t ChunksOf(const Strategy& strategy) {
  return strategy.layout ? static_cast<int64_t>(strategy.layout->size())
                         : int64_t{1} * strategy.pp * strategy.vpp;
}

ChunkSplit::ChunkSplit(int64_t layers, const Strategy& strategy)
    : layout_(strategy.layout ? strategy.layout->data() : nullptr),
      chunks_(ChunksOf(strategy)),
      embedding_(strategy.count_embedding ? 1 : 0),
      head_(strategy.count_head ? 1 : 0) {
  if (layout_ != nullptr || chunks_ == 0) return;
  const int64_t weight = layers + embedding_ + head_;
  each_ = weight / chunks_;
  left_over_ = weight % chunks_;
}

int64_t LayersOfChunk(int64_t layers, const Strategy& strategy, int64_t virtual_stage) {
  return ChunkSplit(layers, strategy).Layers(virtual_stage);
}

std::vector<LayerRange> BalanceLayers(int64_t layers, const Strategy& strategy) {
  const ChunkSplit split(layers, strategy);
  std::vector<LayerRange> ranges;
  ranges.reserve(static_cast<std::size_t>(split.chunks()));
  int64_t first = 0;
  for (int64_t chunk = 0; chunk < split.chunks(); ++chunk) {
    ranges.push_back({first, split.Layers(chunk)});
    first += ranges.back().count;
  }
  return ranges;
}

namespace {

// Work of each stage, to which one layer after the other is added.
struct StageLoads {
  std::vector<double> load;
  std::vector<int64_t> held;  // layers
  const std::vector<double>& slowdown;
  const std::vector<int64_t>& most;

  bool Full(std::size_t stage) const { return !most.empty() && held[stage] >= most[stage]; }
  double WithOneMore(std::size_t stage) const {
    return slowdown.empty() ? load[stage] : (load[stage] + 1) * slowdown[stage];
  }
  // Layers that the stage gets until its work with one more would exceed `level`.
  int64_t UpTo(double level, std::size_t stage) const {
    const double heaviest = slowdown.empty() ? level : level / slowdown[stage] - 1;
    const double room = heaviest - load[stage];
    return room < 0 ? 0 : static_cast<int64_t>(room) + 1;
  }
  void Add(std::size_t stage, int64_t layers) {
    held[stage] += layers;
    load[stage] += static_cast<double>(layers);
  }
};

// Most of `left` layers at once: the work grows with the stages alone. The rule gives all layers up to a level before one
// above it, so a level is looked for under which nearly all go; of each stage one less, for rounding. Returns what is left.
int64_t AddBelowLevel(int64_t left, StageLoads* loads) {
  const std::size_t stages = loads->load.size();
  const bool inner_alike =
      loads->slowdown.empty() && stages > 2;  // those that hold no end of the model
  const auto count = [&](double level) {
    int64_t sum = 0;
    if (inner_alike)
      return loads->UpTo(level, 0) + loads->UpTo(level, stages - 1) +
             static_cast<int64_t>(stages - 2) * loads->UpTo(level, 1);
    for (std::size_t stage = 0; stage < stages && sum <= left; ++stage)
      sum += loads->UpTo(level, stage);
    return sum;
  };
  // Were no stage above the level: the search below goes on from there.
  double low = 0, high = 1;
  const double even =
      (static_cast<double>(left) + std::accumulate(loads->load.begin(), loads->load.end(), 0.0)) /
          static_cast<double>(stages) -
      1;
  if (even > high && inner_alike && count(even) <= left) low = even, high = even + 1;
  while (count(high) <= left) low = high, high *= 2;
  while (high - low > 0.5) {
    const double level = (low + high) / 2;
    (count(level) <= left ? low : high) = level;
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const int64_t layers = std::max<int64_t>(0, loads->UpTo(low, stage) - 1);
    loads->Add(stage, layers);
    left -= layers;
  }
  return left;
}

// The same where all stages but the first and the last have the same work: those get a layer each in turn, from the last on.
void AddOneByOneToAlike(int64_t left, StageLoads* loads) {
  const std::size_t stages = loads->load.size(), last = stages - 1;
  const auto inner = static_cast<int64_t>(stages) - 2;
  int64_t given = 0, each = 0;  // to the inner stages: of this turn, in whole turns
  double of_inner = loads->load[1];
  for (; left > 0; --left) {
    const double of_first = loads->load[0], of_last = loads->load[last];
    if (of_last <= of_inner && of_last <= of_first) {
      loads->Add(last, 1);
    } else if (of_inner <= of_first) {
      if (++given == inner) given = 0, ++each, of_inner += 1;
    } else {
      loads->Add(0, 1);
    }
  }
  for (std::size_t stage = 1; stage < last; ++stage)
    loads->Add(stage, each + (static_cast<int64_t>(last - stage) <= given ? 1 : 0));
}

// To the stage with the least work with one more layer; of several to the last. False: all stages are full.
bool AddOneByOne(int64_t left, StageLoads* loads) {
  if (loads->slowdown.empty() && loads->most.empty() && loads->load.size() > 2) {
    AddOneByOneToAlike(left, loads);
    return true;
  }
  struct Next {
    double load;
    std::size_t stage;
  };
  const auto later = [](const Next& a, const Next& b) {
    return a.load != b.load ? a.load > b.load : a.stage < b.stage;
  };
  std::vector<Next> turns;
  for (std::size_t stage = 0; stage < loads->load.size(); ++stage)
    if (!loads->Full(stage)) turns.push_back({loads->WithOneMore(stage), stage});
  std::ranges::make_heap(turns, later);
  for (; left > 0 && !turns.empty(); --left) {
    std::ranges::pop_heap(turns, later);
    const std::size_t least = turns.back().stage;
    loads->Add(least, 1);
    if (loads->Full(least)) {
      turns.pop_back();
      continue;
    }
    turns.back().load = loads->WithOneMore(least);
    std::ranges::push_heap(turns, later);
  }
  return left == 0;
}

}  // namespace

std::vector<int64_t> BalancedStages(int64_t layers, int stages, int chunks, double embedding,
                                    double head, const std::vector<double>& slowdown,
                                    const std::vector<int64_t>& most) {
  StageLoads loads{{}, {}, slowdown, most};
  // The fewest layers of a stage: one in each chunk that holds nothing else.
  const auto fewest = [&](int stage) {
    return chunks - (stage == 0 ? 1 : 0) - (stage + 1 == stages ? 1 : 0);
  };
  int64_t left = layers;
  loads.held.reserve(static_cast<std::size_t>(stages));
  loads.load.reserve(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    loads.held.push_back(fewest(stage));
    left -= fewest(stage);
    loads.load.push_back(static_cast<double>(fewest(stage)) + (stage == 0 ? embedding : 0) +
                         (stage + 1 == stages ? head : 0));
  }
  if (left < 0) return {};
  for (std::size_t stage = 0; stage < most.size(); ++stage)
    if (loads.held[stage] > most[stage]) return {};
  if (most.empty()) left = AddBelowLevel(left, &loads);
  if (!AddOneByOne(left, &loads)) return {};
  return std::move(loads.held);
}

std::vector<int> SpreadOverChunks(const std::vector<int64_t>& held, int chunks) {
  const auto stages = static_cast<int>(held.size());
  std::vector<int> layout(static_cast<std::size_t>(stages) * chunks);
  for (int stage = 0; stage < stages; ++stage) {
    // The chunk beside an end of the model gets what is left last.
    int64_t rest = held[static_cast<std::size_t>(stage)];
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int turn = stage == 0 ? chunks - 1 - chunk : chunk;
      const int64_t share = (rest + chunks - chunk - 1) / (chunks - chunk);
      layout[static_cast<std::size_t>(turn) * stages + stage] = static_cast<int>(share);
      rest -= share;
    }
  }
  return layout;
}

std::vector<int> SpreadInAV(const std::vector<int64_t>& held) {
  std::vector<int> layout(2 * held.size());
  for (std::size_t stage = 0; stage < held.size(); ++stage) {
    // The chunk on the way down waits longer for its gradients: it has the smaller half.
    layout[stage] = static_cast<int>(held[stage] / 2);
    layout[layout.size() - 1 - stage] = static_cast<int>(held[stage] - held[stage] / 2);
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
