// SPDX-License-Identifier: Apache-2.0
// Branch and bound over the splits of the layers; what is looked at beyond that.
#include "model/twin/split_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/base/diagnostics.h"
#include "model/memory/software_memory.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/outline.h"
#include "model/plan/lower/schedules.h"
#include "model/twin/layouts.h"
#include "model/twin/predict.h"
#include "model/twin/share_climb.h"
#include "model/twin/stage_gpus.h"

namespace orrery {
namespace {

constexpr double kNoStep = std::numeric_limits<double>::infinity();
constexpr int64_t kMostOfWalk = 20000;  // steps priced; a tenth of the branches looked at
constexpr int kMostCutShort = 2;        // walks; the next ones would be, too
// Splits of which some chunk holds no layer are many and seldom faster: they are looked at where steps last for them in so
// many orders of ranks.
constexpr int64_t kOrders = 16;

std::vector<int> SplitByRule(int64_t layers, const Strategy& s) {
  std::vector<int> rule;
  for (const LayerRange& range : BalanceLayers(layers, s))
    rule.push_back(static_cast<int>(range.count));
  return rule;
}

// By stage, the most or the least of all replicas; 1: they are alike.
std::vector<double> OfReplicas(const SlowStages& slow, int stages, bool most) {
  if (slow.empty()) return std::vector<double>(static_cast<std::size_t>(stages), 1.0);
  std::vector<double> of = slow.front();
  for (const std::vector<double>& replica : slow) {
    for (std::size_t stage = 0; stage < of.size(); ++stage)
      of[stage] = most ? std::max(of[stage], replica[stage]) : std::min(of[stage], replica[stage]);
  }
  return of;
}

MemoryReport MemoryOf(const Job& job, const Strategy& layout) {
  return ReportMemory(LowerLegal(job, layout), LimitsOf(job, layout), Communicators(layout));
}

}  // namespace

SplitFit::SplitFit(const Job& job, const Strategy& layout, std::span<const LayersOfChunks> starts)
    : job_(job),
      mixed_(job.topology != nullptr && !job.topology->gpu_memory.empty()),
      memory_(job.model, job.work, AllocationOf(*job.framework)) {
  if (!mixed_ && layout.pp <= 1) return;
  const MemoryReport now = MemoryOf(job, layout);
  on_ = now.fits;
  margin_ = on_ && !now.nearly_full;
  for (const LayersOfChunks& start : starts) {
    if (margin_) break;
    Strategy split = layout;
    split.layout = start;
    if (CheckStrategy(job.model, job.work, split)) continue;
    const MemoryReport then = MemoryOf(job, split);
    exceeded_ = exceeded_ || (then.fits && !now.fits);
    on_ = on_ || then.fits;
    margin_ = then.fits && !then.nearly_full;
  }
}

bool SplitFit::operator()(const Strategy& split, std::span<const int32_t> order) {
  if (!on_) return true;
  Strategy placed = split;
  if (mixed_) {
    Placement placement{split.stages_inside(), {order.begin(), order.end()}};
    if (std::ranges::is_sorted(placement.nodes)) placement.nodes.clear();
    placed.placement = std::make_shared<const Placement>(std::move(placement));
  }
  const BoundOfGpu bound = MemoryBoundOf(job_, placed, &memory_);
  if (bound.total > bound.capacity) return false;
  std::pair<std::vector<int>, std::vector<double>> key;
  if (split.layout) key.first = *split.layout;
  if (mixed_) {
    for (const GpuMemory& memory : StageGpusOf(job_, placed).memory)
      key.second.insert(key.second.end(), {memory.capacity.value, memory.context.value});
  }
  const auto [known, fresh] = known_.try_emplace(std::move(key), false);
  if (fresh) {
    const MemoryReport report = MemoryOf(job_, placed);
    known->second = report.fits && !(margin_ && report.nearly_full);
  }
  return known->second;
}

// One way to place the ranks.
struct SplitSearch::Case {
  const Stretches& stretches;
  const SlowStages& slow;
  double limit;
  const std::span<const int32_t>* order;  // null: any, memory does not count
};

SplitSearch::SplitSearch(const Job& job, StepPredictor* predictor, const Strategy& variant,
                         bool all, SplitFit* fit, SplitBudget* budget)
    : job_(job),
      predictor_(*predictor),
      variant_(variant),
      all_(all),
      fit_(*fit),
      budget_(*budget),
      layers_(job.model.layers + job.model.decoder_layers),
      micro_batches_(static_cast<double>(MicroBatches(job.work, variant))),
      once_(predictor->closed_form().fixed),
      own_(variant.layout ? *variant.layout : SplitByRule(layers_, variant)) {
  const auto found = predictor->LeastTable(KeyOf(job.model, variant));
  if (const auto* refusal = std::get_if<Refusal>(&found))
    throw InputError(refusal->reason, refusal->hint);
  table_ = std::get<const LayerTable*>(found);
  if (CountShares(layers_, own_.size(), 0, kMostOfWalk) <= budget->left / kOrders)
    least_of_chunk_ = 0;
}

const SplitSearch::Found& SplitSearch::Best(const Stretches& stretches, const SlowStages& slow,
                                            double limit, std::span<const int32_t> order) {
  if (fit_.by_order()) best_.clear();
  return FindIn(fit_.by_order() ? &best_ : &least_, stretches, slow, limit, &order);
}

double SplitSearch::Least(const Stretches& stretches, const SlowStages& slow, double limit) {
  const std::span<const int32_t> any;
  const Found& found = FindIn(&least_, stretches, slow, limit, fit_.by_order() ? nullptr : &any);
  if (!found.exact) return Bound(slow);
  return std::min(found.seconds, limit);
}

double SplitSearch::Bound(const SlowStages& slow) const {
  double least = LeastTime(*table_, variant_, micro_batches_, OfReplicas(slow, variant_.pp, false));
  for (const std::vector<double>& replica : slow)
    least = std::max(least, LeastTime(*table_, variant_, micro_batches_, replica));
  return least + once_;
}

const SplitSearch::Found& SplitSearch::FindIn(
    std::map<std::pair<Stretches, SlowStages>, Kept>* kept, const Stretches& stretches,
    const SlowStages& slow, double limit, const std::span<const int32_t>* order) {
  const auto [at, fresh] = kept->try_emplace({stretches, slow});
  Kept& one = at->second;
  // Below a lower limit nothing else is found.
  if (!fresh && (limit <= one.limit || one.found.seconds < one.limit)) return one.found;
  one.limit = limit;
  one.found = Find({at->first.first, at->first.second, limit, order});
  return one.found;
}

Strategy SplitSearch::With(const LayersOfChunks& layers) const {
  Strategy split = variant_;
  split.layout = layers;
  return split;
}

double SplitSearch::Price(const Case& of, const Strategy& split) {
  --budget_.left, ++budget_.priced;
  const auto priced = predictor_.Predict(split, of.stretches, of.slow);
  if (const auto* refusal = std::get_if<Refusal>(&priced)) {
    if (split.layout == variant_.layout) throw InputError(refusal->reason, refusal->hint);
    return kNoStep;
  }
  return std::get<StepTime>(priced).total;
}

bool SplitSearch::Take(const Case& of, const LayersOfChunks& layers, Found* found) {
  const Strategy split = With(layers);
  const bool own = layers == variant_.layout;
  if (!own && (*layers == own_ || CheckStrategy(job_.model, job_.work, split))) return false;
  const double seconds = Price(of, split);
  if (seconds >= found->seconds * (1 - kSamePlacement)) return false;
  if (of.order != nullptr && !fit_(split, *of.order)) return false;
  found->seconds = seconds;
  found->layers = layers;
  return true;
}

LayersOfChunks SplitSearch::Balanced(const std::vector<double>& slowest) const {
  const std::vector<int64_t> held = SharesOf(*table_, layers_, variant_, slowest);
  return held.empty() ? nullptr : SpreadShares(held, variant_);
}

std::vector<LayersOfChunks> SplitSearch::Starts(const SlowStages& slow) const {
  std::vector<LayersOfChunks> all = {variant_.layout};
  if (!all_) return all;
  const auto add = [&](const LayersOfChunks& layers) {
    if (layers == nullptr || *layers == own_) return;
    const auto same = [&](const LayersOfChunks& other) { return other && *other == *layers; };
    if (std::ranges::none_of(all, same)) all.push_back(layers);
  };
  Strategy by_rule = variant_;
  by_rule.layout = nullptr;
  add(std::make_shared<const std::vector<int>>(SplitByRule(layers_, by_rule)));
  add(Balanced(OfReplicas(slow, variant_.pp, true)));
  add(Balanced(OfReplicas(slow, variant_.pp, false)));
  for (const LayersOfChunks& start : starts_) add(start);
  return all;
}

double SplitSearch::SecondsOf(const Stretches& stretches, const SlowStages& slow,
                              const LayersOfChunks& layers, double limit,
                              std::span<const int32_t> order) {
  Found found{limit, layers, false};
  --budget_.climbs;
  const bool own = layers != nullptr && *layers == own_;
  const bool taken = Take({stretches, slow, limit, &order}, own ? variant_.layout : layers, &found);
  return taken ? found.seconds : kNoStep;
}

SplitSearch::Found SplitSearch::Climbed(const Stretches& stretches, const SlowStages& slow,
                                        Found from, std::span<const int32_t> order) {
  const int64_t before = budget_.priced;
  Climb({stretches, slow, from.seconds, &order}, budget_.climbs, &from);
  budget_.climbs -= budget_.priced - before;
  return from;
}

// Over the chunks in their order, which is that of the layers.
class SplitSearch::Walk {
 public:
  Walk(SplitSearch* search, const Case& of, Found* found)
      : search_(*search),
        of_(of),
        found_(*found),
        layers_(search->own_.size(), 0),
        held_(static_cast<std::size_t>(search->variant_.pp), 0.0) {
    const Strategy& s = search->variant_;
    in_a_v_ = s.schedule == PipelineSchedule::kZeroBubbleV;
    // Weight gradients that are put off fill the time that a stage waits, and so does what is computed again.
    waits_ = s.vpp == 1 && !SplitsBackward(s.schedule) && search->table_->recomputed == 0;
    for (const double slower : OfReplicas(of.slow, s.pp, true))
      most_.push_back(CostOnStage(*search->table_, s, slower));
    for (const double slower : OfReplicas(of.slow, s.pp, false))
      least_.push_back(CostOnStage(*search->table_, s, slower));
    most_priced_ = std::min(kMostOfWalk, search->ForWalks());
    branches_left_ = 10 * most_priced_;
  }

