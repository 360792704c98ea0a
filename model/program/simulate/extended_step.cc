// SPDX-License-Identifier: Apache-2.0
// Goes on from the difference of two steps, term by term; the critical path goes through its cycle again.
#include "model/program/simulate/extended_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "model/twin/steady.h"

namespace orrery::report {
namespace {

constexpr double kSameDate = 1e-9;             // of the step
constexpr int64_t kMostStretches = 1'000'000;  // that a path grows to

double Further(double fewer, double more, int64_t cycles) {
  return more + static_cast<double>(cycles) * (more - fewer);
}

// "F0[12]": the block, and the micro-batch; -1: it has none.
struct Place {
  std::string block;
  int64_t micro_batch = -1;
};

Place PlaceOf(const std::string& words) {
  const std::size_t bracket = words.rfind('[');
  if (bracket == std::string::npos) return {words, -1};
  Place place{words.substr(0, bracket), -1};
  std::from_chars(words.data() + bracket + 1, words.data() + words.size() - 1, place.micro_batch);
  return place;
}

std::string WordsOf(const Place& place) {
  return place.micro_batch < 0 ? place.block
                               : fmt::format("{}[{}]", place.block, place.micro_batch);
}

// Where the words are `cycles` further on; nullopt: other blocks.
std::optional<std::string> Further(const std::string& fewer, const std::string& more,
                                   int64_t cycles) {
  const Place before = PlaceOf(fewer);
  Place place = PlaceOf(more);
  if (before.block != place.block || (before.micro_batch < 0) != (place.micro_batch < 0))
    return std::nullopt;
  if (place.micro_batch >= 0)
    place.micro_batch += cycles * (place.micro_batch - before.micro_batch);
  return WordsOf(place);
}

class PathGrowth {
 public:
  using Stretches = std::vector<sim::PathStretch>;

  PathGrowth(const Stretches& fewer, const Stretches& more, double cycle, double step)
      : fewer_(fewer), more_(more), cycle_(cycle), tolerance_(kSameDate * step) {}

  std::optional<Stretches> Grow(int64_t cycles) const {
    if (more_.size() < fewer_.size()) return std::nullopt;
    const std::size_t inserted = more_.size() - fewer_.size();
    if (static_cast<int64_t>(inserted) * cycles > kMostStretches) return std::nullopt;
    // A stretch that lies in the cycle as a whole makes one longer; several are gone through again.
    return inserted == 0 ? Lengthen(cycles) : Repeat(inserted, cycles);
  }

 private:
  static bool SamePlace(const sim::PathStretch& a, const sim::PathStretch& b) {
    return a.rank == b.rank && a.stage == b.stage;
  }
  // Moved by nothing or by a cycle.
  bool Moves(double fewer, double more) const {
    return std::abs(more - fewer) <= tolerance_ || std::abs(more - fewer - cycle_) <= tolerance_;
  }

  std::optional<Stretches> Lengthen(int64_t cycles) const {
    Stretches grown;
    for (std::size_t i = 0; i < fewer_.size(); ++i) {
      const sim::PathStretch &before = fewer_[i], &after = more_[i];
      const auto first = Further(before.first, after.first, cycles);
      const auto last = Further(before.last, after.last, cycles);
      if (!SamePlace(before, after) || !first || !last || !Moves(before.begin, after.begin) ||
          !Moves(before.end, after.end))
        return std::nullopt;
      grown.push_back({after.rank, after.stage, Further(before.begin, after.begin, cycles),
                       Further(before.end, after.end, cycles), *first, *last});
    }
    return grown;
  }

  bool Stays(std::size_t i) const {
    return SamePlace(fewer_[i], more_[i]) && fewer_[i].first == more_[i].first &&
           fewer_[i].last == more_[i].last && std::abs(fewer_[i].end - more_[i].end) <= tolerance_;
  }
  bool Follows(std::size_t i, std::size_t inserted) const {
    const sim::PathStretch &before = fewer_[i], &after = more_[i + inserted];
    return SamePlace(before, after) && std::abs(after.end - before.end - cycle_) <= tolerance_;
  }

  // The first `head` stretches stay, those behind move on, those between come again with each cycle.
  std::optional<Stretches> Repeat(std::size_t inserted, int64_t cycles) const {
    std::size_t head = 0;
    while (head < fewer_.size() && Stays(head)) ++head;
    for (std::size_t i = head; i < fewer_.size(); ++i) {
      if (!Follows(i, inserted)) return std::nullopt;
    }
    // What is gone through again has to be what the path has gone through before.
    if (head < inserted) return std::nullopt;
    int64_t shift = 0;  // micro-batches of a cycle
    for (std::size_t i = head; i < head + inserted; ++i) {
      const sim::PathStretch &before = more_[i - inserted], &after = more_[i];
      const Place was = PlaceOf(before.last), is = PlaceOf(after.last);
      if (!SamePlace(before, after) || was.block != is.block || was.micro_batch < 0 ||
          (i > head && is.micro_batch - was.micro_batch != shift) ||
          std::abs(after.end - before.end - cycle_) > tolerance_)
        return std::nullopt;
      shift = is.micro_batch - was.micro_batch;
    }
    Stretches grown(more_.begin(), more_.begin() + static_cast<std::ptrdiff_t>(head + inserted));
    for (int64_t c = 1; c <= cycles; ++c) {
      for (std::size_t i = head; i < head + inserted; ++i)
        grown.push_back(Moved(more_[i], c, shift));
    }
    for (std::size_t i = head + inserted; i < more_.size(); ++i)
      grown.push_back(Moved(more_[i], cycles, shift));
    for (std::size_t i = 1; i < grown.size(); ++i) grown[i].begin = grown[i - 1].end;
    return grown;
  }

