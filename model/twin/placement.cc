// SPDX-License-Identifier: Apache-2.0
// Variants of a layout, the best order of nodes of each, and the choice among what is near.
#include "model/twin/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "model/base/diagnostics.h"
#include "model/twin/layouts.h"
#include "model/twin/order_search.h"

namespace orrery {
namespace {

constexpr double kNear = 1.05;  // of the best: worth a simulation
constexpr std::size_t kMostNear = 5;
constexpr std::size_t kMostLayouts = 32;
constexpr double kLargest = std::numeric_limits<double>::infinity();

Strategy WithPlacement(const Strategy& layout, Placement placement) {
  Strategy placed = layout;
  placed.placement = std::make_shared<const Placement>(std::move(placement));
  return placed;
}

// Speeds that stages may have together: all combinations of those of the nodes, where they are few; else the faster ones
// in front or behind.
std::vector<std::vector<double>> SpeedsOfStages(const std::vector<double>& slowdown, int stages) {
  const std::set<double> of_nodes(slowdown.begin(), slowdown.end());
  const std::vector<double> factors(of_nodes.begin(), of_nodes.end());
  std::vector<std::vector<double>> speeds;
  if (std::pow(factors.size(), stages) <= static_cast<double>(kMostLayouts)) {
    std::vector<std::size_t> turn(static_cast<std::size_t>(stages), 0);
    for (bool more = true; more;) {
      std::vector<double> one;
      for (const std::size_t f : turn) one.push_back(factors[f]);
      speeds.push_back(std::move(one));
      std::size_t digit = 0;
      while (digit < turn.size() && ++turn[digit] == factors.size()) turn[digit++] = 0;
      more = digit < turn.size();
    }
    return speeds;
  }
  for (const double slow : factors) {
    for (int count = 1; count < stages; ++count) {
      std::vector<double> one(static_cast<std::size_t>(stages), factors.front());
      std::fill(one.end() - count, one.end(), slow);
      speeds.push_back(one);
      std::ranges::reverse(one);
      speeds.push_back(std::move(one));
    }
  }
  return speeds;
}

std::vector<std::vector<int>> LayoutsBySpeed(const Job& job, StepPredictor* predictor,
                                             const Strategy& layout) {
  const auto found = predictor->Table(KeyOf(job.model, layout));
  const auto* table = std::get_if<const LayerTable*>(&found);
  if (table == nullptr) return {};
  std::set<std::vector<int>> layouts;
  for (const std::vector<double>& speeds : SpeedsOfStages(SlowdownOf(job), layout.pp)) {
    const std::vector<int64_t> held =
        SharesOf(**table, job.model.layers + job.model.decoder_layers, layout, speeds);
    if (!held.empty()) layouts.insert(*SpreadShares(held, layout));
  }
  std::vector<std::vector<int>> some(layouts.begin(), layouts.end());
  if (some.size() > kMostLayouts) some.resize(kMostLayouts);
  return some;
}

bool Fits(const Job& job, const Strategy& layout) {
  return ReportMemory(LowerLegal(job, layout), LimitsOf(job, layout), Communicators(layout)).fits;
}

bool MixedMemory(const Job& job) {
  return job.topology != nullptr && !job.topology->gpu_memory.empty();
}

// Drops placements that put a stage on GPUs too small for it: by a bound, what passes by its plan.
class FitFilter {
 public:
  FitFilter(const Job& job, const Strategy& layout)
      : job_(job),
        memory_(job.model, job.work, AllocationOf(*job.framework)),
        on_(MixedMemory(job) && Fits(job, layout)) {}

  bool MayFit(const Strategy& placed) {
    if (!on_) return true;
    const BoundOfGpu bound = MemoryBoundOf(job_, placed, &memory_);
    return bound.total <= bound.capacity || Drop();
  }
  bool FitsExactly(const Strategy& placed) { return !on_ || Fits(job_, placed) || Drop(); }
  bool dropped() const { return dropped_; }