  // False: cut short.
  bool Run() {
    Next(0, search_.layers_, 0);
    return branches_left_ > 0 && most_priced_ > 0;
  }

 private:
  double Limit() const { return std::min(of_.limit, found_.seconds) * (1 - kSamePlacement); }

  // Layers that the stage of a chunk may hold: with one more it takes the limit alone.
  double MostOf(std::size_t stage, double before) const {
    const StageCost& cost = most_[stage];
    const double ends = (stage == 0 ? cost.embedding : 0.0) + (HasHead(stage) ? cost.head : 0.0);
    return ((Limit() - search_.once_ - before) / search_.micro_batches_ - ends) / cost.layer;
  }
  bool HasHead(std::size_t stage) const { return stage == (in_a_v_ ? 0 : held_.size() - 1); }

  // What the stages behind can hold at most, with what they hold.
  double Room() const {
    double room = 0;
    for (std::size_t stage = 0; stage < held_.size(); ++stage)
      room += std::max(0.0, std::floor(MostOf(stage, 0)) - held_[stage]);
    return room;
  }

  void Next(std::size_t chunk, int64_t left, double before) {
    if (--branches_left_ <= 0 || most_priced_ <= 0) return;
    const auto stage = static_cast<std::size_t>(
        ChunkAt(in_a_v_, static_cast<int>(held_.size()), static_cast<int>(chunk)).stage);
    const bool last = chunk + 1 == layers_.size();
    const int64_t each = search_.least_of_chunk_;  // but for those of the embedding and the head
    const int64_t behind = last ? 0 : each * (static_cast<int64_t>(layers_.size() - chunk) - 2);
    const int64_t least = chunk == 0 || last ? 0 : each;
    if (static_cast<double>(left) > Room()) return;
    for (int64_t here = last ? left : least; here <= left - behind; ++here) {
      if (held_[stage] + static_cast<double>(here) >= MostOf(stage, before)) break;
      layers_[chunk] = static_cast<int>(here);
      if (last) {
        --most_priced_;
        search_.Take(of_, std::make_shared<const std::vector<int>>(layers_), &found_);
        return;
      }
      held_[stage] += static_cast<double>(here);
      const StageCost& cost = least_[stage];
      const double passes =
          static_cast<double>(here) * cost.layer + (chunk == 0 ? cost.embedding : 0.0);
      Next(chunk + 1, left - here, waits_ ? before + passes : 0.0);
      held_[stage] -= static_cast<double>(here);
    }
  }

