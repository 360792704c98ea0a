// SPDX-License-Identifier: Apache-2.0
// Evaluates one split of the search.
#include "model/twin/evaluator.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "model/arch/parameters.h"
#include "model/base/check.h"
#include "model/memory/software_memory.h"
#include "model/twin/time_bound.h"
#include "model/twin/visit.h"

namespace orrery {
double ObjectiveValue(Objective objective, double step_seconds, const Job& job) {
  const double per_sequence = 1.0 / static_cast<double>(job.work.global_batch);
  switch (objective) {
    case Objective::kTime:
      return step_seconds * per_sequence;
    case Objective::kCost:  // of batches that differ by the token, as steps do not compare
    case Objective::kTokensPerDollar:
      return step_seconds * per_sequence * job.price().value_or(0.0);
  }
  ORRERY_CHECK(false, "objective {}", static_cast<int>(objective));
}

double FedIn(const InputRates& input, const Job& job, int64_t replicas) {
  const double tokens =
      static_cast<double>(job.work.global_batch) * static_cast<double>(job.work.seq_len);
  double seconds = 0;
  // Ranks of one replica share their samples: one reader feeds them.
  if (input.reader > 0) seconds = tokens / (input.reader * static_cast<double>(replicas));
  if (input.storage > 0) seconds = std::max(seconds, tokens / input.storage);
  return seconds;
}

double ObjectiveValue(const SearchRequest& request, double step_seconds, const Job& job,
                      int64_t replicas) {
  const double step = std::max(step_seconds, FedIn(request.input, job, replicas));
  return request.run ? request.run->Of(job, replicas, step)
                     : ObjectiveValue(request.objective, step, job);
}

StepObjective::StepObjective(const SearchRequest& request, const Job& job, int64_t replicas)
    : run_(request.run.get()),
      job_(&job),
      replicas_(replicas),
      fed_(FedIn(request.input, job, replicas)),
      per_sequence_(1.0 / static_cast<double>(job.work.global_batch)),
      price_(job.price().value_or(0.0)),
      priced_(request.objective != Objective::kTime) {}

Rank Evaluator::RankOf(double seconds, int64_t replicas, double memory, int64_t split,
                       int64_t sequence) const {
  const bool may_tie = request_.input.limited() || request_.run != nullptr;
  return {ObjectiveValue(request_, seconds, job_, replicas),
          may_tie ? ObjectiveValue(Objective::kTime, seconds, job_) : 0, memory, split, sequence};
}

Evaluator::Evaluator(const SearchRequest& request, const FrameworkPreset& preset,
                     const MemoryLimits& limits, const Job& job, MemoryModel& memory,
                     ShapeCache* shapes, KnownKernels* kernels)
    : request_(request),
      preset_(preset),
      limits_(limits),
      job_(job),
      space_(request, preset),
      predictor_(job, shapes, kernels),
      sweep_(predictor_.closed_form()),
      memory_(memory),
      mixed_(!SlowdownOf(job).empty()),
      parameters_(static_cast<double>(CountParameters(request.model).total)) {}

template <class Of>
void Evaluator::ForKinds(const std::vector<ShardChoice>& shards, Strategy base, Of of) const {
  // How many layers a partial recomputation takes depends on their split, which is not chosen yet.
  base.layout = nullptr;
  if (base.recompute.partial()) base.recompute = Recompute::kNone;
  const ShardChoice* last = nullptr;
  for (const ShardChoice& shard : shards) {
    // Tables do not depend on the degree of sharding.
    const bool same =
        last != nullptr && last->zero == shard.zero && (last->dp_outer > 1) == (shard.dp_outer > 1);
    last = &shard;
    if (same) continue;
    base.zero = shard.zero, base.dp = shard.dp, base.dp_outer = shard.dp_outer;
    Strategy s = preset_.Complete(base, job_.work);
    FollowFramework(*job_.framework, &s);
    of(s);
  }
}

template <class Of>
double Evaluator::LeastOf(const std::vector<ShardChoice>& shards, const Strategy& base, Of of) {
  double least = std::numeric_limits<double>::infinity();
  ForKinds(shards, base, [&](const Strategy& s) {
    const auto found = predictor_.Table(KeyOf(request_.model, s));
    if (const auto* table = std::get_if<const LayerTable*>(&found))
      least = std::min(least, of(**table, s));
  });
  return least;
}

double Evaluator::BoundOf(const LayerTable& table, const Strategy& s, const Split& split,
                          const StageGpus* gpus) const {
  const auto micro_batches = static_cast<double>(split.micro_batches);
  const bool mixed = gpus != nullptr && !gpus->together.empty();
  if (!mixed) return LeastTime(table, s, micro_batches) + predictor_.closed_form().fixed;
  double least = 0;
  for (const std::vector<double>& slowdown : gpus->SlowdownsOf(StagesWait(s)))
    least = std::max(least, LeastTime(table, s, micro_batches, slowdown));
  return least + predictor_.closed_form().fixed;
}

double Evaluator::GroupBound(const Visit& visit, const Strategy& base) {
  const double seconds =
      LeastOf(visit.shards, base, [&](const LayerTable& table, const Strategy& s) {
        return BoundOf(table, s, visit.split, visit.gpus);
      });
  return ObjectiveValue(request_, seconds, job_, visit.split.data);
}

// Recomputation only adds work, and of interleaved schedules the one with the most chunks has the least bubble.
const std::vector<Evaluator::Sample>& Evaluator::SamplesOf(const Split& split) {
  const auto [known, fresh] = samples_.try_emplace({split.tp, split.pp, split.cp, split.data});
  std::vector<Sample>& samples = known->second;
  if (!fresh) return samples;
  std::map<PipelineSchedule, int> most_chunks;
  for (const ScheduleChoice& choice : space_.Schedules(split.pp)) {
    int& most = most_chunks[choice.schedule];
    most = std::max(most, choice.vpp);
  }
  const std::vector<ShardChoice> shards = space_.Shards(split.pp, split.data, split.cp);
  for (Strategy base : PlainStrategies(split)) {
    for (const auto& [schedule, chunks] : most_chunks) {
      base.schedule = schedule, base.vpp = chunks;
      ForKinds(shards, base, [&](const Strategy& s) {
        samples.push_back({s, KeyOf(request_.model, s)});
      });
    }
  }
  // Those of one table follow each other.
  std::ranges::stable_sort(samples, {}, &Sample::key);
  return samples;
}

double Evaluator::Bound(const Split& split) {
  const StageGpus* gpus = mixed_ ? &GpusOf(split) : nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Sample& sample : SamplesOf(split)) {
    const bool rounds = sample.strategy.schedule == PipelineSchedule::kInterleaved;
    if (rounds && split.micro_batches % split.pp != 0) continue;  // not legal
    MicroBatchKey key = sample.key;
    key.micro_batch = split.micro_batch;
    const auto found = predictor_.Table(key);
    if (const auto* table = std::get_if<const LayerTable*>(&found))
      least = std::min(least, BoundOf(**table, sample.strategy, split, gpus));
  }
  return ObjectiveValue(request_, least, job_, split.data);
}

