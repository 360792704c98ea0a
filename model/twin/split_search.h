// SPDX-License-Identifier: Apache-2.0
// The fastest split of the layers over the chunks of a layout whose ranks are placed in one way.
//
// Chunk after chunk gets its layers; what the stages that have theirs compute at least, alone, ends a branch that takes no less
// than the best split known (branch and bound). Exact while the steps priced last; beyond, the layers are balanced by the
// speed of the stages or are those that suit other orders of ranks, single layers move while that helps, and LeastTime() bounds
// all splits. Where there are many, each chunk but those of the embedding and the head keeps a layer.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/memory/bound.h"
#include "model/twin/placed_traffic.h"
#include "model/twin/step_predictor.h"
#include "model/twin/time_bound.h"

namespace orrery {

inline constexpr double kSamePlacement = 1e-9;  // relative: no gain

using LayersOfChunks = std::shared_ptr<const std::vector<int>>;  // null: by the framework's rule
using SlowStages = std::vector<std::vector<double>>;             // PlacedTraffic::SlowReplicas()

// Which splits fit in memory: by a bound, what passes by its plan; with the margin where the layout as it is, or one of the
// splits to begin with, keeps it. All do where none of these fits.
class SplitFit {
 public:
  SplitFit(const Job& job, const Strategy& layout, std::span<const LayersOfChunks> starts = {});
  bool operator()(const Strategy& split, std::span<const int32_t> order);
  bool by_order() const { return mixed_; }     // it depends on the nodes of the stages
  bool exceeded() const { return exceeded_; }  // by the layout as it is, and another split fits

 private:
  const Job& job_;
  const bool mixed_;
  MemoryModel memory_;
  bool on_ = false, margin_ = false, exceeded_ = false;
  std::map<std::pair<std::vector<int>, std::vector<double>>, bool> known_;  // by what stages have
};

// Steps that may still be priced, of all variants of a layout together.
struct SplitBudget {
  int64_t left = 0, priced = 0;
  int cut_short = 0;     // walks over all splits
  int64_t reserved = 0;  // of those left: for the other variants
  int64_t climbs = 0;    // steps that may be priced for orders and layers together, of this variant
};

class SplitSearch {
 public:
  // `variant`: a layout whose placement names no nodes. `all`: false: its own split alone. All arguments must outlive it.
  SplitSearch(const Job& job, StepPredictor* predictor, const Strategy& variant, bool all,
              SplitFit* fit, SplitBudget* budget);

  struct Found {
    double seconds = std::numeric_limits<double>::infinity();
    LayersOfChunks layers;
    bool exact = true;  // none that fits takes less than both `seconds` and the limit
  };
  // Throws InputError: the layout cannot be priced. `order`: nodes by place.
  const Found& Best(const Stretches& stretches, const SlowStages& slow, double limit,
                    std::span<const int32_t> order);
  // Splits worth a start under an order of ranks: the layout's own, the framework's, balanced ones and those given.
  std::vector<LayersOfChunks> Starts(const SlowStages& slow) const;
  void Begin(std::vector<LayersOfChunks> starts) { starts_ = std::move(starts); }
  // Seconds of one split; infinite: `limit` or more, or it cannot be.
  double SecondsOf(const Stretches& stretches, const SlowStages& slow, const LayersOfChunks& layers,
                   double limit, std::span<const int32_t> order);
  // What moves of single layers make of a split that takes so long.
  Found Climbed(const Stretches& stretches, const SlowStages& slow, Found from,
                std::span<const int32_t> order);
  void Hint(LayersOfChunks layers) { hint_ = std::move(layers); }  // fast under another order
  bool all() const { return all_; }
  bool MayClimb() const { return budget_.climbs > 0 && budget_.left > 0; }
  // No split takes less; those that take `limit` or more are not told apart.
  double Least(const Stretches& stretches, const SlowStages& slow, double limit);
  // The same of any split, whole layers or not, without what messages and bubbles add.
  double Bound(const SlowStages& slow) const;

 private:
  struct Case;
  class Walk;
  struct Kept {
    double limit = 0;
    Found found;
  };
  const Found& FindIn(std::map<std::pair<Stretches, SlowStages>, Kept>* kept,
                      const Stretches& stretches, const SlowStages& slow, double limit,
                      const std::span<const int32_t>* order);
  Found Find(const Case& of);
  bool Take(const Case& of, const LayersOfChunks& layers, Found* found);
  void Climb(const Case& of, int64_t most, Found* found);
  double Price(const Case& of, const Strategy& split);
  Strategy With(const LayersOfChunks& layers) const;
  LayersOfChunks Balanced(const std::vector<double>& slowest) const;
  int64_t ForWalks() const { return budget_.left - budget_.reserved; }

  const Job& job_;
  StepPredictor& predictor_;
  const Strategy& variant_;
  const bool all_;
  SplitFit& fit_;
  SplitBudget& budget_;
  const int64_t layers_;
  int64_t least_of_chunk_ = 1;
  const LayerTable* table_ = nullptr;  // of any order of nodes, for bounds
  double micro_batches_ = 1, once_ = 0;
  std::vector<int> own_;  // layers by chunk
  std::vector<LayersOfChunks> starts_;
  LayersOfChunks hint_;
  std::map<std::pair<Stretches, SlowStages>, Kept> best_, least_;
};

}  // namespace orrery
