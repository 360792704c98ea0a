// SPDX-License-Identifier: Apache-2.0
// How many layers each stage gets: by its GPUs' speed and memory, and by what single layers gain elsewhere.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/memory/software_memory.h"
#include "model/twin/default_shares.h"
#include "model/twin/share_climb.h"
#include "model/twin/time_bound.h"
#include "model/twin/visit.h"

namespace orrery {
namespace {

constexpr std::size_t kMostMoved = 3;  // kinds of layouts of a split
constexpr std::size_t kMostRuns = 48;  // layouts of a split that are looked at behind them

// Layouts whose layers have moved have places of their own in the enumeration, behind all others.
constexpr int64_t kBehind = int64_t{1} << 40;

using Shared = std::shared_ptr<const std::vector<int>>;

}  // namespace

const StageGpus& Evaluator::GpusOf(const Split& split) {
  const auto [found, fresh] = gpus_.try_emplace({split.tp, split.pp, split.cp, split.data});
  if (!fresh) return found->second;
  Strategy s;
  s.tp = split.tp, s.pp = split.pp, s.cp = split.cp, s.dp = split.data;
  return found->second = StageGpusOf(job_, s);
}

// The slowest replica's, as StepPredictor has it.
double Evaluator::SecondsOf(const Visit& visit, const LayerTable& table, const Strategy& strategy,
                            PlanOutline outline, const DataMessages& data) {
  double most = 0;
  for (const std::vector<double>& slowdown : visit.SlowdownsOf(StagesWait(strategy))) {
    outline.slowdown = &slowdown;
    most = std::max(most, sweep_.Seconds(table, outline, data));
  }
  return most;
}

double Evaluator::Equivalent(const std::vector<double>& by_stage, const Strategy& strategy,
                             const MemoryLimits& limits) const {
  const int communicators = Communicators(strategy);
  const double total = limits.Filled(by_stage, communicators) * limits_.capacity.value;
  return (total - (limits_.workspaces + limits_.Context(communicators)).value) /
         (1 + limits_.fragmentation);
}

// Layers that the memory of a stage cannot hold go to the stages that are next to get one: `most` of the balance falls until
// every stage fits with the margin. What a stage holds grows with its own layers alone.
Shared Evaluator::FittedLayout(const Visit& visit, const Strategy& strategy) {
  const auto found = predictor_.Table(KeyOf(request_.model, strategy));
  const auto* table = std::get_if<const LayerTable*>(&found);
  if (table == nullptr) return nullptr;
  const std::vector<double> slowdown = visit.gpus->Slowest();
  const int communicators = Communicators(strategy);
  std::vector<int64_t> most(static_cast<std::size_t>(strategy.pp), request_.model.layers);
  Strategy trial = strategy;
  for (bool first = true;; first = false) {
    const std::vector<int64_t> held =
        SharesOf(**table, request_.model.layers, strategy, slowdown, most);
    if (held.empty()) return nullptr;
    trial.layout = SpreadShares(held, strategy);
    if (CheckStrategy(request_.model, job_.work, trial)) return nullptr;
    const std::vector<double> allocated =
        memory_.AllocatedByStage(trial, visit.split.micro_batches);
    bool fits = true;
    for (std::size_t stage = 0; stage < allocated.size(); ++stage) {
      const MemoryLimits own = visit.limits.Of(static_cast<int>(stage));
      const double limit = own.WithMargin().value;
      const double over = own.Total(Bytes(allocated[stage]), communicators).value - limit;
      if (over <= 0) continue;
      if (held[stage] == 0) return nullptr;
      fits = false;
      // A layer is at most an equal part of what the stage holds: no fewer have to go.
      const double layer = allocated[stage] / static_cast<double>(held[stage]);
      most[stage] = held[stage] - std::max<int64_t>(1, static_cast<int64_t>(over / layer));
      if (most[stage] < 0) return nullptr;
    }
    if (fits) return first ? nullptr : trial.layout;  // the balanced one is looked at anyway
  }
}

// By shard: each leaves the layers another room.
void Evaluator::RunFitted(Visit& visit, Group& group) {
  if (!visit.mixed_memory()) return;
  for (std::size_t i = 0; i < visit.shards.size(); ++i) {
    group.base.layout = nullptr;
    const Strategy s = StrategyOf(group.base, visit.shards[i]);
    if (CheckStrategy(request_.model, job_.work, s)) continue;
    const Shared layout = FittedLayout(visit, s);
    if (!layout) continue;
    group.base.layout = layout;
    group.only = i;
    RunLegal(visit, group, 1);
  }
  group.only = kNone;
}

// Of a layout that names its chunks; none: more than `most`.
std::optional<double> Evaluator::SecondsWith(const Visit& visit, const Strategy& s,
                                             const DataMessages& data, double most) {
  const auto found = predictor_.Table(KeyOf(request_.model, s));
  const auto* table = std::get_if<const LayerTable*>(&found);
  if (table == nullptr) return std::nullopt;
  const PlanOutline outline = OutlineOf(request_.model, job_.work, s, LayersOf(request_.model, s));
  // A walk ends early where the passes alone take too long.
  const std::optional<double> seconds = visit.mixed()
                                            ? SecondsOf(visit, **table, s, outline, data)
                                            : sweep_.Seconds(**table, outline, data, most);
  return seconds && *seconds <= most ? seconds : std::nullopt;
}

double Evaluator::AllocatedWith(const Visit& visit, const Strategy& s) {
  return visit.mixed_memory()
             ? Equivalent(memory_.AllocatedByStage(s, visit.split.micro_batches), s, visit.limits)
             : memory_.AllocatedBound(s, visit.split.micro_batches);
}

// Of the runs of fuller chunks that fit with the margin, the fastest, where it takes less than `most`.
std::optional<Entry> Evaluator::FastestRun(const Visit& visit, const Entry& entry, double most,
                                           ShareCounts* counts) {
  const DataMessages& data = *predictor_.DataOf(entry.strategy);
  const double margin = limits_.WithMargin().value;
  Entry best = entry;
  Shared fastest;
  for (const Shared& run : RunsOfFullerChunks(request_.model.layers, entry.strategy)) {
    best.strategy.layout = run;
    ++counts->priced;
    const auto seconds = SecondsWith(visit, best.strategy, data, most * (1 - kSameShares));
    if (!seconds || CheckStrategy(request_.model, job_.work, best.strategy)) continue;
    const double allocated = AllocatedWith(visit, best.strategy);
    if (limits_.Total(Bytes(allocated), Communicators(best.strategy)).value > margin) continue;
    most = best.seconds = *seconds, best.allocated = allocated, fastest = run;
  }
  if (!fastest) return std::nullopt;
  best.strategy.layout = fastest;
  best.rank = RankOf(best.seconds, best.strategy.data_parallel(), best.allocated, entry.rank.split,
                     entry.rank.sequence + kBehind);
  return best;
}

// Balanced stages are not always the fastest: where few micro-batches go by, stages in front wait longer; where links are slow,
// those beside a slow one; and where layers do not divide, full ones that stand next to each other.
std::optional<Entry> Evaluator::Moved(const Visit& visit, const Entry& entry, ShareCounts* counts) {
  const DataMessages& data = *predictor_.DataOf(entry.strategy);
  const int communicators = Communicators(entry.strategy);
  const auto total = [&](double allocated) {
    return limits_.Total(Bytes(allocated), communicators).value;
  };
  const double margin = limits_.WithMargin().value;
  const double needs = total(entry.allocated);  // a near miss: no more than that
  const double limit = needs <= margin ? margin : std::max(limits_.capacity.value, needs);
  Entry best = entry;
  Strategy& s = best.strategy;
  LayoutClimb climb;
  climb.price = [&](Shared layout, double most) {
    s.layout = std::move(layout);
    return SecondsWith(visit, s, data, most);
  };
  climb.fits = [&](Shared layout) {
    s.layout = std::move(layout);
    if (CheckStrategy(request_.model, job_.work, s)) return false;
    best.allocated = AllocatedWith(visit, s);
    return total(best.allocated) <= limit;
  };
  climb.unequal = entry.strategy.layout != nullptr || !predictor_.StagesOf(s)->hops.empty() ||
                  request_.model.layers % (int64_t{1} * s.pp * s.vpp) != 0;
  Shared layout = LayersOf(request_.model, entry.strategy).layout;
  best.seconds = climb.Run(entry.strategy, &layout, entry.seconds);
  counts->priced += climb.priced;
  if (best.seconds >= entry.seconds * (1 - kSameShares) || !climb.fits(layout)) return std::nullopt;
  best.rank = RankOf(best.seconds, s.data_parallel(), best.allocated, entry.rank.split,
                     entry.rank.sequence + kBehind);
  return best;
}

// False: no shares of the layers can bring a layout's objective below `below`, or none are told apart.
bool Evaluator::MayGain(const Visit& visit, const Entry& entry, double below, ShareCounts* counts) {
  const Strategy& s = entry.strategy;
  const auto micro_batches = static_cast<double>(visit.split.micro_batches);
  PlanOutline outline = OutlineOf(request_.model, job_.work, s, LayersOf(request_.model, s));
  if (!StepSweep::CanWalk(outline)) {
    ++counts->too_long;
    return false;
  }
  const auto found = predictor_.Table(KeyOf(request_.model, s));
  const LayerTable& table = *std::get<const LayerTable*>(found);
  double least = visit.mixed() ? 0 : LeastTime(table, s, micro_batches);
  for (const std::vector<double>& slowdown : visit.SlowdownsOf(StagesWait(s)))
    least = std::max(least, LeastTime(table, s, micro_batches, slowdown));
  least += predictor_.closed_form().fixed;
  if (ObjectiveValue(request_, least, job_, visit.split.data) < below) return true;
  ++counts->bounded;
  return false;
}

bool Evaluator::MayMove(const Split& split) const {
  return request_.shares && !request_.fixed.layout && preset_.uneven_chunks && split.pp > 1 &&
         request_.model.family != Family::kMlp;
}

Evaluator::Visit Evaluator::StartMoves(const Split& split, const EvaluateOptions& options) {
  Visit visit{split, 0, options, {}};
  if (mixed_) visit.gpus = &GpusOf(split);
  visit.limits = mixed_ ? LimitsOf(job_, *visit.gpus) : limits_;
  sweep_.Start(*predictor_.Stages(split.pp, split.tp * split.cp * split.data, split.tp * split.cp));
  return visit;
}

void Evaluator::MoveLayers(const Split& split, double below, Moves moves, SplitResult* result) {
  if (!MayMove(split)) return;
  const EvaluateOptions options;
  const Visit visit = StartMoves(split, options);
  ShareCounts& counts = result->counts.shares;
  std::vector<Entry>& best = result->best;
  // Whatever their layers. What leaves less memory than published runs did ranks below all that keeps this margin, unless moved
  // layers make it keep it: it takes no turn from the others.
  std::set<std::string> kinds[2];
  const double margin = limits_.WithMargin().value;
  std::vector<Entry> faster;
  for (const Entry& entry : best) {
    const Bytes total = limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy));
    std::set<std::string>& own = kinds[total.value > margin ? 1 : 0];
    if (own.size() == kMostMoved) continue;
    Strategy kind = entry.strategy;
    kind.layout = nullptr;
    if (!own.insert(DescribeLayout(kind)).second) continue;
    if (!MayGain(visit, entry, below, &counts)) continue;
    ++counts.moved;
    std::optional<Entry> one = Moved(visit, entry, &counts);
    counts.faster += one.has_value();
    if (one) faster.push_back(std::move(*one));
  }
  best.insert(best.end(), faster.begin(), faster.end());
  std::ranges::sort(best, {}, &Entry::rank);
  if (moves != Moves::kGiven)
    MoveOthers(visit, below, moves == Moves::kAll, std::move(kinds[0]), result);
  NameShares(result);
}