// Where the model might not fit at all: it is not asked for where all of its states are a small part of the memory.
const std::vector<double>& Evaluator::LeastByShard(const Split& split) {
  constexpr double kMostOfStates = 24;  // bytes per parameter, more than any optimizer keeps
  constexpr double kSmall = 0.5;        // of the memory
  const auto [found, fresh] = least_memory_.try_emplace({split.tp, split.pp, split.cp, split.data});
  std::vector<double>& least = found->second;
  const double states = kMostOfStates * parameters_ / static_cast<double>(job_.cluster.ranks());
  if (!fresh || mixed_ || states < kSmall * limits_.capacity.value) return least;
  std::set<PipelineSchedule> schedules;
  for (const ScheduleChoice& choice : space_.Schedules(split.pp)) schedules.insert(choice.schedule);
  for (const ShardChoice& shard : space_.Shards(split.pp, split.data, split.cp)) {
    double held = std::numeric_limits<double>::infinity();
    for (Strategy base : PlainStrategies(split)) {
      for (const PipelineSchedule schedule : schedules) {
        base.schedule = schedule;
        held = std::min(held, memory_.HeldBound(StrategyOf(base, shard)));
      }
    }
    least.push_back(std::isfinite(held) ? limits_.Total(Bytes(held), 1).value : 0);
  }
  return least;
}

double Evaluator::LeastMemory(const Split& split) {
  const std::vector<double>& least = LeastByShard(split);
  return least.empty() ? 0 : *std::ranges::min_element(least);
}

double Evaluator::Work(const Split& split) {
  double least = std::numeric_limits<double>::infinity();
  const std::vector<ShardChoice> shards = space_.Shards(split.pp, split.data, split.cp);
  for (const Strategy& plain : PlainStrategies(split))
    least = std::min(least, LeastOf(shards, plain, [](const LayerTable& table, const Strategy&) {
                       return WorkOf(table);
                     }));
  if (!mixed_) return least;
  // By the fastest GPU of the topology: the answer stands for other node counts, too.
  return least * std::min(1.0, std::ranges::min(job_.topology->slowdown));
}