  SplitSearch& search_;
  const Case& of_;
  Found& found_;
  bool in_a_v_ = false, waits_ = false;
  std::vector<StageCost> most_, least_;  // by stage, of the slowest and the fastest replica
  std::vector<int> layers_;              // by chunk
  std::vector<double> held_;             // layers by stage
  int64_t most_priced_ = 0, branches_left_ = 0;
};

void SplitSearch::Climb(const Case& of, int64_t most, Found* found) {
  LayoutClimb climb;
  climb.price = [&](LayoutClimb::Shared layers, double limit) -> std::optional<double> {
    const double seconds = Price(of, With(std::move(layers)));
    return seconds <= limit ? std::optional(seconds) : std::nullopt;
  };
  climb.fits = [&](LayoutClimb::Shared layers) {
    const Strategy split = With(std::move(layers));
    return !CheckStrategy(job_.model, job_.work, split) &&
           (of.order == nullptr || fit_(split, *of.order));
  };
  climb.unequal = true;
  climb.empty = least_of_chunk_ == 0;
  climb.most_priced = std::min(climb.most_priced, most);
  LayoutClimb::Shared layers = LayersOf(job_.model, With(found->layers)).layout;
  const double seconds = climb.Run(variant_, &layers, found->seconds);
  if (seconds >= found->seconds * (1 - kSamePlacement)) return;
  found->seconds = seconds;
  found->layers = std::move(layers);
}

SplitSearch::Found SplitSearch::Find(const Case& of) {
  Found found{kNoStep, variant_.layout, true};
  const bool walks = budget_.cut_short < kMostCutShort && ForWalks() > 0;
  // The framework's layers are hardly ever better than those that suit another order.
  if (walks || !hint_) Take(of, variant_.layout, &found);
  if (!all_) return found;
  if (const LayersOfChunks balanced = Balanced(OfReplicas(of.slow, variant_.pp, true)))
    Take(of, balanced, &found);
  if (hint_) Take(of, hint_, &found);
  found.exact = walks && Walk(this, of, &found).Run();
  if (walks && !found.exact) ++budget_.cut_short;
  if (!found.exact && found.seconds < of.limit) Climb(of, ForWalks(), &found);
  return found;
}

}  // namespace orrery
