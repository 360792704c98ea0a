// SPDX-License-Identifier: Apache-2.0
// Tells lives of a job from ranks that are heard late; joins what ranks say of a step.
#include "calib/import/rank_lines.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace orrery::measured {
namespace {

// What takes longest, or is slowest, holds for the step: a step waits for its slowest rank.
void JoinStep(StepSample step, StepSample* all) {
  const auto keep = [](std::optional<double>* of, const std::optional<double>& other, auto more) {
    if (!other || (*of && !more(*other, **of))) return false;
    *of = other;
    return true;
  };
  const std::greater<> longer;
  const std::less<> slower;
  bool slowest = keep(&all->seconds, step.seconds, longer);
  slowest |= keep(&all->samples_per_s, step.samples_per_s, slower);
  slowest |= keep(&all->tokens_per_s, step.tokens_per_s, slower);
  slowest |= keep(&all->tokens_per_s_of_gpu, step.tokens_per_s_of_gpu, slower);
  keep(&all->mfu, step.mfu, slower);
  keep(&all->flops_per_gpu, step.flops_per_gpu, slower);
  all->allocated.Join(step.allocated);
  all->reserved.Join(step.reserved);
  if (slowest) all->line = step.line;
}

}  // namespace

void RankLines::Add(const Printer& printer, std::optional<int64_t> time, StepSample step) {
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