 private:
  bool Drop() {
    dropped_ = true;
    return false;
  }
  const Job& job_;
  MemoryModel memory_;
  const bool on_;
  bool dropped_ = false;
};

std::vector<Strategy> Variants(const Job& job, StepPredictor* predictor, Strategy layout,
                               const PlacementOptions& options) {
  layout.placement = nullptr;
  std::vector<Strategy> layouts = {layout};
  if (options.layers && layout.pp > 1 && !SlowdownOf(job).empty()) {
    const bool fitted = Fits(job, layout);
    for (std::vector<int>& layers : LayoutsBySpeed(job, predictor, layout)) {
      Strategy other = layout;
      other.layout = std::make_shared<const std::vector<int>>(std::move(layers));
      if (CheckStrategy(job.model, job.work, other)) continue;
      // On GPUs of different memory that depends on the order of nodes.
      if (!fitted || MixedMemory(job) || Fits(job, other)) layouts.push_back(std::move(other));
    }
  }
  std::vector<Strategy> variants;
  for (const bool stages_inside : {false, true}) {
    if (stages_inside &&
        (!options.axes || layout.pp == 1 || layout.data_parallel() == 1 || layout.cp > 1))
      continue;
    for (const Strategy& one : layouts)
      variants.push_back(WithPlacement(one, Placement{stages_inside, {}}));
  }
  return variants;
}

}  // namespace

std::vector<Strategy> PlacementVariants(const Job& job, const Strategy& layout,
                                        const PlacementOptions& options) {
  StepPredictor predictor(job);
  return Variants(job, &predictor, layout, options);
}

double PlacedSeconds(const Job& job, const Strategy& strategy) {
  const auto priced = StepPredictor(job).Predict(strategy);
  if (const auto* refusal = std::get_if<Refusal>(&priced))
    throw InputError(refusal->reason, refusal->hint);
  return std::get<StepTime>(priced).total;
}

PlacementFound FindPlacement(const Job& job, const Strategy& layout,
                             const PlacementOptions& options) {
  StepPredictor predictor(job);
  PlacementFound found{.strategy = layout, .bound = kLargest, .exact = true};
  found.strategy.placement = nullptr;
  const auto plain = predictor.Predict(WithPlacement(found.strategy, {}));
  if (const auto* refusal = std::get_if<Refusal>(&plain))
    throw InputError(refusal->reason, refusal->hint);
  found.plain = found.seconds = std::get<StepTime>(plain).total;
  std::vector<std::pair<double, Strategy>> all;
  FitFilter fit(job, found.strategy);
  for (const Strategy& variant : Variants(job, &predictor, layout, options)) {
    OrdersFound one = SearchOrders(job, &predictor, variant, options.most, found.seconds * kNear);
    found.exact = found.exact && one.exact;
    found.bound = std::min(found.bound, one.bound);
    found.looked_at += one.looked_at;
    for (auto& [seconds, order] : one.orders) {
      Placement placement = *variant.placement;
      if (!std::ranges::is_sorted(order)) placement.nodes = std::move(order);
      const bool same = placement.plain() && variant.layout == layout.layout;
      if (!same) {
        Strategy placed = WithPlacement(variant, std::move(placement));
        if (!fit.MayFit(placed)) continue;
        all.emplace_back(seconds, std::move(placed));
      }
      found.seconds = std::min(found.seconds, seconds);
    }
  }
  std::ranges::stable_sort(all, {}, &std::pair<double, Strategy>::first);
  for (auto& [seconds, strategy] : all) {
    if (seconds > found.seconds * kNear || found.near.size() > kMostNear) break;
    if (!fit.FitsExactly(strategy)) continue;
    if (found.near.empty()) found.seconds = std::min(found.plain, seconds);
    if (strategy.placement->plain()) strategy.placement = nullptr;
    found.near.push_back(std::move(strategy));
  }
  found.exact = found.exact && !fit.dropped();
  if (found.near.empty()) found.seconds = found.plain;
  if (found.seconds < found.plain * (1 - kSamePlacement)) {
    found.strategy = found.near.front();
    found.near.erase(found.near.begin());
  } else {
    found.seconds = found.plain;
  }
  found.bound = found.exact ? found.seconds : std::min(found.bound, found.seconds);
  return found;
}

PlacementChoice ChoosePlacement(const Job& job, const Strategy& layout,
                                const PlacementOptions& options) {
  PlacementChoice choice{.found = FindPlacement(job, layout, options)};
  const Cluster cluster = ClusterOf(job);
  const auto settled = [&](const Strategy& one) {
    Prediction prediction =
        PredictionOf(job, one, std::get<StepTime>(StepPredictor(job).Predict(one)));
    Settle(job, LowerLegal(job, one), cluster, &prediction);
    return prediction;
  };
  Strategy plain = layout;
  plain.placement = nullptr;
  choice.strategy = plain;
  choice.placed = choice.plain = settled(plain);
  std::vector<Strategy> candidates = choice.found.near;
  const bool better = choice.found.seconds < choice.found.plain;
  if (better) candidates.insert(candidates.begin(), choice.found.strategy);
  const bool simulates = choice.plain.simulated.has_value();
  if (!simulates) candidates.resize(better ? 1 : 0);
  double left = job.most_effort;
  for (std::size_t i = 0; i < candidates.size() && (i == 0 || left > 0); ++i) {
    Prediction placed = settled(candidates[i]);
    left -= SimulationEffort(LowerLegal(job, candidates[i]), cluster.spec.slowdown.empty());
    if (placed.simulated.has_value() != simulates) continue;
    choice.simulated += simulates ? 1 : 0;
    if (placed.time.total >= choice.placed.time.total * (1 - kSamePlacement)) continue;
    choice.strategy = candidates[i];
    choice.placed = std::move(placed);
  }
  if (choice.strategy.placement && choice.strategy.layout != plain.layout) {
    Strategy layers = choice.strategy;
    layers.placement = nullptr;
    const Prediction alone = settled(layers);
    if (alone.simulated.has_value() == simulates) choice.layers_alone = Seconds(alone.time.total);
  }
  choice.refuted = better && !choice.strategy.placement && choice.strategy.layout == plain.layout;
  return choice;
}

}  // namespace orrery
