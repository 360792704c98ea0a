// SPDX-License-Identifier: Apache-2.0
// Orders of axes, the best order of nodes and split of the layers under each, and the choice among what is near.
#include "model/twin/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "model/base/diagnostics.h"
#include "model/twin/explain.h"
#include "model/twin/order_search.h"

namespace orrery {
namespace {

constexpr std::size_t kMostNear = 5;
constexpr int64_t kOfClimbs = 8;  // of the steps, one in so many is for each order of axes

Strategy WithPlacement(const Strategy& layout, Placement placement) {
  Strategy placed = layout;
  placed.placement = std::make_shared<const Placement>(std::move(placement));
  return placed;
}

bool SplitsMatter(const Job& job, const Strategy& layout, const PlacementOptions& options) {
  return options.layers && layout.pp > 1 && job.framework->preset->uneven_chunks &&
         job.model.family != Family::kMlp;
}

// Orders of axes, or the order that is given.
std::vector<Strategy> Variants(const Strategy& layout, const PlacementOptions& options) {
  if (options.given) return {WithPlacement(layout, *options.given)};
  std::vector<Strategy> variants = {WithPlacement(layout, {})};
  if (options.order && layout.pp > 1 && layout.data_parallel() > 1 && layout.cp == 1)
    variants.push_back(WithPlacement(layout, Placement{true, {}}));
  return variants;
}

Strategy PlacedAs(const Strategy& variant, PlacedOrder order) {
  Placement placement{variant.stages_inside(), {}};
  if (!std::ranges::is_sorted(order.nodes)) placement.nodes = std::move(order.nodes);
  Strategy placed = variant;
  placed.layout = std::move(order.layers);
  placed.placement =
      placement.plain() ? nullptr : std::make_shared<const Placement>(std::move(placement));
  return placed;
}

}  // namespace

double PlacedSeconds(const Job& job, const Strategy& strategy) {
  const auto priced = StepPredictor(job).Predict(strategy);
  if (const auto* refusal = std::get_if<Refusal>(&priced))
    throw InputError(refusal->reason, refusal->hint);
  return std::get<StepTime>(priced).total;
}

PlacementFound FindPlacement(const Job& job, const Strategy& layout,
                             const PlacementOptions& options) {
  StepPredictor predictor(job);
  PlacementFound found{.strategy = layout, .exact = true};
  found.bound = std::numeric_limits<double>::infinity();
  found.strategy.placement = nullptr;
  found.splits = SplitsMatter(job, layout, options);
  found.plain = found.seconds = PlacedSeconds(job, WithPlacement(found.strategy, {}));
  const std::vector<LayersOfChunks> starts =
      found.splits ? options.starts : std::vector<LayersOfChunks>();
  SplitFit fit(job, found.strategy, starts);
  found.exceeded = fit.exceeded();
  SplitBudget budget{options.most_splits};
  std::vector<std::pair<double, Strategy>> all;
  const bool plain_counts = !options.given && !found.exceeded;
  if (!plain_counts) found.seconds = std::numeric_limits<double>::infinity();
  const std::vector<Strategy> variants = Variants(found.strategy, options);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Strategy& variant = variants[i];
    budget.climbs = options.most_splits / kOfClimbs;
    budget.reserved = found.splits && i + 1 < variants.size() ? budget.climbs : 0;
    SplitSearch splits(job, &predictor, variant, found.splits, &fit, &budget);
    splits.Begin(starts);
    OrdersFound one = SearchOrders(job, &splits, variant,
                                   {options.most, options.order && !options.given, found.seconds});
    found.exact = found.exact && one.exact;
    found.bound = std::min(found.bound, one.bound);
    found.looked_at += one.looked_at;
    for (PlacedOrder& order : one.orders) {
      found.seconds = std::min(found.seconds, order.seconds);
      const double seconds = order.seconds;
      Strategy placed = PlacedAs(variant, std::move(order));
      if (placed.placement || placed.layout != layout.layout)
        all.emplace_back(seconds, std::move(placed));
    }
  }
  found.priced = budget.priced;
  std::ranges::stable_sort(all, {}, &std::pair<double, Strategy>::first);
  for (auto& [seconds, strategy] : all) {
    if (seconds <= found.seconds * kNearPlacement && found.near.size() <= kMostNear)
      found.near.push_back(std::move(strategy));
  }
  if (!found.near.empty() &&
      (!plain_counts || found.seconds < found.plain * (1 - kSamePlacement))) {
    found.strategy = found.near.front();
    found.near.erase(found.near.begin());
  } else if (!options.given) {
    found.seconds = found.plain, found.exceeded = false;
  }
  found.bound = found.exact ? found.seconds : std::min(found.bound, found.seconds);
  return found;
}

