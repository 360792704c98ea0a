// SPDX-License-Identifier: Apache-2.0
// Evaluates one split of the search.
#include "model/twin/evaluator.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "model/base/check.h"
#include "model/memory/software_memory.h"
#include "model/twin/time_bound.h"

namespace orrery {
namespace {

constexpr double kNearMiss = 1.25;  // of the capacity

std::vector<Entry>::iterator InsertBest(std::vector<Entry>& best, const Entry& entry) {
  const auto at = std::upper_bound(best.begin(), best.end(), entry,
                                   [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
  return best.insert(at, entry);
}

void KeepBetter(std::optional<Entry>& kept, const Entry& entry) {
  if (!kept || entry.rank < kept->rank) kept = entry;
}

}  // namespace

double ObjectiveValue(Objective objective, double step_seconds, const Job& job) {
  const double per_sequence = 1.0 / static_cast<double>(job.work.global_batch);
  switch (objective) {
    case Objective::kTime:
      return step_seconds * per_sequence;
    case Objective::kCost:
      return step_seconds * job.price().value_or(0.0);
    case Objective::kTokensPerDollar:
      return step_seconds * per_sequence * job.price().value_or(0.0);
  }
  ORRERY_CHECK(false, "objective {}", static_cast<int>(objective));
}

// A strategy and where it stands. Bytes: allocated, and with what the machine itself needs.
struct Evaluator::Place {
  const Strategy* strategy;
  double allocated, total;
  int64_t sequence;
};

// Strategies that differ in the degree of sharding alone.
struct Evaluator::Sharded {
  Strategy strategy;
  PlanOutline outline;
  const LayerTable* table = nullptr;

  void Shard(const ShardChoice& shard) {
    strategy.dp = shard.dp;
    strategy.dp_outer = shard.dp_outer;
    if (strategy.zero > 0) outline.shards = static_cast<double>(strategy.shards());
  }
};

// A strategy whose passes have to be walked: its place without the strategy.
struct Evaluator::ToWalk {
  Place place;
  std::size_t of;     // which of Visit::sharded
  std::size_t shard;  // and its degree of sharding
  double least;       // lower bound of its objective
};

// What layouts under one recomputation have in common.
struct Evaluator::LayerKind {
  Recompute recompute;
  const PlanForms* forms[3][4][2] = {};  // split backward, ZeRO, hybrid; found when first wanted
  // By chunks; where some layers are recomputed by schedule, too. Null: there is no table.
  std::map<std::pair<int, PipelineSchedule>, const Layouts*> layouts;
};

// One split under way, with look-ups that all its strategies share.
struct Evaluator::Visit {
  const Split& split;
  int64_t index;
  const EvaluateOptions& options;
  std::vector<ShardChoice> shards;
  std::vector<const DataMessages*> data;  // by shard
  const StageMessages* stages = nullptr;
  std::vector<LayerKind> kinds = {};  // of the modules under way
  SplitResult result = {};
  int64_t sequence = 0;
  std::vector<ToWalk> to_walk = {};
  std::deque<Sharded> sharded = {};  // what they are of

  LayerKind& KindOf(const Recompute& recompute) {
    for (LayerKind& kind : kinds) {
      if (kind.recompute == recompute) return kind;
    }
    return kinds.emplace_back(LayerKind{recompute});
  }
  // True if no strategy of this value can enter the result.
  bool Beaten(double value) const {
    if (value >= options.below) return true;
    return options.prune && result.best.size() >= options.keep &&
           value > result.best.back().rank.value;
  }
  // No value above this one would be kept of what takes so many bytes.
  double LargestOfUse(double bytes, double capacity) const {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    const auto of = [](const std::optional<Entry>& kept) { return kept ? kept->rank.value : kAny; };
    if (bytes <= capacity) {
      const bool full = result.best.size() >= options.keep;
      return std::max(of(result.unlimited), full ? result.best.back().rank.value : kAny);
    }
    const bool near = bytes <= kNearMiss * capacity;
    return std::max(of(result.unlimited), near ? of(result.near_miss) : 0.0);
  }
  void Refuse(const Refusal& refusal, const Strategy& s, int64_t strategies) {
    result.counts.illegal += strategies;
    Tally& tally = result.refusals[refusal.reason];
    tally.strategies += strategies;
    if (tally.example.empty()) tally.example = DescribeLayout(s, split.micro_batches);
  }
};

struct Evaluator::Group {
  Strategy base;
  LayerKind* kind = nullptr;
  bool started = false;  // group_terms_ are of it
};

Evaluator::Evaluator(const SearchRequest& request, const FrameworkPreset& preset,
                     const MemoryLimits& limits, const Job& job, MemoryModel& memory,
                     ShapeCache* shapes)
    : request_(request),
      preset_(preset),
      limits_(limits),
      job_(job),
      space_(request, preset),
      predictor_(job, shapes),
      sweep_(predictor_.closed_form()),
      memory_(memory) {}

void Evaluator::Consider(Visit& visit, const Place& place, const Sharded& of, std::size_t shard,
                         bool* listed) {
  ++visit.result.counts.evaluated;
  double least = 0;
  if (const auto seconds = sweep_.ByFormula(*of.table, of.outline, *visit.data[shard], &least))
    return Keep(visit, place, *seconds);
  least = ObjectiveValue(request_.objective, least, job_);
  if (least > visit.LargestOfUse(place.total, limits_.capacity.value)) {
    visit.result.truncated |= place.total <= limits_.capacity.value;
    return;
  }
  if (!*listed) visit.sharded.push_back(of);
  *listed = true;
  visit.to_walk.push_back({place, visit.sharded.size() - 1, shard, least});
}

// From the lowest bound on: most of the others then cannot be kept any more. `until_full`: no more than fill the best few.
void Evaluator::Walk(Visit& visit, bool until_full) {
  SplitResult& result = visit.result;
  std::ranges::sort(visit.to_walk, {},
                    [](const ToWalk& one) { return std::pair(one.least, one.place.sequence); });
  const double capacity = limits_.capacity.value;
  std::vector<ToWalk> left;
  for (ToWalk& one : visit.to_walk) {
    const bool fits = one.place.total <= capacity;
    if (one.least > visit.LargestOfUse(one.place.total, capacity)) {
      result.truncated |= fits;
      continue;
    }
    if (until_full && (!fits || result.best.size() >= visit.options.keep)) {
      left.push_back(one);
      continue;
    }
    Sharded& of = visit.sharded[one.of];
    of.Shard(visit.shards[one.shard]);
    one.place.strategy = &of.strategy;
    Keep(visit, one.place,
         predictor_.closed_form().StepSeconds(*of.table, of.outline, *visit.data[one.shard],
                                              *visit.stages));
  }
  visit.to_walk = std::move(left);
}

void Evaluator::Keep(Visit& visit, const Place& place, double seconds) {
  SplitResult& result = visit.result;
  const double value = ObjectiveValue(request_.objective, seconds, job_);
  const Entry entry{{value, place.allocated, visit.index, place.sequence},
                    *place.strategy,
                    seconds,
                    0,
                    place.allocated};
  if (visit.options.after && !(entry.rank > *visit.options.after)) return;
  KeepBetter(result.unlimited, entry);
  if (place.total > limits_.capacity.value) {
    if (place.total <= kNearMiss * limits_.capacity.value) KeepBetter(result.near_miss, entry);
    return;
  }
  if (result.best.size() == visit.options.keep) {
    result.truncated = true;
    if (!(entry.rank < result.best.back().rank)) return;
    result.best.pop_back();
  }
  InsertBest(result.best, entry);
}

void Evaluator::RunGroup(Visit& visit, Group group) {
  SearchCounts& counts = visit.result.counts;
  const int split = group.base.schedule == PipelineSchedule::kZeroBubbleV ? 2
                    : SplitsBackward(group.base.schedule)                 ? 1
                                                                          : 0;
  const BoundTerms* terms = nullptr;
  std::optional<PipelineLayers> layers;
  sweep_.NextPipeline();
  Sharded of;
  Strategy& s = of.strategy;
  const LayerTable*& table = of.table;
  bool listed = false;
  double value_bound = 0;
  int zero = -1, hybrid = -1;
  for (std::size_t i = 0; i < visit.shards.size(); ++i) {
    const ShardChoice& shard = visit.shards[i];
    const int64_t sequence = visit.sequence++;  // the same in every run, whatever is pruned
    const int outer = shard.dp_outer > 1;
    if (shard.zero != zero || outer != hybrid) {
      s = group.base;
      s.zero = shard.zero;
      s.dp = shard.dp;
      s.dp_outer = shard.dp_outer;
      s = preset_.Complete(s, job_.work);
      FollowFramework(*job_.framework, &s);
      const auto found = predictor_.Table(KeyOf(request_.model, s));
      if (const auto* refusal = std::get_if<Refusal>(&found)) {
        visit.Refuse(*refusal, s, 1);
        continue;
      }
      if (std::get<const LayerTable*>(found) != table) {
        table = std::get<const LayerTable*>(found);
        if (!layers) layers = LayersOf(request_.model, s);
        const auto micro_batches = static_cast<double>(visit.split.micro_batches);
        const double bound =
            TimeBound(*table, s, *layers, micro_batches) + predictor_.closed_form().fixed;
        value_bound = ObjectiveValue(request_.objective, bound, job_);
      }
      zero = shard.zero;
      hybrid = outer;
      listed = false;
      if (!visit.Beaten(value_bound)) {
        const PlanForms*& forms = group.kind->forms[split][shard.zero][outer];
        if (forms == nullptr) forms = memory_.Forms(s);
        ORRERY_CHECK(forms != nullptr, "no memory form for {}", DescribeLayout(s));
        if (!group.started) {
          group.started = true;
          group_terms_.Start(memory_.Slots(group.base, visit.split.micro_batches), s.micro_batch);
        }
        terms = &group_terms_.Of(*forms);
        of.outline = OutlineOf(request_.model, job_.work, s, *layers);
      }
    }
    if (visit.Beaten(value_bound)) {
      ++counts.bounded;
      visit.result.truncated = true;
      continue;
    }
    of.Shard(shard);
    const double allocated = terms->At(shard.zero > 0 ? static_cast<double>(s.shards()) : 1);
    const Bytes total = limits_.Total(Bytes(allocated), Communicators(s));
    if (visit.options.fits_in && total.value > *visit.options.fits_in) continue;
    const bool over = total > limits_.capacity;
    counts.over_memory += over;
    if (!visit.result.smallest || allocated < visit.result.smallest->allocated) {
      visit.result.smallest = Entry{{0, allocated, visit.index, sequence}, s, 0, 0, allocated};
    }
    const bool near = over && total.value <= kNearMiss * limits_.capacity.value;
    const auto improves = [&](const std::optional<Entry>& kept) {
      return !kept || value_bound < kept->rank.value;
    };
    if (over && visit.options.prune && !improves(visit.result.unlimited) &&
        !(near && improves(visit.result.near_miss))) {
      continue;
    }
    Consider(visit, {&s, allocated, total.value, sequence}, of, i, &listed);
  }
}

const Layouts* Evaluator::FindLayouts(const Strategy& s) {
  const auto found = predictor_.Table(KeyOf(request_.model, preset_.Complete(s, job_.work)));
  const auto* table = std::get_if<const LayerTable*>(&found);
  if (table == nullptr) return nullptr;  // the rule's split is refused for the same reason
  const auto [made, fresh] = layouts_.try_emplace({*table, s.pp, s.vpp});
  if (fresh) made->second = LayoutsOf(**table, request_.model.layers, s);
  return &made->second;
}

bool Evaluator::SplitLayers(const ScheduleChoice& choice, Group* group) {
  Strategy& s = group->base;
  s.layout = choice.split == LayerSplit::kGiven ? request_.fixed.layout : nullptr;
  if (choice.split == LayerSplit::kRule || choice.split == LayerSplit::kGiven) return true;
  // Which chunks the layers that are recomputed are in follows from the schedule.
  const auto schedule = s.recompute.partial() ? s.schedule : PipelineSchedule::k1F1B;
  const auto [found, fresh] = group->kind->layouts.try_emplace({s.vpp, schedule});
  if (fresh) found->second = FindLayouts(s);
  if (found->second == nullptr) return false;
  const Layouts& made = *found->second;
  s.layout = choice.split == LayerSplit::kBalanced ? made.balanced : made.lighter;
  return s.layout != nullptr;
}

SplitResult Evaluator::Run(const Split& split, int64_t split_index,
                           const EvaluateOptions& options) {
  Visit visit{split, split_index, options, space_.Shards(split.pp, split.data, split.cp), {}};
  for (const ShardChoice& shard : visit.shards) {
    visit.data.push_back(predictor_.Data(shard.dp * split.cp, shard.dp_outer, split.tp));
  }
  visit.stages = predictor_.Stages(split.pp, split.tp * split.cp * split.data);
  sweep_.Start(*visit.stages);
  const std::vector<ScheduleChoice> schedules = space_.Schedules(split.pp);
  const auto shards = static_cast<int64_t>(visit.shards.size());
  if (shards == 0) return visit.result;
  Group group;
  group.base.tp = split.tp;
  group.base.pp = split.pp;
  group.base.cp = split.cp;
  group.base.dp = split.data;
  group.base.micro_batch = split.micro_batch;
  group.base.flash_attention = request_.flash_attention;
  group.base.offload = request_.fixed.offload.value_or(Offload{});
  if (group.base.offload.weights) group.base.zero = 3;
  const int domain = job_.cluster.domain_gpus();
  for (const ContextLayout& context : space_.Contexts(split.tp, split.cp, domain)) {
    group.base.context = context;
    for (const bool sequence_parallel : space_.SequenceParallel(split.tp)) {
      group.base.sequence_parallel = sequence_parallel;
      for (const RecomputeChoice& modules : space_.Recomputes()) {
        visit.kinds.clear();
        for (const ScheduleChoice& choice : schedules) {
          const auto recompute = space_.Recomputation(modules, split.pp * choice.vpp);
          if (!recompute) continue;
          group.kind = &visit.KindOf(*recompute);
          group.base.recompute = *recompute;
          group.base.schedule = choice.schedule;
          group.base.vpp = choice.vpp;
          if (options.fits_in && visit.Beaten(GroupBound(split, visit.shards, group.base))) {
            visit.result.truncated = true;
            continue;
          }
          if (SplitLayers(choice, &group)) RunLegal(visit, group, shards);
        }
        // What is kept prunes what follows.
        if (options.prune && visit.result.best.size() < options.keep) Walk(visit, true);
      }
    }
  }
  Walk(visit, false);
  return visit.result;
}

void Evaluator::RunLegal(Visit& visit, Group& group, int64_t shards) {
  visit.result.counts.space += shards;
  if (const auto refusal = CheckStrategy(request_.model, job_.work, group.base))
    return visit.Refuse(*refusal, group.base, shards);
  RunGroup(visit, group);
}

std::variant<Entry, Refusal> Evaluator::One(const Strategy& strategy) {
  const auto time = predictor_.Predict(strategy);
  if (const auto* refusal = std::get_if<Refusal>(&time)) return *refusal;
  Entry entry;
  entry.strategy = strategy;
  entry.seconds = std::get<StepTime>(time).total;
  const int64_t micro_batches = MicroBatches(job_.work, strategy);
  const auto table = predictor_.Table(KeyOf(request_.model, strategy));
  const LayerTable& layer = *std::get<const LayerTable*>(table);
  entry.seconds_bound = TimeBound(layer, strategy, LayersOf(request_.model, strategy),
                                  static_cast<double>(micro_batches)) +
                        predictor_.closed_form().fixed;
  entry.allocated = memory_.AllocatedBound(strategy, micro_batches);
  entry.rank = {ObjectiveValue(request_.objective, entry.seconds, job_), entry.allocated, 0, 0};
  return entry;
}

}  // namespace orrery
