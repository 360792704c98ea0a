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

// The strategy of a group with the lowest bound, of those that wait for their turn and can still be kept.
std::optional<Evaluator::Bounded> Evaluator::NextOf(Visit& visit, std::size_t queue,
                                                    bool that_fits) const {
  const double capacity = limits_.capacity.value;
  const Queue& of = visit.queues[queue];
  Parked* next = nullptr;
  for (std::size_t i = 0; i < visit.shards.size(); ++i) {
    Parked& one = visit.parked[of.first + i];
    if (one.state != Parked::State::kWaits) continue;
    if (visit.Useless(one.least, one.total, capacity)) {
      one.state = Parked::State::kGone;
    } else if ((next == nullptr || one.least < next->least) &&
               !(that_fits && one.total > capacity)) {
      next = &one;
    }
  }
  if (next == nullptr) return std::nullopt;
  const auto shard = static_cast<int64_t>(next - &visit.parked[of.first]);
  return Bounded{next->least, of.sequence + shard, queue};
}

void Evaluator::StartWalk(Visit& visit, bool until_full) const {
  std::erase_if(visit.bounds, [](const Bounded& bound) { return !bound.refined; });
  for (std::size_t queue = 0; queue < visit.queues.size(); ++queue) {
    if (const auto next = NextOf(visit, queue, until_full)) visit.bounds.push_back(*next);
  }
  std::ranges::make_heap(visit.bounds, Bounded::Later());
}

// The strategy that a queue has in the heap, which gets the next one instead. None: it cannot be kept any more.
std::optional<Evaluator::Bounded> Evaluator::Unpark(Visit& visit, const Bounded& next,
                                                    bool until_full) const {
  const Queue& queue = visit.queues[next.of];
  const auto shard = static_cast<std::size_t>(next.sequence - queue.sequence);
  Parked& one = visit.parked[queue.first + shard];
  std::optional<Bounded> taken;
  if (one.state == Parked::State::kWaits &&
      !visit.Useless(one.least, one.total, limits_.capacity.value)) {
    one.state = Parked::State::kTaken;
    taken = Bounded{next.least, next.sequence, visit.waiting.size(), true};
    visit.waiting.push_back(
        {next.sequence, one.allocated, one.total, one.table, shard, next.of, kNone});
  }
  if (const auto other = NextOf(visit, next.of, until_full)) {
    visit.bounds.push_back(*other);
    std::ranges::push_heap(visit.bounds, Bounded::Later());
  }
  return taken;
}

// The one with the lowest bound comes first: most of the others then cannot be kept any more. A bound by its layers alone gives
// way to one by its own prices, and that one to the walk. `until_full`: no more than fill the best few.
void Evaluator::Walk(Visit& visit, bool until_full) {
  const double capacity = limits_.capacity.value;
  std::vector<Bounded> left;
  StartWalk(visit, until_full);
  while (!visit.bounds.empty()) {
    if (until_full && visit.result.best.size() >= visit.options.keep) break;
    std::ranges::pop_heap(visit.bounds, Bounded::Later());
    const Bounded bound = visit.bounds.back();
    visit.bounds.pop_back();
    if (!bound.refined) {
      const auto taken = Unpark(visit, bound, until_full);
      if (!taken) continue;
      if (visit.mixed())
        WalkLike(visit, taken->of);
      else
        Refine(visit, *taken);
      continue;
    }
    const Waiting& one = visit.waiting[bound.of];
    const bool known = one.queue != kNone && visit.StateOf(one) == Parked::State::kGone;
    if (known || visit.Useless(bound.least, one.total, capacity)) continue;
    if (until_full && one.total > capacity)
      left.push_back(bound);
    else
      WalkLike(visit, bound.of);
  }
  visit.bounds.insert(visit.bounds.end(), left.begin(), left.end());
}

Evaluator::Sharded& Evaluator::ShardedOf(Visit& visit, const Waiting& one) const {
  std::size_t of = one.of;
  if (one.queue != kNone) {
    const ShardChoice& shard = visit.shards[one.shard];
    Group& group = visit.queues[one.queue].group;
    std::size_t& known = group.sharded[shard.zero][shard.dp_outer > 1];
    if (known == kNone) {
      known = visit.sharded.size();
      SetSharded(group, visit.shards[visit.first_of_kind[one.shard]], one.table,
                 &visit.sharded.emplace_back());
    }
    of = known;
  }
  Sharded& sharded = visit.sharded[of];
  sharded.Shard(visit.shards[one.shard]);
  return sharded;
}

void Evaluator::Refine(Visit& visit, Bounded bound) {
  const Waiting& one = visit.waiting[bound.of];
  Sharded& of = ShardedOf(visit, one);
  sweep_.NextPipeline();
  double least = 0;
  if (const auto seconds =
          sweep_.ByFormula(*of.table, of.outline, *visit.data[one.shard], &least)) {
    visit.StateOf(one) = Parked::State::kGone;
    return Keep(visit, {&of.strategy, one.allocated, one.total, one.sequence}, *seconds);
  }
  bound.least = std::max(bound.least, visit.objective.Of(least));
  visit.bounds.push_back(bound);
  std::ranges::push_heap(visit.bounds, Bounded::Later());
}

// One walk for all of a group that differ in sharding alone, where passes hold no messages of the data axes.
void Evaluator::WalkLike(Visit& visit, std::size_t walked) {
  const auto keep = [&](const Waiting& one, const Sharded& of, double seconds) {
    Keep(visit, {&of.strategy, one.allocated, one.total, one.sequence}, seconds);
  };
  const auto drop = [&](const Waiting& one) {  // it takes longer than what is kept
    visit.result.truncated |= one.total <= limits_.capacity.value;
  };
  const auto plain = [](const Sharded& of) {
    return StepSweep::PassesAlike(*of.table, of.outline);
  };
  const Waiting first = visit.waiting[walked];
  if (first.queue != kNone) visit.StateOf(first) = Parked::State::kGone;
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
      drop(first);
    if (first.queue == kNone || !plain(of)) return;
  }
  const Queue& queue = visit.queues[first.queue];
  for (std::size_t shard = 0; shard < visit.shards.size(); ++shard) {
    Parked& parked = visit.parked[queue.first + shard];
    if (parked.state == Parked::State::kGone || parked.table != first.table ||
        visit.shards[shard].zero > 1)
      continue;
    const Waiting one{queue.sequence + static_cast<int64_t>(shard),
                      parked.allocated,
                      parked.total,
                      parked.table,
                      shard,
                      first.queue};
    const Sharded& of = ShardedOf(visit, one);
    if (!plain(of)) continue;
    const double seconds = sweep_.SecondsAgain(of.outline, *visit.data[shard]);
    if (!ended && seconds <= MostSeconds(visit, one.total)) continue;
    parked.state = Parked::State::kGone;
    if (ended)
      keep(one, of, seconds);
    else
      drop(one);
  }
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