namespace {

// Layouts by the engine of the options, each once.
class Settler {
 public:
  Settler(const Job& job, Engine engine) : job_(job), engine_(engine), cluster_(ClusterOf(job)) {}

  const Prediction& operator()(const Strategy& layout) {
    const auto [known, fresh] = known_.try_emplace(DescribeLayout(layout) + Layers(layout));
    if (fresh) known->second = Settled(layout);
    return known->second;
  }
  int simulated() const { return simulated_; }

 private:
  // Whether chunks have the framework's split or another is not in the words of every layout.
  static std::string Layers(const Strategy& layout) {
    std::string text;
    if (layout.layout)
      for (const int layers : *layout.layout) text += " " + std::to_string(layers);
    return text;
  }
  Prediction Settled(const Strategy& layout) {
    // With a placement, the default one too: else the uplinks of both sides of a comparison would count differently.
    const Strategy priced = layout.placement ? layout : WithPlacement(layout, {});
    Prediction prediction =
        PredictionOf(job_, layout, std::get<StepTime>(StepPredictor(job_).Predict(priced)));
    if (engine_ == Engine::kClosed) return prediction;
    const ir::Plan plan = LowerLegal(job_, layout);
    if (engine_ == Engine::kEvent) {
      SimulatedStep step;
      const StepTime time = SimulateLayout(job_, layout, plan, cluster_, &step);
      TakeSimulated(time, std::move(step), &prediction);
    } else {
      Settle(job_, plan, cluster_, &prediction);
    }
    simulated_ += prediction.simulated.has_value();
    return prediction;
  }

  const Job& job_;
  const Engine engine_;
  const Cluster cluster_;
  std::map<std::string, Prediction> known_;
  int simulated_ = 0;
};

// Relative: an order that gains less is none to recommend; answers would print 0.0 %.
constexpr double kShownGain = 5e-4;

// The fastest of what a search found, by the engine of the layout as it was; that one where none is faster.
Prediction FastestOf(const Job& job, const PlacementFound& found, const Prediction& plain,
                     bool plain_counts, Settler* settled) {
  std::vector<Strategy> candidates = found.near;
  plain_counts = plain_counts && !found.exceeded;
  const bool better = found.seconds < found.plain;
  const bool simulates = plain.simulated.has_value();
  if (better || !plain_counts) candidates.insert(candidates.begin(), found.strategy);
  if (!simulates) candidates.resize(better || !plain_counts ? 1 : 0);
  std::optional<Prediction> fastest;
  if (plain_counts) fastest = plain;
  double left = job.most_effort;
  for (std::size_t i = 0; i < candidates.size() && (i == 0 || left > 0); ++i) {
    const Prediction& placed = (*settled)(candidates[i]);
    const ir::Plan plan = LowerLegal(job, candidates[i]);
    left -= SimulationEffort(plan, candidates[i], sim::MergesReplicas(plan, ClusterOf(job)));
    if (placed.simulated.has_value() != simulates && (plain_counts || i > 0)) continue;
    if (fastest && placed.time.total >= fastest->time.total * (1 - kSamePlacement)) continue;
    fastest = placed;
  }
  const bool gains = !plain_counts || fastest->time.total < plain.time.total * (1 - kShownGain);
  return gains ? *fastest : plain;
}

// The layout with the splits to begin with: those that fit at least as well as it does, without placement.
std::vector<Strategy> Bases(const Job& job, const Strategy& plain,
                            const PlacementOptions& options) {
  std::vector<Strategy> bases;
  SplitFit fit(job, plain, options.starts);
  std::vector<int32_t> order(static_cast<std::size_t>(job.cluster.nodes));
  std::iota(order.begin(), order.end(), 0);
  for (const LayersOfChunks& start : options.starts) {
    Strategy base = plain;
    base.layout = start;
    const bool same = start == plain.layout || (start && plain.layout && *start == *plain.layout);
    if (!same && !CheckStrategy(job.model, job.work, base) && fit(base, order))
      bases.push_back(std::move(base));
  }
  return bases;
}

}  // namespace

