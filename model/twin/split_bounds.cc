// SPDX-License-Identifier: Apache-2.0
// Lower bounds of whole splits and of groups of their strategies.
#include <algorithm>
#include <limits>
#include <map>

#include "model/twin/evaluator.h"
#include "model/twin/time_bound.h"

namespace orrery {

template <class Of>
double Evaluator::LeastOf(const std::vector<ShardChoice>& shards, Strategy base, Of of) {
  // How many layers a partial recomputation takes depends on their split, which is not chosen yet.
  base.layout = nullptr;
  if (base.recompute.partial()) base.recompute = Recompute::kNone;
  double least = std::numeric_limits<double>::infinity();
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
    const auto found = predictor_.Table(KeyOf(request_.model, s));
    if (const auto* table = std::get_if<const LayerTable*>(&found))
      least = std::min(least, of(**table, s));
  }
  return least;
}

double Evaluator::GroupBound(const Split& split, const std::vector<ShardChoice>& shards,
                             const Strategy& base) {
  const auto micro_batches = static_cast<double>(split.micro_batches);
  const double seconds = LeastOf(shards, base, [&](const LayerTable& table, const Strategy& s) {
    return LeastTime(table, s, micro_batches) + predictor_.closed_form().fixed;
  });
  return ObjectiveValue(request_.objective, seconds, job_);
}

// Recomputation only adds work, and of interleaved schedules the one with the most chunks has the least bubble.
double Evaluator::Bound(const Split& split) {
  const std::vector<ShardChoice> shards = space_.Shards(split.pp, split.data, split.cp);
  std::map<PipelineSchedule, int> most_chunks;
  for (const ScheduleChoice& choice : space_.Schedules(split.pp)) {
    int& most = most_chunks[choice.schedule];
    most = std::max(most, choice.vpp);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Strategy& plain : PlainStrategies(split)) {
    Strategy base = plain;
    for (const auto& [schedule, chunks] : most_chunks) {
      base.schedule = schedule, base.vpp = chunks;
      least = std::min(least, GroupBound(split, shards, base));
    }
  }
  return least;
}

double Evaluator::Work(const Split& split) {
  double least = std::numeric_limits<double>::infinity();
  const std::vector<ShardChoice> shards = space_.Shards(split.pp, split.data, split.cp);
  for (const Strategy& plain : PlainStrategies(split))
    least = std::min(least, LeastOf(shards, plain, [](const LayerTable& table, const Strategy&) {
                       return WorkOf(table);
                     }));
  return least;
}

// With the least recomputation on offer, with and without sequence parallelism.
std::vector<Strategy> Evaluator::PlainStrategies(const Split& split) const {
  std::vector<Strategy> all;
  Strategy base;
  base.tp = split.tp, base.pp = split.pp, base.cp = split.cp, base.dp = split.data;
  base.micro_batch = split.micro_batch;
  base.flash_attention = request_.flash_attention;
  base.offload = request_.fixed.offload.value_or(Offload{});
  if (base.offload.weights) base.zero = 3;
  std::vector<Recompute> recomputes;
  for (const RecomputeChoice& choice : space_.Recomputes()) {
    if (choice.quarters == 4) recomputes.push_back(choice.recompute);
  }
  if (std::ranges::find(recomputes, Recompute::kNone) != recomputes.end())
    recomputes = {Recompute::kNone};
  const int domain = job_.cluster.domain_gpus();
  for (const ContextLayout& context : space_.Contexts(split.tp, split.cp, domain)) {
    base.context = context;
    for (const bool sequence_parallel : space_.SequenceParallel(split.tp)) {
      base.sequence_parallel = sequence_parallel;
      for (const Recompute recompute : recomputes) {
        base.recompute = recompute;
        all.push_back(base);
      }
    }
  }
  return all;
}

}  // namespace orrery