// What all strategies of a split have in common, of the knobs that decide the ops of a layer and what can run again.
Strategy Evaluator::BaseOf(const Split& split) const {
  Strategy base;
  base.tp = split.tp, base.pp = split.pp, base.cp = split.cp, base.dp = split.data;
  base.micro_batch = split.micro_batch;
  base.flash_attention = request_.flash_attention;
  base.offload = request_.fixed.offload.value_or(Offload{});
  if (base.offload.weights) base.zero = 3;
  return preset_.Complete(base,
                          job_.work);  // what is legal and where layers lie follows its defaults
}

// With the least recomputation on offer, with and without sequence parallelism.
std::vector<Strategy> Evaluator::PlainStrategies(const Split& split) const {
  std::vector<Strategy> all;
  Strategy base = BaseOf(split);
  std::vector<Recompute> recomputes;
  for (const RecomputeChoice& choice : space_.Recomputes()) {
    if (choice.quarters == 4) recomputes.push_back(choice.recompute);
  }
  if (std::ranges::find(recomputes, Recompute::kNone) != recomputes.end())
    recomputes = {Recompute::kNone};
  const int domain = job_.cluster.domain_gpus();
  for (const ContextLayout& context : space_.Contexts(split.tp, split.cp, domain)) {
    base.context = context;
    for (const bool sequence_parallel : space_.SequenceParallel(split.tp, split.pp)) {
      base.sequence_parallel = sequence_parallel;
      for (const Recompute recompute : recomputes) {
        base.recompute = recompute;
        all.push_back(base);
      }
    }
  }
  return all;
}

Evaluator::LayerKind& Evaluator::KindOf(Visit& visit, const Strategy& s) {
  for (LayerKind& kind : visit.kinds) {
    if (kind.recompute == s.recompute) return kind;
  }
  const auto known = std::ranges::find_if(kind_forms_, [&](const KindForms& forms) {
    return forms.recompute == s.recompute && forms.sequence_parallel == s.sequence_parallel &&
           forms.context == s.context;
  });
  KindForms& forms =
      known != kind_forms_.end()
          ? *known
          : kind_forms_.emplace_back(KindForms{s.context, s.sequence_parallel, s.recompute});
  return visit.kinds.emplace_back(LayerKind{s.recompute, &forms});
}

// Which layers a partial recomputation takes follows from their layout; all else of a table does not.
const Layouts* Evaluator::FindLayouts(const Strategy& s, const std::vector<double>& slowdown,
                                      LayerKind* kind) {
  KnownTable own;
  KnownTable& known = s.recompute.partial() ? own : kind->plain;
  if (known.table == nullptr && !known.refusal) {
    const auto found = predictor_.Table(KeyOf(request_.model, preset_.Complete(s, job_.work)));
    if (const auto* refusal = std::get_if<Refusal>(&found))
      known.refusal = *refusal;
    else
      known.table = std::get<const LayerTable*>(found);
  }
  if (known.table == nullptr) return nullptr;  // the rule's split is refused for the same reason
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  const auto [made, fresh] =
      layouts_.try_emplace({known.table, s.pp, in_a_v ? 0 : s.vpp, slowdown});
  if (fresh) {
    made->second = LayoutsOf(*known.table, request_.model.layers, s, slowdown, job_.work.lora.on());
    for (Layout* layout : {&made->second.balanced, &made->second.lighter})
      if (*layout != nullptr) *layout = *distinct_layouts_.insert(*layout).first;
  }
  return &made->second;
}

bool Evaluator::SplitLayers(const Visit& visit, const ScheduleChoice& choice, Group* group) {
  Strategy& s = group->base;
  s.layout = choice.split == LayerSplit::kGiven ? request_.fixed.layout : nullptr;
  if (choice.split == LayerSplit::kRule || choice.split == LayerSplit::kGiven) return true;
  // Which chunks the layers that are recomputed are in follows from the schedule.
  const bool apart = s.recompute.partial() || s.schedule == PipelineSchedule::kZeroBubbleV;
  const auto schedule = apart ? s.schedule : PipelineSchedule::k1F1B;
  const auto [found, fresh] = group->kind->layouts.try_emplace({s.vpp, schedule});
  if (fresh)
    found->second = FindLayouts(
        s, visit.gpus != nullptr ? visit.gpus->Slowest() : std::vector<double>(), group->kind);
  if (found->second == nullptr) return false;
  const Layouts& made = *found->second;
  s.layout = choice.split == LayerSplit::kBalanced ? made.balanced : made.lighter;
  return s.layout != nullptr;
}

// What waits in one split takes the memory of the one before, and leaves its own behind.
void Evaluator::TakeMemory(Visit* visit) {
  constexpr std::size_t kMostKept = 1U << 16;
  static thread_local std::vector<Parked> parked;
  parked.swap(visit->parked);
  if (parked.capacity() > kMostKept) parked = {};
  parked.clear();
}