PlacementChoice ChoosePlacement(const Job& job, const Strategy& layout,
                                const PlacementOptions& options) {
  PlacementChoice choice{.found = FindPlacement(job, layout, options)};
  Settler settled(job, options.engine);
  Strategy plain = layout;
  plain.placement = nullptr;
  choice.plain = settled(plain);
  choice.placed = FastestOf(job, choice.found, choice.plain, !options.given, &settled);
  const auto by = [&](const Strategy& base, bool order, bool layers) {
    PlacementOptions part = options;
    part.order = order, part.layers = layers;
    return FastestOf(job, FindPlacement(job, base, part), settled(base), true, &settled);
  };
  if (choice.found.splits && options.order && !options.given) {
    const bool exceeded = choice.found.exceeded;
    const Prediction order = by(plain, true, false), layers = by(plain, false, true);
    std::vector<Prediction> parts = {layers};
    if (!exceeded) parts.push_back(order);
    for (const Strategy& base : Bases(job, plain, options)) parts.push_back(by(base, true, false));
    for (const Prediction& part : parts) {
      if (part.simulated.has_value() == choice.placed.simulated.has_value() &&
          part.time.total < choice.placed.time.total * (1 - kSamePlacement) &&
          (exceeded || part.time.total < choice.plain.time.total * (1 - kShownGain)))
        choice.placed = part;
    }
    const Strategy& best = choice.placed.strategy;
    if (!exceeded && best.placement && best.layout != plain.layout) {
      choice.order_alone = Seconds(order.time.total);
      choice.layers_alone = Seconds(layers.time.total);
    }
  }
  choice.strategy = choice.placed.strategy;
  choice.simulated = settled.simulated() - choice.plain.simulated.has_value();
  choice.refuted = choice.found.seconds < choice.found.plain * (1 - kShownGain) &&
                   !choice.strategy.placement && choice.strategy.layout == plain.layout;
  return choice;
}

namespace {

// All axes, but for the layers.
FixedAxes AllFixed(const Strategy& s) {
  FixedAxes axes;
  axes.tp = s.tp, axes.pp = s.pp, axes.dp = static_cast<int>(s.data_parallel());
  axes.dp_outer = s.dp_outer, axes.vpp = s.vpp, axes.zero = s.zero;
  axes.micro_batch = s.micro_batch, axes.cp = s.cp, axes.recompute = s.recompute;
  axes.offload = s.offload, axes.sequence_parallel = s.sequence_parallel;
  axes.schedule = s.schedule;
  if (s.cp == 1) return axes;
  axes.cp_method = s.context.method, axes.zigzag = s.context.zigzag;
  if (s.context.method == CpMethod::kA2aRing) axes.cp_inner = s.context.inner;
  return axes;
}

// Layers that a search of these axes alone finds in the default order of ranks; null: the framework's, or none.
LayersOfChunks LayersBySearch(SearchRequest request, const Profiles& profiles, int64_t nodes,
                              int64_t global_batch, const Strategy& layout) {
  request.fixed = AllFixed(layout);
  request.nodes = {nodes}, request.global_batches = {global_batch};
  request.objective = Objective::kTime;
  request.top = 1, request.refine = 0, request.threads = 1;
  request.variants = false, request.progress = nullptr;
  try {
    const SearchResult result = SearchOnly(request, profiles);
    return result.feasible() ? result.ranked.front().strategy.layout : nullptr;
  } catch (const InputError&) {
    return nullptr;  // a layout by hand that no search looks at
  }
}

}  // namespace

PlacementChoice ChoosePlacement(const SearchRequest& request, const Profiles& profiles,
                                int64_t nodes, int64_t global_batch, const Strategy& layout,
                                PlacementOptions options) {
  const Job job = JobOf(request, profiles, nodes, global_batch);
  if (SplitsMatter(job, layout, options)) {
    if (LayersOfChunks layers = LayersBySearch(request, profiles, nodes, global_batch, layout))
      options.starts.push_back(std::move(layers));
  }
  return ChoosePlacement(job, layout, options);
}

}  // namespace orrery
