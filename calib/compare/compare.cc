// SPDX-License-Identifier: Apache-2.0
// Adds up spans on both sides and takes differences.
#include "calib/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "calib/compare/governing.h"
#include "calib/compare/parts.h"
#include "model/base/median.h"
#include "model/price/breakdown.h"

namespace orrery::compare {
namespace {

using measured::RefuseLog;
using measured::SpanSample;
using measured::StepSample;
using measured::TrainingLog;

using Key = std::array<std::string, 3>;  // work, phase, stream
using Sums = std::map<Key, double>;

template <class KeyOfSpan>
Sums AddUp(const TrainingLog& log, const KeyOfSpan& key) {
  const double scale = RanksOf(log).scale;
  Sums sums;
  for (const SpanSample& span : log.spans) sums[key(span)] += span.seconds * scale;
  return sums;
}

// Seconds per rank and step in which a rank runs nothing on any stream.
double Idle(const TrainingLog& log, double step) {
  const Ranks ranks = RanksOf(log);
  std::map<int64_t, std::vector<std::pair<double, double>>> busy;
  for (const SpanSample& span : log.spans)
    busy[span.rank].push_back({span.begin, span.begin + span.seconds});
  double seconds = 0;
  for (auto& [rank, spans] : busy) {
    std::sort(spans.begin(), spans.end());
    double until = spans.front().first;
    for (const auto& [begin, end] : spans) {
      seconds += std::max(0.0, end - std::max(begin, until));
      until = std::max(until, end);
    }
  }
  const double idle = step - seconds * ranks.scale;
  return idle > kRoundingError ? idle : 0;
}

std::vector<Term> Differences(const Sums& predicted, const Sums& measured) {
  std::map<Key, Term> terms;
  const auto at = [&](const Key& key) -> Term& {
    Term& term = terms[key];
    term.work = key[0];
    term.phase = key[1];
    term.stream = key[2];
    return term;
  };
  for (const auto& [key, seconds] : predicted) at(key).predicted = seconds;
  for (const auto& [key, seconds] : measured) at(key).measured = seconds;
  double total = 0;
  std::vector<Term> list;
  for (const auto& [key, term] : terms) {
    total += std::abs(term.difference());
    list.push_back(term);
  }
  for (Term& term : list) term.share = total > 0 ? std::abs(term.difference()) / total : 0;
  std::stable_sort(list.begin(), list.end(),
                   [](const Term& a, const Term& b) { return a.share > b.share; });
  return list;
}

bool HasPhases(const TrainingLog& log) {
  return std::any_of(log.spans.begin(), log.spans.end(),
                     [](const SpanSample& span) { return !span.phase.empty(); });
}

bool ShareStreams(const TrainingLog& a, const TrainingLog& b) {
  std::set<std::string> streams;
  for (const SpanSample& span : a.spans) streams.insert(span.stream);
  return std::any_of(b.spans.begin(), b.spans.end(),
                     [&](const SpanSample& span) { return streams.contains(span.stream); });
}

// Seconds of each rank in kernels.
std::map<int64_t, double> ComputeOf(const TrainingLog& log) {
  std::map<int64_t, double> compute;
  for (const SpanSample& span : log.spans) {
    if (!Communicates(span)) compute[span.rank] += span.seconds;
  }
  return compute;
}

// The lower one of two in the middle: of two ranks the faster one is what the other is compared with.
double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Stages may compute differently long: each rank against its own prediction. A prediction may hold one rank for all of its
// replicas; where those that it holds compute alike, any of them is that of a rank it lacks.
std::optional<Straggler> StragglerOf(const TrainingLog& predicted, const TrainingLog& measured) {
  const std::map<int64_t, double> expected = ComputeOf(predicted), found = ComputeOf(measured);
  if (expected.empty()) return std::nullopt;
  const auto [least, most] =
      std::ranges::minmax_element(expected, {}, [](const auto& one) { return one.second; });
  const bool alike = most->second < kStraggles * least->second;
  std::vector<double> ratios;
  Straggler slowest;
  for (const auto& [rank, seconds] : found) {
    const auto own = expected.find(rank);
    if (own == expected.end() && !alike) continue;
    const double should = own == expected.end() ? least->second : own->second;
    if (should <= 0) continue;
    ratios.push_back(seconds / should);
    if (ratios.back() > slowest.slowdown) slowest = {rank, ratios.back()};
  }
  if (ratios.size() < 2) return std::nullopt;
  slowest.slowdown /= LowerMedian(ratios);
  return slowest.slowdown > kStraggles ? std::optional(slowest) : std::nullopt;
}

// Parts that both files name alike.
void CompareParts(const TrainingLog& predicted, const TrainingLog& measured, Comparison* c) {
  const auto [p, m] = PartsOf(predicted, c->predicted_step, measured, c->measured_step);
  Sums left, right;
  for (const auto& [name, seconds] : p) {
    const auto other = m.find(name);
    if (other == m.end() || (seconds == 0 && other->second == 0)) continue;
    left[{name, "", ""}] = seconds;
    right[{name, "", ""}] = other->second;
  }
  if (c->foreign && !left.empty()) {
    const auto rest = [](double step, const Sums& of) {
      for (const auto& [key, seconds] : of) step -= seconds;
      return std::max(0.0, step);
    };
    const double p_rest = rest(c->predicted_step, left), m_rest = rest(c->measured_step, right);
    left[{kRest, "", ""}] = p_rest;
    right[{kRest, "", ""}] = m_rest;
  }
  c->by_part = Differences(left, right);
}

void CompareSpans(const TrainingLog& predicted, const TrainingLog& measured, Comparison* c) {
  const auto differences = [&](const auto& key, bool idle) {
    Sums p = AddUp(predicted, key), m = AddUp(measured, key);
    if (idle) {
      p[{"idle", "", ""}] = Idle(predicted, c->predicted_step);
      m[{"idle", "", ""}] = Idle(measured, c->measured_step);
    }
    return Differences(p, m);
  };
  c->by_work = differences(
      [](const SpanSample& s) {
        return Key{measured::Name(s.work), "", ""};
      },
      true);
  if (!predicted.terms.empty() && !measured.terms.empty()) {
    CompareParts(predicted, measured, c);  // the breakdown that records have
  } else if (NamesTerms(predicted) && NamesTerms(measured)) {
    const auto keyed = [](const NamedSeconds& parts) {
      Sums sums;
      for (const auto& [name, seconds] : parts) sums[{name, "", ""}] = seconds;
      return sums;
    };
    c->by_part = Differences(keyed(TermsOfTrace(predicted, c->predicted_step)),
                             keyed(TermsOfTrace(measured, c->measured_step)));
  }
  if (ShareStreams(predicted, measured))
    c->by_stream = differences([](const SpanSample& s) { return Key{"", "", s.stream}; }, false);
  if (!HasPhases(predicted) || !HasPhases(measured)) return;
  c->by_phase = differences([](const SpanSample& s) { return Key{"", s.phase, ""}; }, false);
  c->by_work_and_phase = differences(
      [](const SpanSample& s) {
        return Key{measured::Name(s.work), s.phase, ""};
      },
      true);
}

// What a log prints beside the step time. Samples per second where it prints no tokens.
void CompareFigures(const TrainingLog& predicted, const TrainingLog& measured, Comparison* c) {
  c->interval = predicted.interval;
  if (!predicted.steps.empty()) {
    c->samples.predicted = predicted.steps.front().samples;
    c->tokens_per_s.predicted = predicted.steps.front().tokens_per_s;
    c->allocated.predicted = predicted.steps.front().allocated.bytes;
    c->reserved.predicted = predicted.steps.front().reserved.bytes;
  }
  std::vector<double> tokens, of_step;
  for (const StepSample& step : measured.steps) {
    if (step.samples) c->samples.measured = step.samples;
    if (step.tokens_per_s) tokens.push_back(*step.tokens_per_s);
    if (step.tokens_per_s && step.seconds) of_step.push_back(*step.tokens_per_s * *step.seconds);
    for (const auto& [peak, most] : {std::pair(&step.allocated, &c->allocated.measured),
                                     std::pair(&step.reserved, &c->reserved.measured)})
      if (peak->bytes) *most = std::max(*peak->bytes, most->value_or(0));
  }
  // As `plan run` counts them: the tokens of a step over the step that is compared.
  if (!of_step.empty())
    c->tokens_per_s.measured = Median(of_step) / c->measured_step;
  else if (!tokens.empty())
    c->tokens_per_s.measured = Median(tokens);
  else if (const measured::StepSize& size = predicted.size;
           c->samples.measured && size.samples > 0 && size.tokens > 0)
    c->tokens_per_s.measured =
        *c->samples.measured * (size.tokens / size.samples) / c->measured_step;
  else if (c->by_throughput && predicted.size.tokens > 0)
    c->tokens_per_s.measured = predicted.size.tokens / c->measured_step;
}

void ComparePeak(const TrainingLog& predicted, const TrainingLog& measured, Comparison* c) {
  std::vector<double> own;
  for (const StepSample& step : measured.steps)
    if (step.mfu) own.push_back(*step.mfu);
  if (!own.empty()) c->own_mfu = Median(std::move(own));
  if (predicted.steps.empty() || !predicted.steps.front().peak_share) return;
  c->peak_share = *predicted.steps.front().peak_share * c->predicted_step / c->measured_step;
}

// By what the measured file says of throughput, if it times no step: `size` is the prediction's.
double StepOf(const TrainingLog& log, const measured::StepSize& size) {
  if (!log.spans.empty() &&
      !log.terms.empty()) {  // of a trace: the mean step, whose terms stand in front
    double sum = 0;
    for (const measured::TermSample& term : log.terms) sum += term.seconds;
    return sum;
  }
  const std::optional<double> step = MedianStep(log, size);
  if (!step && !log.spans.empty() && log.garbled_lines > 0)
    RefuseLog(log.source, "the trace breaks off before its step ends", "write it again");
  if (!step)
    RefuseLog(log.source, "there is no step time in this file",
              "throughput becomes a time where the first file says the batch: --json FILE of plan "
              "predict or simulate");
  return *step;
}

// "; 8 GPUs and 2": in what the steps of two plans differ as far as both files say. "": in nothing.
std::string OtherSize(const measured::StepSize& predicted, const measured::StepSize& measured) {
  std::string text;
  for (const auto& [member, what] : {std::pair{&measured::StepSize::gpus, "GPUs"},
                                     std::pair{&measured::StepSize::samples, "samples of a step"},
                                     std::pair{&measured::StepSize::tokens, "tokens of a step"}}) {
    const double own = predicted.*member, theirs = measured.*member;
    if (own > 0 && theirs > 0 && std::abs(theirs / own - 1) > 1e-6)
      text += fmt::format("; {}: {:.0f} and {:.0f}", what, own, theirs);
  }
  return text;
}

// Takes steps of another global batch out of the log of another program.
void CheckPlans(const TrainingLog& predicted, TrainingLog* log, Comparison* c) {
  TrainingLog& measured = *log;
  if (!predicted.own)
    RefuseLog(predicted.source, "the first file is no prediction of this program",
              "plan simulate ... --json FILE or --trace FILE writes one, of a launch script with "
              "--from SCRIPT; the measured file is the second");
  if (predicted.measured || IsTraceOfRun(predicted))
    RefuseLog(predicted.source,
              predicted.measured ? "the first file is what plan run measured"
                                 : "the first file is a trace of plan run, which measured it",
              "plan compare PREDICTED MEASURED: the prediction comes first; --json FILE or --trace "
              "FILE of plan simulate writes it");
  c->foreign = !measured.own;
  if (c->foreign) {
    const PlannedJob job(predicted.source, predicted.digest, predicted.size);
    std::vector<StepSample> steps;
    c->told = job.Check(measured, &steps);
    measured.steps = std::move(steps);
    c->digest = c->told.digest;
    return;
  }
  for (const TrainingLog* one : {&predicted, static_cast<const TrainingLog*>(log)}) {
    if (one->digest.empty())
      RefuseLog(one->source, "the file does not say which plan it is of",
                "write it again with plan simulate or plan run: both put the plan's digest in");
  }
  if (predicted.digest != measured.digest) {
    RefuseLog(measured.source,
              fmt::format("another plan: {} is of plan {}, {} of plan {}{}", predicted.source->name,
                          predicted.digest, measured.source->name, measured.digest,
                          OtherSize(predicted.size, measured.size)),
              "give both commands the same job and layout; plan show prints a plan's digest");
  }
  c->digest = predicted.digest;
}

}  // namespace

namespace {

// The first one that works at `work`, which is the one with the largest difference; "": at anything
// but nothing. Null: none differs by `least` seconds.
const Term* Largest(const std::vector<Term>& table, const std::string& work, double least) {
  for (const Term& term : table) {
    const bool asked = work.empty() ? term.work != "idle" : term.work == work;
    if (asked && std::abs(term.difference()) > least) return &term;
  }
  return nullptr;
}

}  // namespace

bool Comparison::InInterval() const {
  return interval && interval->first <= measured_step && measured_step <= interval->second;
}

bool Comparison::AbovePeak() const { return peak_share.value_or(0) > 1; }

bool Comparison::WaitsForStraggler(const Term& term) const {
  if (!straggler) return false;
  const std::string& work = term.work;
  return work == "idle" || work == kWaiting || work == kBetweenKernels ||
         work == Name(measured::Work::kCollective) || work == Name(measured::Work::kPointToPoint) ||
         std::ranges::any_of(BreakdownTerms(), [&](const BreakdownTerm& of) {
           const bool own = of.seconds == &Breakdown::compute || of.seconds == &Breakdown::host ||
                            of.seconds == &Breakdown::optimizer ||
                            of.seconds == &Breakdown::offload || of.seconds == &Breakdown::fixed;
           return of.name == work && !own;
         });
}

std::vector<std::string> Comparison::Constants(const Term& term) const {
  if (WaitsForStraggler(term)) return {};
  return GoverningConstants(term.work, term.phase, precision, optimizer);
}

const Term* Comparison::CulpritWork() const {
  const double least = kLeastBlamed * measured_step;
  const std::vector<Term>& table = by_work.empty() ? by_part : by_work;
  const Term* largest = Largest(table, "", least);
  return largest != nullptr ? largest : Largest(table, "idle", least);
}

const Term* Comparison::Culprit() const {
  const Term* work = CulpritWork();
  if (work == nullptr) return nullptr;
  const Term* phase = Largest(by_work_and_phase, work->work, kLeastBlamed * measured_step);
  return phase == nullptr ? work : phase;
}

Comparison Compare(const TrainingLog& predicted, TrainingLog measured) {
  Comparison c;
  CheckPlans(predicted, &measured, &c);
  c.predicted_file = predicted.source->name;
  c.measured_file = measured.source->name;
  c.predicted_step = StepOf(predicted, {});
  c.measured_step = StepOf(measured, predicted.size);
  c.by_throughput = !MedianStep(measured);
  c.measured_steps = measured.steps.size();
  c.predicted_trace = !predicted.spans.empty();
  c.measured_trace = !measured.spans.empty();
  c.garbled_lines = predicted.garbled_lines + measured.garbled_lines;
  c.precision = predicted.precision;
  c.optimizer = predicted.optimizer;
  CompareFigures(predicted, measured, &c);
  ComparePeak(predicted, measured, &c);
  if (c.predicted_trace && c.measured_trace) {
    CompareSpans(predicted, measured, &c);
    c.straggler = StragglerOf(predicted, measured);
  } else {
    CompareParts(predicted, measured, &c);
  }
  return c;
}

}  // namespace orrery::compare