  sim::PathStretch Moved(sim::PathStretch stretch, int64_t cycles, int64_t shift) const {
    const auto move = [&](std::string* words) {
      Place place = PlaceOf(*words);
      if (place.micro_batch >= 0) place.micro_batch += cycles * shift;
      *words = WordsOf(place);
    };
    const double later = static_cast<double>(cycles) * cycle_;
    stretch.begin += later;
    stretch.end += later;
    move(&stretch.first);
    move(&stretch.last);
    return stretch;
  }

  const Stretches &fewer_, &more_;
  const double cycle_, tolerance_;
};

std::vector<sim::PathClass> Extend(const std::vector<sim::PathClass>& fewer,
                                   std::vector<sim::PathClass> more, int64_t cycles) {
  std::map<std::string, double> before;
  for (const sim::PathClass& of : fewer) before[of.name] = of.seconds;
  for (sim::PathClass& of : more) of.seconds = Further(before[of.name], of.seconds, cycles);
  std::ranges::stable_sort(more, std::greater<>(), &sim::PathClass::seconds);
  return more;
}

bool Extend(const std::vector<MemoryUse>& fewer, double cycle, double step, int64_t cycles,
            std::vector<MemoryUse>* more) {
  if (fewer.size() != more->size()) return false;
  for (std::size_t i = 0; i < fewer.size(); ++i) {
    MemoryUse& use = (*more)[i];
    const double later = use.peak_time - fewer[i].peak_time;
    const bool moves =
        std::abs(later) <= kSameDate * step || std::abs(later - cycle) <= kSameDate * step;
    if (use.rank != fewer[i].rank || use.need.need.live.value != fewer[i].need.need.live.value ||
        !moves)
      return false;
    use.peak_time = Further(fewer[i].peak_time, use.peak_time, cycles);
  }
  return true;
}

}  // namespace

sim::StepResult Extend(const sim::StepResult& fewer, sim::StepResult more, int64_t cycles) {
  more.seconds = Further(fewer.seconds, more.seconds, cycles);
  for (std::size_t r = 0; r < more.times.size(); ++r) {
    for (double sim::RankTime::*part :
         {&sim::RankTime::compute, &sim::RankTime::overlapped, &sim::RankTime::exposed,
          &sim::RankTime::idle, &sim::RankTime::end})
      more.times[r].*part = Further(fewer.times[r].*part, more.times[r].*part, cycles);
  }
  more.ops += cycles * (more.ops - fewer.ops);
  more.tasks += cycles * (more.tasks - fewer.tasks);
  return more;
}

std::vector<sim::LinkTraffic> Extend(const std::vector<sim::LinkTraffic>& fewer,
                                     std::vector<sim::LinkTraffic> more, int64_t cycles) {
  for (std::size_t l = 0; l < more.size(); ++l) {
    for (double sim::LinkTraffic::*part :
         {&sim::LinkTraffic::bytes, &sim::LinkTraffic::occupied, &sim::LinkTraffic::alone})
      more[l].*part = Further(fewer[l].*part, more[l].*part, cycles);
  }
  return more;
}

std::optional<StepAnalysis> Extend(const StepAnalysis& fewer, StepAnalysis more, double cycle,
                                   int64_t cycles) {
  const double step = more.time.total;
  if (fewer.rank != more.rank || fewer.of_ranks.size() != more.of_ranks.size() ||
      !Extend(fewer.memory, cycle, step, cycles, &more.memory))
    return std::nullopt;
  auto stretches = PathGrowth(fewer.path.stretches, more.path.stretches, cycle, step).Grow(cycles);
  if (!stretches) return std::nullopt;
  more.path.stretches = std::move(*stretches);
  more.path.classes = Extend(fewer.path.classes, std::move(more.path.classes), cycles);
  more.path.tasks += cycles * (more.path.tasks - fewer.path.tasks);
  const double contention = more.time.contention;
  more.time = orrery::Extend(fewer.time, more.time, static_cast<double>(cycles));
  for (std::size_t r = 0; r < more.of_ranks.size(); ++r)
    more.of_ranks[r] =
        orrery::Extend(fewer.of_ranks[r], more.of_ranks[r], static_cast<double>(cycles));
  for (sim::SharedLink& shared : more.contention)
    shared.seconds *= contention > 0 ? more.time.contention / contention : 1;
  return more;
}

}  // namespace orrery::report
