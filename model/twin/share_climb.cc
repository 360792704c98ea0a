// SPDX-License-Identifier: Apache-2.0
// Each stage gives a layer away and all are dealt again; then single layers move.
#include "model/twin/share_climb.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "model/plan/lower/schedules.h"
#include "model/twin/layouts.h"

namespace orrery {
namespace {

constexpr double kAny = std::numeric_limits<double>::max();
constexpr double kLess = 1 - kSameShares;

}  // namespace

namespace {

// A layer for each chunk of a stage, but for those of the embedding and the head.
std::vector<int64_t> LeastOfStages(const Strategy& s) {
  std::vector<int64_t> least(static_cast<std::size_t>(s.pp), s.vpp);
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  for (const int chunk : {0, s.pp * s.vpp - 1})
    --least[static_cast<std::size_t>(ChunkAt(in_a_v, s.pp, chunk).stage)];
  return least;
}

}  // namespace

std::vector<std::shared_ptr<const std::vector<int>>> RunsOfFullerChunks(int64_t layers,
                                                                        const Strategy& s) {
  std::vector<std::shared_ptr<const std::vector<int>>> runs;
  const int64_t chunks = int64_t{1} * s.pp * s.vpp;
  if (s.schedule != PipelineSchedule::kInterleaved || s.vpp == 1 || layers % chunks == 0)
    return runs;
  const std::vector<int> without_first =
      s.count_embedding ? std::vector<int>{1} : std::vector<int>{0, 1};
  const std::vector<int> without_last = s.count_head ? std::vector<int>{1} : std::vector<int>{0, 1};
  for (const int first : without_first) {
    for (const int last : without_last) {
      const int64_t all = layers + first + last, each = all / chunks, fuller = all % chunks;
      if (each == 0) continue;
      for (int64_t from = 0; from + fuller <= (fuller == 0 ? 0 : chunks); ++from) {
        std::vector<int> held(static_cast<std::size_t>(chunks), static_cast<int>(each));
        for (int64_t i = from; i < from + fuller; ++i) ++held[static_cast<std::size_t>(i)];
        held.front() -= first;
        held.back() -= last;
        runs.push_back(std::make_shared<const std::vector<int>>(std::move(held)));
      }
    }
  }
  return runs;
}

int64_t CountShares(int64_t layers, std::size_t chunks, int64_t least, int64_t most) {
  // As many as ways to choose chunks - 1 of the layers that are left + chunks - 1.
  const auto walls = static_cast<int64_t>(chunks) - 1;
  const int64_t left = layers - least * (walls - 1);
  int64_t count = left >= 0 ? 1 : 0;
  for (int64_t i = 0; i < walls && count > 0 && count < most; ++i)
    count = count * (left + 1 + i) / (i + 1);
  return std::min(count, most);
}

std::optional<double> ShareClimb::Price(const std::vector<int64_t>& held, double most) {
  if (priced >= most_priced) return std::nullopt;
  ++priced;
  return price(held, most);
}

// Where several stages hold the others up, no move of a single layer helps. Each stage gives `each` layers away, and one after
// the other goes to where the step grows least, of several to the stage with the fewest.
bool ShareClimb::DealAgain(int64_t each, std::vector<int64_t>* held, double* seconds) {
  std::vector<int64_t> next = *held;
  int64_t left = 0;
  for (std::size_t stage = 0; stage < next.size(); ++stage) {
    const int64_t given = std::clamp<int64_t>(next[stage] - least[stage], 0, each);
    next[stage] -= given, left += given;
  }
  if (left == 0) return false;
  double now = 0;
  for (; left > 0; --left) {
    double shortest = kAny;
    std::size_t where = next.size();
    for (std::size_t stage = 0; stage < next.size(); ++stage) {
      ++next[stage];
      const auto then = Price(next, shortest == kAny ? kAny : shortest * (1 + kSameShares));
      --next[stage];
      if (!then) continue;
      const bool shorter = *then < shortest * kLess;
      if (!shorter && where < next.size() && next[stage] >= next[where]) continue;
      shortest = *then, where = stage;
    }
    if (where == next.size()) return false;
    ++next[where];
    now = shortest;
  }
  if (now >= *seconds * kLess || priced >= most_priced || !fits(next)) return false;
  *held = std::move(next);
  *seconds = now;
  return true;
}

// A step with a layer less on one stage bounds what any move from there makes of it, and with a layer more on another what any
// move there does: the moves with the least bounds come first, those whose bound is no gain are not priced.
bool ShareClimb::MoveOne(std::vector<int64_t>* held, double* seconds) {
  struct End {
    double seconds;
    std::size_t stage;
    auto operator<=>(const End&) const = default;
  };
  std::vector<int64_t>& now = *held;
  std::vector<End> from, to;
  for (std::size_t stage = 0; stage < now.size(); ++stage) {
    if (now[stage] <= least[stage]) continue;
    --now[stage];
    if (const auto less = Price(now, *seconds * kLess)) from.push_back({*less, stage});
    ++now[stage];
  }
  if (from.empty()) return false;
  for (std::size_t stage = 0; stage < now.size(); ++stage) {
    ++now[stage];
    if (const auto more = Price(now, kAny)) to.push_back({*more, stage});
    --now[stage];
  }
  std::ranges::sort(from);
  std::ranges::sort(to);
  for (const End& one : from) {
    std::optional<std::size_t> best;
    for (const End& other : to) {
      if (one.stage == other.stage) continue;
      --now[one.stage], ++now[other.stage];
      const auto then = Price(now, *seconds * kLess);
      if (then && fits(now)) *seconds = *then, best = other.stage;
      ++now[one.stage], --now[other.stage];
    }
    if (!best) continue;
    --now[one.stage], ++now[*best];
    return true;
  }
  return false;
}

double ShareClimb::Run(std::vector<int64_t>* held, double seconds) {
  const auto stages = static_cast<int64_t>(held->size());
  // A round prices about each x stages x stages steps.
  const auto deal = [&](int64_t each) {
    return unequal && each * stages * stages <= most_priced / 2 && DealAgain(each, held, &seconds);
  };
  for (bool any = true; any;) {
    while (deal(1)) continue;
    any = false;
    while (MoveOne(held, &seconds)) any = true;
    if (!any) any = deal(2);
  }
  return seconds;
}

template <class Spread>
double LayoutClimb::Climb(const Spread& spread, std::vector<int64_t> least,
                          std::vector<int64_t>* held, double seconds) {
  ShareClimb climb;
  climb.price = [&](const std::vector<int64_t>& now, double most) {
    return price(spread(now), most);
  };
  climb.fits = [&](const std::vector<int64_t>& now) { return fits(spread(now)); };
  climb.least = std::move(least);
  climb.unequal = unequal;
  climb.most_priced = std::min(climb.most_priced, most_priced - priced);
  const double found = climb.Run(held, seconds);
  priced += climb.priced;
  return found;
}

namespace {

std::shared_ptr<const std::vector<int>> AsLayout(const std::vector<int64_t>& held) {
  return std::make_shared<const std::vector<int>>(held.begin(), held.end());
}

}  // namespace

double LayoutClimb::TryAll(int64_t least, std::vector<int64_t>* chunks, double seconds) {
  std::vector<int64_t> one(chunks->size(), 0);
  const std::size_t last = one.size() - 1;
  const auto next = [&](const auto& self, std::size_t chunk, int64_t left) -> void {
    if (chunk < last) {
      const int64_t behind = least * (static_cast<int64_t>(last - chunk) - 1);
      for (one[chunk] = chunk == 0 ? 0 : least; one[chunk] <= left - behind; ++one[chunk])
        self(self, chunk + 1, left - one[chunk]);
      return;
    }
    one[last] = left;
    ++priced;
    const auto then = price(AsLayout(one), seconds * kLess);
    if (then && fits(AsLayout(one))) seconds = *then, *chunks = one;
  };
  next(next, 0, std::accumulate(chunks->begin(), chunks->end(), int64_t{0}));
  return seconds;
}

double LayoutClimb::TryRuns(const Strategy& s, Shared* layout, double seconds) {
  const int64_t layers = std::accumulate((*layout)->begin(), (*layout)->end(), int64_t{0});
  for (const Shared& run : RunsOfFullerChunks(layers, s)) {
    if (priced >= most_priced) break;
    ++priced;
    const auto then = price(run, seconds * kLess);
    if (then && fits(run)) seconds = *then, *layout = run;
  }
  return seconds;
}

double LayoutClimb::Run(const Strategy& s, Shared* layout, double seconds) {
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  std::vector<int64_t> of_stages(static_cast<std::size_t>(s.pp), 0);
  for (std::size_t i = 0; i < (*layout)->size(); ++i)
    of_stages[static_cast<std::size_t>(ChunkAt(in_a_v, s.pp, static_cast<int>(i)).stage)] +=
        (**layout)[i];
  const auto spread = [&](const std::vector<int64_t>& held) { return SpreadShares(held, s); };
  double by_stage = Climb(spread, LeastOfStages(s), &of_stages, seconds);
  // Chunks without a layer: seldom of use, so from the best shares without them, and where moves of a layer from any chunk to
  // any other are soon priced.
  const bool empties = empty && int64_t{1} * s.pp * s.vpp * s.pp * s.vpp <= kMostOfAll;
  const std::vector<int64_t> none(static_cast<std::size_t>(s.vpp == 1 ? s.pp : s.pp * s.vpp), 0);
  if (s.vpp == 1 && empties) by_stage = Climb(spread, none, &of_stages, by_stage);
  if (by_stage < seconds) *layout = spread(of_stages);
  if (s.vpp == 1) return by_stage;
  by_stage = TryRuns(s, layout, by_stage);
  std::vector<int64_t> chunks((*layout)->begin(), (*layout)->end());
  std::vector<int64_t> least(chunks.size(), 1);
  least.front() = least.back() = 0;  // the embedding and the head are enough for a chunk
  const int64_t layers = std::accumulate(chunks.begin(), chunks.end(), int64_t{0});
  const auto few = [&](int64_t of_each) {
    return CountShares(layers, chunks.size(), of_each, kMostOfAll + 1) <=
           std::min(kMostOfAll, (most_priced - priced) / 2);
  };
  double by_chunk = Climb(AsLayout, std::move(least), &chunks, by_stage);
  if (few(1) && !(empty && few(0))) by_chunk = TryAll(1, &chunks, by_chunk);
  if (empties) by_chunk = Climb(AsLayout, none, &chunks, by_chunk);
  if (empty && few(0)) by_chunk = TryAll(0, &chunks, by_chunk);
  if (by_chunk < by_stage) *layout = AsLayout(chunks);
  return by_chunk;
}

}  // namespace orrery
