// SPDX-License-Identifier: Apache-2.0
// Strategies whose passes have to be walked: from the lowest bound on, as far as any of them can still be kept.
#include <algorithm>

#include "model/engine/closed/fold.h"
#include "model/twin/visit.h"

namespace orrery {
namespace {

void InsertBest(std::vector<Entry>& best, Entry entry) {
  const auto at = std::upper_bound(best.begin(), best.end(), entry,
                                   [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
  best.insert(at, std::move(entry));
}

}  // namespace

// No step that takes longer would be kept of what takes so many bytes.
double Evaluator::MostSeconds(const Visit& visit, double bytes) const {
  constexpr double kLong = 1e15;  // than any input takes: the objective is that of the step alone
  const double value = visit.LargestOfUse(bytes, limits_.capacity.value);
  if (request_.run)
    return request_.run->StepOf(job_, visit.split.data, value) * (1 + closed::kRounding);
  const double of_long = ObjectiveValue(request_, kLong, job_, visit.split.data);
  if (!(of_long > 0) || value > of_long) return closed::kForEver;
  return value / of_long * kLong * (1 + closed::kRounding);
}

// It takes longer than that.
void Evaluator::Drop(Visit& visit, Waiting* one) const {
  one->known = true;
  visit.result.truncated |= one->total <= limits_.capacity.value;
}

void Evaluator::DropBeaten(Visit& visit) {
  const double capacity = limits_.capacity.value;
  std::erase_if(visit.bounds, [&](const Bounded& one) {
    const double total = visit.waiting[one.of].total;
    if (one.least <= visit.LargestOfUse(total, capacity)) return false;
    visit.result.truncated |= total <= capacity;
    return true;
  });
  std::ranges::make_heap(visit.bounds, &Bounded::Later);
}

// The one with the lowest bound comes first: most of the others then cannot be kept any more. A bound by its layers alone gives
// way to one by its own prices, and that one to the walk. `until_full`: no more than fill the best few.
void Evaluator::Walk(Visit& visit, bool until_full) {
  SplitResult& result = visit.result;
  const double capacity = limits_.capacity.value;
  std::vector<Bounded> left;
  DropBeaten(visit);
  while (!visit.bounds.empty()) {
    const Bounded bound = visit.bounds.front();
    Waiting& one = visit.waiting[bound.of];
    if (one.known) {
      std::ranges::pop_heap(visit.bounds, &Bounded::Later);
      visit.bounds.pop_back();
      continue;
    }
    if (bound.least > visit.LargestOfUse(one.total, capacity)) {
      DropBeaten(visit);
      continue;
    }
    if (until_full && result.best.size() >= visit.options.keep) break;
    std::ranges::pop_heap(visit.bounds, &Bounded::Later);
    visit.bounds.pop_back();
    if (until_full && one.total > capacity) {
      left.push_back(bound);
    } else if (!one.refined() && !visit.mixed()) {
      Refine(visit, bound);
    } else {
      WalkLike(visit, bound.of);
    }
  }
  visit.bounds.insert(visit.bounds.end(), left.begin(), left.end());
}

Evaluator::Sharded& Evaluator::ShardedOf(Visit& visit, Waiting& one) const {
  if (!one.refined()) {
    const ShardChoice& shard = visit.shards[one.shard];
    Group& group = visit.waiting_groups[one.group];
    std::size_t& known = group.sharded[shard.zero][shard.dp_outer > 1];
    if (known == kNone) {
      known = visit.sharded.size();
      SetSharded(group, visit.shards[visit.first_of_kind[one.shard]], one.table,
                 &visit.sharded.emplace_back());
    }
    one.of = known;
  }
  Sharded& of = visit.sharded[one.of];
  of.Shard(visit.shards[one.shard]);
  return of;
}

void Evaluator::Refine(Visit& visit, Bounded bound) {
  Waiting& one = visit.waiting[bound.of];
  Sharded& of = ShardedOf(visit, one);
  sweep_.NextPipeline();
  double least = 0;
  if (const auto seconds = sweep_.ByFormula(*of.table, of.outline, *visit.data[one.shard], &least))
    return Keep(visit, {&of.strategy, one.allocated, one.total, one.sequence}, *seconds);
  bound.least = std::max(bound.least, ObjectiveValue(request_, least, job_, visit.split.data));
  visit.bounds.push_back(bound);
  std::ranges::push_heap(visit.bounds, &Bounded::Later);
}

// One walk for all of a group that differ in sharding alone, where passes hold no messages of the data axes.
void Evaluator::WalkLike(Visit& visit, std::size_t walked) {
  const auto keep = [&](Waiting& one, const Sharded& of, double seconds) {
    one.known = true;
    Keep(visit, {&of.strategy, one.allocated, one.total, one.sequence}, seconds);
  };
  const auto plain = [](const Sharded& of) {
    return StepSweep::PassesAlike(*of.table, of.outline);
  };
  Waiting& first = visit.waiting[walked];
  bool ended = true;  // the walk, before its step was too long to be kept
  {
    const Sharded& of = ShardedOf(visit, first);
    const DataMessages& data = *visit.data[first.shard];
    if (visit.mixed())
      return keep(first, of, SecondsOf(visit, *of.table, of.strategy, of.outline, data));
    const auto seconds =
        sweep_.Seconds(*of.table, of.outline, data, MostSeconds(visit, first.total));
    ended = seconds.has_value();
    if (ended)
      keep(first, of, *seconds);
    else
      Drop(visit, &first);
    if (first.group == kNone || !plain(of)) return;
  }
  const auto again = [&](Waiting& one) {
    if (one.group != first.group) return false;
    if (one.known || one.table != first.table || visit.shards[one.shard].zero > 1) return true;
    const Sharded& of = ShardedOf(visit, one);
    if (!plain(of)) return true;
    const double seconds = sweep_.SecondsAgain(of.outline, *visit.data[one.shard]);
    if (ended)
      keep(one, of, seconds);
    else if (seconds > MostSeconds(visit, one.total))
      Drop(visit, &one);
    return true;
  };
  for (std::size_t i = walked; i > 0 && again(visit.waiting[i - 1]); --i) continue;
  for (std::size_t i = walked + 1; i < visit.waiting.size() && again(visit.waiting[i]); ++i)
    continue;
}

void Evaluator::Keep(Visit& visit, const Place& place, double seconds) {
  SplitResult& result = visit.result;
  const Rank rank = RankOf(seconds, visit.split.data, place.allocated, visit.index, place.sequence);
  if (visit.options.after && !(rank > *visit.options.after)) return;
  const bool fits = place.total <= limits_.capacity.value;
  const bool full = result.best.size() == visit.options.keep;
  result.truncated |= fits && full;
  const auto better = [&](const std::optional<Entry>& kept) { return !kept || rank < kept->rank; };
  const bool unlimited = better(result.unlimited);
  const bool near =
      !fits && place.total <= kNearMiss * limits_.capacity.value && better(result.near_miss);
  const bool best = fits && (!full || rank < result.best.back().rank);
  if (!unlimited && !near && !best) return;
  Entry entry{rank, *place.strategy, seconds, 0, place.allocated};
  if (unlimited) result.unlimited = entry;
  if (near) result.near_miss = entry;
  if (!best) return;
  if (full) result.best.pop_back();
  InsertBest(result.best, std::move(entry));
}

}  // namespace orrery