// What fits with the margin may lie behind all that a split has kept: behind layouts that are nearly full; or its chunks do not
// divide, which is far slower by the rule of the pipeline than with the fuller ones in a row, as `predict` has them. Those whose
// bound says that they may be faster are looked at, the latter laid out again. `moved`: kinds whose layers were moved.
void Evaluator::MoveOthers(const Visit& visit, double below, bool each, std::set<std::string> moved,
                           SplitResult* result) {
  std::vector<Entry>& best = result->best;
  if (best.empty()) return;
  ShareCounts& counts = result->counts.shares;
  const double margin = limits_.WithMargin().value;
  const auto fits = [&](const Entry& entry) {
    return limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy)).value <= margin;
  };
  const auto first = std::ranges::find_if(best, fits);
  double least = first == best.end() ? std::numeric_limits<double>::max() : first->seconds;
  EvaluateOptions options;
  options.fits_in = margin;
  options.any_shares_below =
      each || first == best.end() ? below : std::min(below, first->rank.value);
  options.keep = kMostRuns;
  const SplitResult others = Run(visit.split, best.front().rank.split, options);
  for (Entry one : others.best) {
    Strategy kind = one.strategy;
    kind.layout = nullptr;
    const bool runs = ChoosesShares(request_.model, preset_, kind);
    const bool again = moved.contains(DescribeLayout(kind));
    if ((!runs && (again || moved.size() >= kMostMoved)) ||
        !MayGain(visit, one, options.any_shares_below, &counts))
      continue;
    bool faster = false;
    if (runs) {
      const auto run =
          FastestRun(visit, one, each ? one.seconds : std::min(least, one.seconds), &counts);
      if (!run && (again || moved.size() >= kMostMoved)) continue;
      if (run) one = *run, faster = true;
    }
    if (moved.insert(DescribeLayout(kind)).second) ++counts.moved;
    if (const auto climbed = Moved(visit, one, &counts)) one = *climbed, faster = true;
    if (!faster) continue;
    ++counts.faster;
    least = std::min(least, one.seconds);
    best.push_back(std::move(one));
  }
  std::ranges::sort(best, {}, &Entry::rank);
}

