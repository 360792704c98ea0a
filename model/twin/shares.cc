// SPDX-License-Identifier: Apache-2.0
// Stages on different GPUs: their step, their memory, and how many layers each gets.
#include <algorithm>
#include <set>
#include <string>

#include "model/memory/software_memory.h"
#include "model/twin/visit.h"

namespace orrery {
namespace {

constexpr double kSameTime = 1e-9;        // relative: no gain
constexpr std::size_t kMostImproved = 3;  // of the best of a split

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
  return (total - limits_.Context(communicators).value) / (1 + limits_.fragmentation);
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
      const double limit = own.capacity.value * own.nearly_full;
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

// Balanced stages are not always the fastest: where few micro-batches go by, stages in front wait longer. A layer goes from
// one stage to another as long as that makes the step shorter and fits as well.
std::optional<Entry> Evaluator::Improved(const Visit& visit, const Entry& entry) {
  Entry best = entry;
  const std::vector<int> of_stages = LayersByStage(request_.model, entry.strategy);
  std::vector<int64_t> held(of_stages.begin(), of_stages.end());
  const DataMessages& data = *predictor_.DataOf(entry.strategy);
  const int communicators = Communicators(entry.strategy);
  const auto total = [&](double allocated) {
    return limits_.Total(Bytes(allocated), communicators).value;
  };
  const double margin = limits_.capacity.value * limits_.nearly_full;
  const double limit = total(entry.allocated) <= margin ? margin : limits_.capacity.value;
  for (bool moved = true; moved;) {
    moved = false;
    const std::vector<int64_t> from_here = held;
    for (std::size_t from = 0; from < held.size(); ++from) {
      for (std::size_t to = 0; to < held.size(); ++to) {
        if (from == to || from_here[from] == 0) continue;
        std::vector<int64_t> next = from_here;
        --next[from], ++next[to];
        Strategy s = entry.strategy;
        s.layout = SpreadShares(next, s);
        if (CheckStrategy(request_.model, job_.work, s)) continue;
        const auto found = predictor_.Table(KeyOf(request_.model, s));
        const auto* table = std::get_if<const LayerTable*>(&found);
        if (table == nullptr) continue;
        const PlanOutline outline =
            OutlineOf(request_.model, job_.work, s, LayersOf(request_.model, s));
        const double seconds = visit.mixed() ? SecondsOf(visit, **table, s, outline, data)
                                             : sweep_.Seconds(**table, outline, data);
        if (seconds >= best.seconds * (1 - kSameTime)) continue;
        const double allocated =
            visit.mixed_memory()
                ? Equivalent(memory_.AllocatedByStage(s, visit.split.micro_batches), s,
                             visit.limits)
                : memory_.AllocatedBound(s, visit.split.micro_batches);
        if (total(allocated) > limit) continue;
        best.strategy = std::move(s);
        best.seconds = seconds;
        best.allocated = allocated;
        held = std::move(next);
        moved = true;
      }
    }
  }
  if (best.seconds >= entry.seconds * (1 - kSameTime)) return std::nullopt;
  // Each has a place of its own in the enumeration, behind all others.
  constexpr int64_t kBehind = int64_t{1} << 40;
  best.rank = RankOf(best.seconds, best.strategy.data_parallel(), best.allocated, entry.rank.split,
                     entry.rank.sequence + kBehind);
  return best;
}

// Of what a split is going to answer with. The others stay, each behind what it became.
void Evaluator::ImproveShares(Visit& visit) {
  if (request_.fixed.layout || !preset_.uneven_chunks || request_.model.family == Family::kMlp)
    return;
  std::vector<Entry>& best = visit.result.best;
  std::set<std::string> known;
  for (const Entry& entry : best) known.insert(DescribeLayout(entry.strategy));
  std::vector<Entry> improved;
  for (std::size_t i = 0; i < std::min(kMostImproved, best.size()); ++i) {
    std::optional<Entry> one = Improved(visit, best[i]);
    if (one && known.insert(DescribeLayout(one->strategy)).second)
      improved.push_back(std::move(*one));
  }
  best.insert(best.end(), improved.begin(), improved.end());
  std::ranges::sort(best, {}, &Entry::rank);
}

}  // namespace orrery
