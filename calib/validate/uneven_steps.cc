// SPDX-License-Identifier: Apache-2.0
// Interpolation between the whole steps below and above.
#include "calib/validate/uneven_steps.h"

#include <algorithm>

namespace orrery {
namespace {

// Of one replica; the fullest one where the batch does not divide.
int64_t Sequences(const CaseRow& row) {
  const int64_t replicas = row.strategy.data_parallel();
  return (row.work.global_batch + replicas - 1) / replicas;
}

// Micro-batches that a step's number must be a multiple of.
int64_t Round(const Strategy& s) { return s.vpp > 1 ? s.pp : 1; }

Workload WithSequences(const CaseRow& row, int64_t sequences) {
  Workload work = row.work;
  work.global_batch = sequences * row.strategy.data_parallel();
  return work;
}

StepTime Between(const StepTime& low, const StepTime& high, double share) {
  StepTime t = low;
  for (const BreakdownTerm& term : BreakdownTerms())
    t.*term.seconds += share * (high.*term.seconds - low.*term.seconds);
  for (double StepTime::*part : {&StepTime::total, &StepTime::low, &StepTime::high})
    t.*part += share * (high.*part - low.*part);
  return t;
}

}  // namespace

WholeSteps RoundUp(const CaseRow& row) {
  WholeSteps whole{row.work, row.strategy, true};
  if (row.window != Window::kStep) {
    whole.work.global_batch = row.strategy.data_parallel() * row.strategy.micro_batch *
                              std::max<int64_t>(1, Sequences(row) / row.strategy.micro_batch);
    if (whole.strategy.vpp == 1) return whole;
  }
  const int64_t sequences = Sequences(row);
  if (sequences < row.strategy.micro_batch)
    whole.strategy.micro_batch = static_cast<int>(sequences);
  const int64_t unit = whole.strategy.micro_batch * Round(whole.strategy);
  const int64_t up = (sequences + unit - 1) / unit * unit;
  whole.work = WithSequences(row, up);
  whole.same = whole.work.global_batch == row.work.global_batch;
  return whole;
}

std::variant<StepTime, Refusal> PredictSteps(CaseRow* row, const PredictBatch& predict) {
  const WholeSteps whole = RoundUp(*row);
  const Strategy& s = whole.strategy;
  if (s.micro_batch != row->strategy.micro_batch)
    row->notes.emplace_back("the batch of a rank is smaller than a micro-batch: one of that size");
  auto above = predict(whole.work, s, row->window);
  if (whole.same || std::holds_alternative<Refusal>(above)) return above;
  if (row->work.global_batch % s.data_parallel() != 0)
    row->notes.emplace_back("dp does not divide the batch: the rank with the most samples counts");
  const int64_t sequences = Sequences(*row), unit = s.micro_batch * Round(s),
                rest = sequences % unit;
  if (rest == 0 || sequences < unit) return above;
  const auto below = predict(WithSequences(*row, sequences - rest), s, row->window);
  if (std::holds_alternative<Refusal>(below)) return below;
  row->notes.emplace_back(Round(s) > 1
                              ? "micro-batches that do not divide by pp: between the steps that do"
                              : "the last micro-batch of a step is smaller than the others");
  const StepTime &low = std::get<StepTime>(below), &high = std::get<StepTime>(above);
  double share = static_cast<double>(rest) / static_cast<double>(unit);
  if (s.pp == 1 && high.total > low.total) {
    Strategy small = s;
    small.micro_batch = static_cast<int>(rest);
    const auto last = predict(WithSequences(*row, rest), small, Window::kSustained);
    if (const auto* time = std::get_if<StepTime>(&last))
      share = std::clamp(time->total / (high.total - low.total), share, 1.0);
  }
  return Between(low, high, share);
}

}  // namespace orrery