// Chunks that do not divide and are laid out by the rule: `predict` would choose other ones, were they not named.
void Evaluator::NameShares(SplitResult* result) const {
  for (Entry& entry : result->best) {
    Strategy& s = entry.strategy;
    if (ChoosesShares(request_.model, preset_, s)) s.layout = LayersOf(request_.model, s).layout;
  }
  // Several kinds may have ended with the same chunks.
  std::set<std::string> named;
  std::erase_if(result->best, [&](const Entry& entry) {
    return entry.strategy.layout && !named.insert(DescribeLayout(entry.strategy)).second;
  });
}

// What needs more memory is named with its step: where chunks do not divide, that of shares as good as those of the rows, unless
// these fit.
void Evaluator::MoveUnfit(const Split& split, double near_below, double unlimited_below,
                          SplitResult* result) {
  if (!MayMove(split)) return;
  const EvaluateOptions options;
  const Visit visit = StartMoves(split, options);
  std::optional<Entry>&near = result->near_miss, &unlimited = result->unlimited;
  const bool same = near && unlimited && near->rank == unlimited->rank;
  for (std::optional<Entry>* one : {&near, &unlimited}) {
    if (!*one || (same && one == &unlimited)) continue;
    Strategy kind = (*one)->strategy;
    kind.layout = nullptr;
    const Bytes total = limits_.Total(Bytes((*one)->allocated), Communicators(kind));
    if (total <= limits_.capacity || !ChoosesShares(request_.model, preset_, kind) ||
        !MayGain(visit, **one, one == &near ? near_below : unlimited_below, &result->counts.shares))
      continue;
    std::optional<Entry> moved = Moved(visit, **one, &result->counts.shares);
    if (!moved) continue;
    if (same) unlimited = moved;
    const Bytes needed = limits_.Total(Bytes(moved->allocated), Communicators(kind));
    if (one == &unlimited || needed > limits_.capacity) *one = std::move(moved);
  }
}

}  // namespace orrery
