// SPDX-License-Identifier: Apache-2.0
// The strategies of one pipeline and recomputation: layer tables, memory bound, time bound, closed form.
#include <algorithm>

#include "model/base/check.h"
#include "model/engine/closed/work.h"
#include "model/memory/software_memory.h"
#include "model/twin/time_bound.h"
#include "model/twin/visit.h"

namespace orrery {

// A group under way; what is of the shards that differ in degree alone is that of the last ones looked at.
struct Evaluator::GroupRun {
  Group& group;
  std::size_t first = kNone;  // of those shards
  const LayerTable* table = nullptr;
  double value_bound = 0;               // of their objective
  const BoundTerms* memory = nullptr;   // null: not looked at yet
  Sharded of = {};                      // null table: not made yet
  std::size_t listed = kNone;           // `of`, among Visit::sharded
  std::size_t waits = kNone;            // the group, among Visit::queues
  bool surely_walks = false;            // whatever the prices
  StageBounds stages = {};              // then
  double passes = 0;                    // lower bound of their seconds
  double plain_passes = 0;              // likewise, without messages of the data axes in them
  std::vector<double>* once = nullptr;  // by shard: of what follows them; < 0: not known yet
  std::vector<KnownTable> own_tables = {};
};

Strategy Evaluator::StrategyOf(const Strategy& base, const ShardChoice& shard) const {
  Strategy s = base;
  s.zero = shard.zero;
  s.dp = shard.dp;
  s.dp_outer = shard.dp_outer;
  s = preset_.Complete(s, job_.work);
  FollowFramework(*job_.framework, &s);
  return s;
}

void Evaluator::SetSharded(const Group& group, const ShardChoice& shard, const LayerTable* table,
                           Sharded* of) const {
  of->strategy = StrategyOf(group.base, shard);
  of->outline = OutlineOf(request_.model, job_.work, of->strategy, *group.layers);
  of->table = table;
}

void Evaluator::SortShards(Visit& visit, const Strategy& base) const {
  for (std::size_t i = 0; i < visit.shards.size(); ++i) {
    const ShardChoice &shard = visit.shards[i], &before = visit.shards[i > 0 ? i - 1 : 0];
    Strategy s = StrategyOf(base, shard);
    visit.shards_of_states.push_back(shard.zero > 0 ? static_cast<double>(s.shards()) : 1.0);
    visit.shares_of_states.push_back(1.0 / visit.shards_of_states.back());
    visit.communicators.push_back(Communicators(s));
    visit.outlines.push_back(OutlineOf(request_.model, job_.work, s, {}));
    const bool same =
        i > 0 && shard.zero == before.zero && (shard.dp_outer > 1) == (before.dp_outer > 1);
    visit.first_of_kind.push_back(same ? visit.first_of_kind.back() : i);
    const MicroBatchKey key = KeyOf(request_.model, s);
    const auto known = std::ranges::find(visit.tables, key);
    visit.table_of.push_back(static_cast<std::size_t>(known - visit.tables.begin()));
    if (known == visit.tables.end()) visit.tables.push_back(key);
  }
  visit.next_kind.assign(visit.shards.size(), visit.shards.size());
  for (std::size_t i = visit.shards.size(); i-- > 1;)
    visit.next_kind[i - 1] = visit.first_of_kind[i] == i ? i : visit.next_kind[i];
}

// Which layers a partial recomputation takes follows from the layout of the pipeline; all else of a table does not.
const Evaluator::KnownTable& Evaluator::TableOf(const Visit& visit, GroupRun& run,
                                                std::size_t shard) {
  Group& group = run.group;
  auto& tables = group.base.recompute.partial() ? run.own_tables : group.kind->tables;
  if (tables.empty()) tables.resize(visit.tables.size());
  KnownTable& known = tables[visit.table_of[shard]];
  if (known.table == nullptr && !known.refusal) {
    const auto found =
        predictor_.Table(KeyOf(request_.model, StrategyOf(group.base, visit.shards[shard])));
    if (const auto* refusal = std::get_if<Refusal>(&found))
      known.refusal = *refusal;
    else
      known.table = std::get<const LayerTable*>(found);
  }
  return known;
}

namespace {

// Of LayerKind::forms, by schedule.
int FormsOf(const Strategy& s) {
  return s.schedule == PipelineSchedule::kZeroBubbleV ? 2 : SplitsBackward(s.schedule);
}

}  // namespace

void Evaluator::StartStages(const std::vector<StageSlots>& slots, double micro_batch) {
  stage_slots_.clear();
  for (const StageSlots& of_stage : slots) stage_slots_.push_back({of_stage});
  stage_terms_.resize(slots.size());
  for (std::size_t stage = 0; stage < slots.size(); ++stage)
    stage_terms_[stage].Start(stage_slots_[stage], micro_batch);
}

const BoundTerms& Evaluator::MemoryOf(Visit& visit, Group& group, const ShardChoice& shard) {
  const PlanForms*& forms =
      group.kind->forms->of[FormsOf(group.base)][shard.zero][shard.dp_outer > 1];
  if (forms == nullptr) {
    const Strategy s = StrategyOf(group.base, shard);
    forms = memory_.Forms(s);
    ORRERY_CHECK(forms != nullptr, "no memory form for {}", DescribeLayout(s));
  }
  if (!group.started) {
    group.started = true;
    KnownPipeline& known = visit.pipelines[group.choice].Of(group.base.layout);
    if (known.slots == nullptr) known.slots = &memory_.Slots(group.base, visit.split.micro_batches);
    group_terms_.Start(*known.slots, group.base.micro_batch);
    if (visit.mixed_memory()) StartStages(*known.slots, group.base.micro_batch);
  }
  return group_terms_.Of(*forms);
}

// A lower bound; on different GPUs of what fills the job's own as far.
double Evaluator::AllocatedBy(Visit& visit, GroupRun& run, std::size_t shard) {
  Group& group = run.group;
  if (run.memory == nullptr) run.memory = &MemoryOf(visit, group, visit.shards[run.first]);
  if (!visit.mixed_memory()) return run.memory->AtShare(visit.shares_of_states[shard]);
  const double shards = visit.shards_of_states[shard];
  const PlanForms& forms =
      *group.kind->forms
           ->of[FormsOf(group.base)][visit.shards[shard].zero][visit.shards[shard].dp_outer > 1];
  std::vector<double> by_stage;
  for (GroupTerms& terms : stage_terms_) by_stage.push_back(terms.Of(forms).At(shards));
  return Equivalent(by_stage, StrategyOf(group.base, visit.shards[shard]), visit.limits);
}

// The first of the shards that differ in degree alone. False: they are refused.
bool Evaluator::StartShards(Visit& visit, GroupRun& run, std::size_t first) {
  run.first = first;
  run.memory = nullptr;
  run.of.table = nullptr;
  run.listed = kNone;
  const KnownTable& known = TableOf(visit, run, first);
  if (known.refusal) return false;
  if (known.table != run.table) StartTable(visit, run, *known.table);
  return true;
}

// What the outline of a pipeline says of its layers.
const PipelineLayers& Evaluator::LayersOfPipeline(Visit& visit, const Group& group,
                                                  const ShardChoice& shard) {
  const Strategy& base = group.base;
  const bool partial = base.recompute.partial();
  KnownPipeline& pipeline = visit.pipelines[group.choice].Of(base.layout);
  if (!partial && pipeline.layers != nullptr) return *pipeline.layers;
  const Recompute some = partial ? base.recompute : Recompute::kNone;
  const bool in_a_v = base.schedule == PipelineSchedule::kZeroBubbleV;
  const auto [known, fresh] =
      pipelines_.try_emplace({base.pp, base.vpp, in_a_v, base.layout.get(), some});
  if (fresh) known->second = LayersOf(request_.model, StrategyOf(base, shard));
  if (!partial) pipeline.layers = &known->second;
  return known->second;
}

void Evaluator::StartTable(Visit& visit, GroupRun& run, const LayerTable& table) {
  Group& group = run.group;
  run.table = &table;
  const Strategy& s = group.base;
  const auto micro_batches = static_cast<double>(visit.split.micro_batches);
  if (group.layers == nullptr) {
    group.layers = &LayersOfPipeline(visit, group, visit.shards[run.first]);
    PlanOutline outline{*group.layers};
    outline.stages = s.pp;
    outline.chunks = s.vpp;
    outline.micro_batches = micro_batches;
    outline.order = RulesOf(s.schedule);
    if (visit.mixed()) outline.slowdown = &visit.gpus->together.front();
    run.surely_walks = StepSweep::SurelyWalks(outline);
  }
  if (visit.mixed()) {
    Strategy sharded = s;
    sharded.zero = visit.shards[run.first].zero;
    run.passes = 0;
    for (const std::vector<double>& slowdown : visit.SlowdownsOf(StagesWait(sharded)))
      run.passes =
          std::max(run.passes, TimeBound(table, s, *group.layers, micro_batches, slowdown));
  } else {
    run.passes = TimeBound(table, s, *group.layers, micro_batches);
  }
  run.value_bound =
      ObjectiveValue(request_, run.passes + predictor_.closed_form().fixed, job_, visit.split.data);
  if (run.surely_walks) {
    if (!visit.mixed()) {
      run.stages = BoundsOf(table, s, *group.layers, micro_batches);
      run.passes =
          std::max(run.passes, JourneyBound(table, s, *group.layers, micro_batches, *visit.stages));
    }
    FindMessages(visit, table);
    run.once = &OnceOf(visit, group);
    run.plain_passes = std::max(run.passes, run.stages.At(0, 0, 0));
  }
}

// Of the largest part of a layer: what is held in other forms travels apart.
void Evaluator::FindMessages(Visit& visit, const LayerTable& table) const {
  const auto same = [&](const LayerTable& of) {
    return of.layer_parameters == table.layer_parameters && of.frozen == table.frozen &&
           of.packed_parameters == table.packed_parameters &&
           of.coded_parameters == table.coded_parameters &&
           of.adapter_parameters == table.adapter_parameters;
  };
  if (visit.messages_of != nullptr && same(*visit.messages_of)) return;
  visit.messages_of = &table;
  visit.once.clear();
  visit.gathers.assign(visit.shards.size(), 0);
  visit.scatters.assign(visit.shards.size(), 0);
  for (std::size_t i = 0; i < visit.shards.size(); ++i) {
    const DataMessages& data = *visit.data[i];
    if (visit.shards[i].zero < 2 || data.dp <= 1) continue;
    const PlanOutline& outline = visit.outlines[i];
    if (outline.gathers_weights)
      visit.gathers[i] = data.layer_gather.Time(
          outline.weight_bytes *
          (table.layer_parameters - table.packed_parameters - table.coded_parameters));
    if (outline.scatters_gradients)
      visit.scatters[i] = data.layer_scatter.Time(
          outline.gradient_bytes * (table.TrainedOfLayer() - table.coded_parameters));
  }
}

// What a step takes beyond its passes, by shard, for pipelines that hold as many layers in the same places.
std::vector<double>& Evaluator::OnceOf(Visit& visit, const Group& group) const {
  const PipelineLayers& layers = *group.layers;
  const PipelineSchedule schedule = group.base.schedule;
  const bool fills = SplitsBackward(schedule);
  double fewest = 0;  // of a stage
  if (fills) {
    std::vector<int> held(static_cast<std::size_t>(group.base.pp), 0);
    const bool in_a_v = schedule == PipelineSchedule::kZeroBubbleV;
    for (std::size_t i = 0; i < layers.layout->size(); ++i)
      held[static_cast<std::size_t>(ChunkAt(in_a_v, group.base.pp, static_cast<int>(i)).stage)] +=
          (*layers.layout)[i];
    fewest = std::ranges::min(held);
  }
  const OnceKey key{fills ? double(schedule) : -1,
                    fewest,
                    double(std::min(1, layers.layout->front())),
                    layers.first_layers,
                    layers.middle_layers,
                    layers.last_layers};
  for (auto& [known, seconds] : visit.once) {
    if (known == key) return seconds;
  }
  constexpr double kUnknown = -1;
  return visit.once.emplace_back(key, std::vector<double>(visit.shards.size(), kUnknown)).second;
}

double Evaluator::OnceOf(const Visit& visit, const GroupRun& run, std::size_t shard) const {
  PlanOutline outline = visit.outlines[shard];
  const Strategy& s = run.group.base;
  static_cast<PipelineLayers&>(outline) = *run.group.layers;
  outline.chunks = s.vpp;
  outline.order = RulesOf(s.schedule);
  outline.ties_stages = false;
  return sweep_.LeastOnce(*run.table, outline, *visit.data[shard]);
}

// Of the objective, by the layers and what messages of the data axes add to them.
double Evaluator::LeastOf(const Visit& visit, GroupRun& run, std::size_t shard) const {
  double& once = (*run.once)[shard];
  if (once < 0) once = OnceOf(visit, run, shard);
  const double gather = visit.gathers[shard], scatter = visit.scatters[shard];
  double passes = run.plain_passes;
  if (gather != 0 || scatter != 0) {
    const LayerTime& layer = run.table->layer;
    const double forward = std::max(0.0, gather - layer.forward.busy());
    const double backward = std::max(0.0, gather + scatter - layer.backward.busy());
    const double ends = EndsOfChunk(layer, gather, scatter, visit.outlines[shard].gather_slots > 1,
                                    run.group.base.schedule == PipelineSchedule::kZeroBubbleV);
    passes = std::max(run.passes, run.stages.At(forward, backward, ends));
  }
  return visit.objective.Of(passes + once) * (1 - closed::kRounding);
}

void Evaluator::RunGroup(Visit& visit, Group group) {
  sweep_.NextPipeline();
  GroupRun run{group};
  const bool all = group.only == kNone;
  const std::size_t end = all ? visit.shards.size() : group.only + 1;
  for (std::size_t i = all ? 0 : group.only; i < end;) {
    const std::size_t next = std::min(end, visit.next_kind[i]);
    RunShards(visit, run, i, next);
    i = next;
  }
}

// Of shards that differ in degree alone.
void Evaluator::RunShards(Visit& visit, GroupRun& run, std::size_t first, std::size_t end) {
  SplitResult& result = visit.result;
  const Strategy& base = run.group.base;
  const double capacity = limits_.capacity.value;
  int64_t sequence = visit.sequence;  // the same in every run, whatever is pruned
  visit.sequence += static_cast<int64_t>(end - first);
  for (; first < end && visit.SurelyOver(first); ++first) ++sequence;
  if (first == end) return;
  const bool legal = StartShards(visit, run, first);
  for (std::size_t i = first; i < end; ++i, ++sequence) {
    if (visit.SurelyOver(i)) continue;
    if (!legal) {
      visit.Refuse(*TableOf(visit, run, i).refusal, StrategyOf(base, visit.shards[i]), 1);
      continue;
    }
    if (visit.Beaten(run.value_bound)) {
      ++result.counts.bounded;
      result.truncated = true;
      continue;
    }
    const double allocated = AllocatedBy(visit, run, i);
    const double total = limits_.Total(Bytes(allocated), visit.communicators[i]).value;
    if (visit.options.fits_in && total > *visit.options.fits_in) continue;
    const bool over = total > capacity;
    result.counts.over_memory += over;
    if (!result.smallest || allocated < result.smallest->allocated) {
      Strategy s = StrategyOf(base, visit.shards[run.first]);
      s.dp = visit.shards[i].dp, s.dp_outer = visit.shards[i].dp_outer;
      result.smallest =
          Entry{{0, 0, allocated, visit.index, sequence}, std::move(s), 0, 0, allocated};
    }
    const bool near = over && total <= kNearMiss * capacity;
    const auto improves = [&](const std::optional<Entry>& kept) {
      return !kept || run.value_bound < kept->rank.value;
    };
    if (over && visit.options.prune && !improves(result.unlimited) &&
        !(near && improves(result.near_miss))) {
      continue;
    }
    ++result.counts.evaluated;
    if (run.surely_walks)
      Park(visit, run, i, {LeastOf(visit, run, i), allocated, total, run.table}, sequence);
    else
      Consider(visit, run, i, allocated, total, sequence);
  }
  if (!legal) run.first = kNone;
}

// Among those that wait for a walk.
void Evaluator::Park(Visit& visit, GroupRun& run, std::size_t shard, const Parked& one,
                     int64_t sequence) {
  if (visit.Useless(one.least, one.total, limits_.capacity.value)) return;
  if (run.waits == kNone) {
    run.waits = visit.queues.size();
    visit.queues.push_back(
        {run.group, sequence - static_cast<int64_t>(shard), visit.parked.size()});
    visit.parked.resize(visit.parked.size() + visit.shards.size());
  }
  Parked& parked = visit.parked[visit.queues[run.waits].first + shard];
  parked = one;
  parked.state = Parked::State::kWaits;
}

// By formula, as far as that can still be kept.
void Evaluator::Consider(Visit& visit, GroupRun& run, std::size_t shard, double allocated,
                         double total, int64_t sequence) {
  const double capacity = limits_.capacity.value;
  if (visit.Useless(run.value_bound * (1 - closed::kRounding), total, capacity)) return;
  if (run.of.table == nullptr) SetSharded(run.group, visit.shards[run.first], run.table, &run.of);
  run.of.Shard(visit.shards[shard]);
  const Place place{&run.of.strategy, allocated, total, sequence};
  if (visit.mixed())
    return Keep(visit, place,
                SecondsOf(visit, *run.table, run.of.strategy, run.of.outline, *visit.data[shard]));
  double least = 0;
  if (const auto seconds = sweep_.ByFormula(*run.table, run.of.outline, *visit.data[shard], &least))
    return Keep(visit, place, *seconds);
  least = visit.objective.Of(least);
  if (visit.Useless(least, total, capacity)) return;
  if (run.listed == kNone) {
    run.listed = visit.sharded.size();
    visit.sharded.push_back(run.of);
  }
  visit.bounds.push_back({least, sequence, visit.waiting.size(), true});
  visit.waiting.push_back({sequence, allocated, total, run.table, shard, kNone, run.listed});
}

}  // namespace orrery