SplitResult Evaluator::Run(const Split& split, int64_t split_index,
                           const EvaluateOptions& options) {
  Visit visit{split, split_index, options, space_.Shards(split.pp, split.data, split.cp)};
  if (mixed_) visit.gpus = &GpusOf(split);
  visit.limits = mixed_ ? LimitsOf(job_, *visit.gpus) : limits_;
  if (options.fits_in) visit.least_memory = &LeastByShard(split);
  for (const ShardChoice& shard : visit.shards) {
    visit.data.push_back(predictor_.Data(shard.dp * split.cp, shard.dp_outer, split.tp));
  }
  visit.stages = predictor_.Stages(split.pp, split.tp * split.cp * split.data, split.tp * split.cp);
  visit.objective = StepObjective(request_, job_, split.data);
  sweep_.Start(*visit.stages);
  const std::vector<ScheduleChoice> schedules = space_.Schedules(split.pp);
  const auto shards = static_cast<int64_t>(visit.shards.size());
  if (shards == 0) return visit.result;
  visit.pipelines.resize(schedules.size());
  TakeMemory(&visit);
  const std::array<int, 4> degrees = {split.tp, split.pp, split.cp, split.data};
  if (std::exchange(kind_forms_of_, degrees) != degrees) kind_forms_.clear();
  Group group;
  group.base = BaseOf(split);
  SortShards(visit, group.base);
  const int domain = job_.cluster.domain_gpus();
  for (const ContextLayout& context : space_.Contexts(split.tp, split.cp, domain)) {
    group.base.context = context;
    for (const bool sequence_parallel : space_.SequenceParallel(split.tp, split.pp)) {
      group.base.sequence_parallel = sequence_parallel;
      for (const RecomputeChoice& modules : space_.Recomputes()) {
        visit.kinds.clear();
        for (const ScheduleChoice& choice : schedules) {
          const auto recompute = space_.Recomputation(modules, split.pp * choice.vpp);
          if (!recompute) continue;
          group.base.recompute = *recompute;
          group.kind = &KindOf(visit, group.base);
          group.choice = static_cast<std::size_t>(&choice - schedules.data());
          group.base.schedule = choice.schedule;
          group.base.vpp = choice.vpp;
          if (options.fits_in) {
            const double least = GroupBound(visit, group.base);
            if (least >= options.any_shares_below || visit.Beaten(least)) {
              visit.result.truncated = true;
              continue;
            }
          }
          if (choice.split == LayerSplit::kFitted)
            RunFitted(visit, group);
          else if (SplitLayers(visit, choice, &group))
            RunLegal(visit, group, shards);
        }
        // What is kept prunes what follows.
        if (options.prune && visit.result.best.size() < options.keep) Walk(visit, true);
      }
    }
  }
  Walk(visit, false);
  TakeMemory(&visit);
  return std::move(visit.result);
}

// Null: it is legal.
const Refusal* Evaluator::CheckGroup(Visit& visit, const Group& group) const {
  const auto answer = [](const std::optional<Refusal>& refused) {
    return refused ? &*refused : nullptr;
  };
  const Strategy& s = group.base;
  visit.refused = CheckOfStep(request_.model, job_.work, s);
  if (visit.refused) return answer(visit.refused);
  LayerKind& kind = *group.kind;
  if (!std::exchange(kind.checked, true)) kind.refused = CheckOfLayer(request_.model, job_.work, s);
  if (kind.refused) return answer(kind.refused);
  KnownPipeline& known = visit.pipelines[group.choice].Of(s.layout);
  if (!std::exchange(known.checked, true) || s.offload.on() || job_.work.lora.on())
    known.refused = CheckOfPipeline(request_.model, job_.work, s);
  return answer(known.refused);
}

void Evaluator::RunLegal(Visit& visit, Group& group, int64_t shards) {
  visit.result.counts.space += shards;
  if (const Refusal* refusal = CheckGroup(visit, group))
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
  const StageGpus gpus = StageGpusOf(job_, strategy);
  const PipelineLayers layers = LayersOf(request_.model, strategy);
  const auto count = static_cast<double>(micro_batches);
  if (gpus.together.empty()) entry.seconds_bound = TimeBound(layer, strategy, layers, count);
  for (const auto& slowdown : StagesWait(strategy) ? gpus.together : gpus.apart)
    entry.seconds_bound =
        std::max(entry.seconds_bound, TimeBound(layer, strategy, layers, count, slowdown));
  entry.seconds_bound += predictor_.closed_form().fixed;
  entry.allocated = gpus.memory.empty()
                        ? memory_.AllocatedBound(strategy, micro_batches)
                        : Equivalent(memory_.AllocatedByStage(strategy, micro_batches), strategy,
                                     LimitsOf(job_, gpus));
  entry.rank = RankOf(entry.seconds, strategy.data_parallel(), entry.allocated, 0, 0);
  return entry;
}

}  // namespace orrery
