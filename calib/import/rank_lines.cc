// SPDX-License-Identifier: Apache-2.0
// Tells lives of a job from ranks that are heard late; joins what ranks say of a step.
#include "calib/import/rank_lines.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "calib/import/log_lines.h"

namespace orrery::measured {
namespace {

// What takes longest, or is slowest, holds for the step: a step waits for its slowest rank.
void JoinStep(StepSample step, StepSample* all) {
  const auto keep = [](std::optional<double>* of, const std::optional<double>& other, auto more) {
    if (!other || (*of && !more(*other, **of))) return false;
    *of = other;
    return true;
  };
  all->first = std::min(all->FirstLine(), step.line);
  const std::greater<> longer;
  const std::less<> slower;
  bool slowest = keep(&all->seconds, step.seconds, longer);
  slowest |= keep(&all->samples_per_s, step.samples_per_s, slower);
  slowest |= keep(&all->tokens_per_s, step.tokens_per_s, slower);
  slowest |= keep(&all->tokens_per_s_of_gpu, step.tokens_per_s_of_gpu, slower);
  keep(&all->mfu, step.mfu, slower);
  keep(&all->flops_per_gpu, step.flops_per_gpu, slower);
  all->ranks.insert(all->ranks.end(), step.ranks.begin(), step.ranks.end());
  all->allocated.Join(step.allocated);
  all->reserved.Join(step.reserved);
  if (slowest) all->line = step.line;
}

// Of "5: ", as srun aligns the numbers. -1: none.
int64_t TaskOf(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(digits);
  const std::size_t colon = text.find(": ");
  return colon == std::string_view::npos ? -1 : WholeIn(text.substr(0, colon)).value_or(-1);
}

// Comparable among lines of one kind.
double TakenBy(const StepSample& step) {
  if (step.seconds) return *step.seconds;
  for (const auto& rate : {step.tokens_per_s_of_gpu, step.tokens_per_s, step.samples_per_s}) {
    if (rate && *rate > 0) return 1 / *rate;
  }
  return 0;
}

}  // namespace

Printer PrinterOf(std::string_view text) {
  for (const std::string_view label : {"[rank", "[default"}) {
    const std::size_t at = text.find(label);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = text.substr(at + label.size());
    const auto rank = WholeIn(rest.substr(0, rest.find(']')));
    if (rank) return {TaskOf(text.substr(0, at)), *rank};
  }
  return {};
}

int64_t RankOfAll(std::string_view text) {
  constexpr std::string_view kTag = "[1,";  // Open MPI: the job, the rank
  if (!text.starts_with(kTag)) return TaskOf(text);
  text.remove_prefix(kTag.size());
  const std::size_t end = text.find("]<std");
  return end == std::string_view::npos ? -1 : WholeIn(text.substr(0, end)).value_or(-1);
}

std::string_view WithoutLabels(std::string_view text) {
  for (std::string_view rest = text; !rest.empty(); text = rest) {
    const std::size_t first = rest.find_first_not_of(' ');
    if (first == std::string_view::npos) return text;
    rest.remove_prefix(first);
    const bool bracket = rest[0] == '[';
    const std::size_t end = rest.find(bracket ? "]:" : ": ");
    const std::size_t tag = bracket ? rest.find("]<std") : std::string_view::npos;
    if (tag < end) {
      const std::size_t colon = rest.find(">:", tag);
      if (RankOfAll(rest) < 0 || colon == std::string_view::npos) return text;
      rest.remove_prefix(colon + 2);
    } else if (end != std::string_view::npos &&
               (bracket ? PrinterOf(rest.substr(0, end + 1)).rank >= 0 : TaskOf(rest) >= 0)) {
      rest.remove_prefix(end + 2);
    } else {
      return text;
    }
  }
  return text;
}

std::optional<int64_t> TimeIn(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  for (std::size_t at = 0; at + kForm.size() <= text.size(); ++at) {
    const std::string_view stamp = text.substr(at, kForm.size());
    const bool here = std::ranges::equal(stamp, kForm, [](char c, char form) {
      return form == '0' ? c >= '0' && c <= '9' : c == form;
    });
    if (!here) continue;
    const auto number = [&](std::size_t begin, std::size_t n) {
      return WholeIn(stamp.substr(begin, n)).value_or(0);
    };
    std::string_view rest = text.substr(at + kForm.size());
    std::optional<int64_t> milliseconds;
    if (rest.starts_with(',') || rest.starts_with('.')) {
      rest.remove_prefix(1);
      milliseconds =
          WholeIn(rest.substr(0, std::min<std::size_t>(rest.find_first_not_of("0123456789"), 3)));
    }
    const std::chrono::sys_days day = std::chrono::year(static_cast<int>(number(0, 4))) /
                                      std::chrono::month(static_cast<unsigned>(number(5, 2))) /
                                      std::chrono::day(static_cast<unsigned>(number(8, 2)));
    const int64_t seconds = (number(11, 2) * 60 + number(14, 2)) * 60 + number(17, 2);
    return (day.time_since_epoch().count() * int64_t{86400} + seconds) * 1000 +
           milliseconds.value_or(0);
  }
  return std::nullopt;
}

void RankLines::Add(const Printer& printer, std::optional<int64_t> time, StepSample step) {
  if (const double taken = TakenBy(step); taken > 0 && printer.rank >= 0)
    step.ranks.push_back({printer.rank, !unique_, printer.task, taken});
  if (step.step < 0) return log_.steps.push_back(std::move(step));
  const auto [at, first] = last_.try_emplace(printer, Last{step.step, LifeOfNew(step.step)});
  Last& last = at->second;
  const bool again = unique_ && printer.rank >= 0 && step.step == last.step;
  const bool back = !first && (step.step < last.step || again);
  const bool late = back && IsLate(last.life, time, step.step);
  if (back && !late) newest_ = std::max(newest_, ++last.life);
  if (!late) last.step = step.step;
  if (time) {
    const auto [known, added] = times_[last.life].try_emplace(step.step, *time);
    if (!added) known->second = std::min(known->second, *time);
  }
  const auto [known, added] = samples_.try_emplace({last.life, step.step}, log_.steps.size());
  if (added || (printer.rank < 0 && !late))
    log_.steps.push_back(std::move(step));
  else
    JoinStep(std::move(step), &log_.steps[known->second]);
}

// Rows may be sorted by rank: then one that is new says the steps of all lives in turn. Else it is of the newest.
int64_t RankLines::LifeOfNew(int64_t step) const {
  int64_t life = unique_ ? 0 : newest_;
  while (life < newest_ && !samples_.contains({life, step})) ++life;
  return life;
}

// Without srun --label ranks of several nodes have one number, and their lines come as the nodes' pipes are read. Ranks take each
// step together, so a line from before a later step of this life was printed is of a rank that is heard late, not of a restart.
bool RankLines::IsLate(int64_t life, std::optional<int64_t> time, int64_t step) {
  if (!time) return false;
  const std::map<int64_t, int64_t>& times = times_[life];
  const auto later = times.upper_bound(step);
  return later != times.end() && *time < later->second;
}

}  // namespace orrery::measured
