// SPDX-License-Identifier: Apache-2.0
// Kernels and messages of a trace by term; means of a record's terms.
#include "calib/compare/parts.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "model/price/breakdown.h"

namespace orrery::compare {

using measured::SpanSample;
using measured::TrainingLog;

namespace {

// "data_exposed" -> "data-parallel communication"; other programs' timers keep their names.
std::string TermName(const std::string& key) {
  for (const BreakdownTerm& term : BreakdownTerms()) {
    if (key + "_s" == term.key) return term.name;
  }
  return key;
}

// Terms whose kernels no message and no copy is part of.
bool IsKernels(const std::string& name) {
  const auto term = std::ranges::find(BreakdownTerms(), name, &BreakdownTerm::name);
  return term != BreakdownTerms().end() &&
         (term->seconds == &Breakdown::compute || term->seconds == &Breakdown::optimizer);
}

// Of one rank, by term: time in which kernels run, once where they do so on several streams.
NamedSeconds KernelsOfRank(const TrainingLog& log, int64_t rank) {
  std::vector<const SpanSample*> spans;
  for (const SpanSample& span : log.spans)
    if (span.rank == rank && IsKernels(span.term)) spans.push_back(&span);
  std::ranges::stable_sort(spans, {}, &SpanSample::begin);
  NamedSeconds sums;
  double until = -std::numeric_limits<double>::infinity();
  for (const SpanSample* span : spans) {
    const double from = std::max(span->begin, until), end = span->begin + span->seconds;
    if (end <= from) continue;
    sums[span->term] += end - from;
    until = end;
  }
  const double steps = std::max<double>(1, static_cast<double>(log.steps.size()));
  for (auto& [name, seconds] : sums) seconds /= steps;
  return sums;
}

double Sum(const NamedSeconds& parts) {
  double sum = 0;
  for (const auto& [name, seconds] : parts) sum += seconds;
  return sum;
}

// Of the rank that computes longest, as a record has them.
NamedSeconds KernelsOfTrace(const TrainingLog& log) {
  NamedSeconds most;
  if (!NamesTerms(log)) return most;
  for (const int64_t rank : RanksOf(log).ranks) {
    NamedSeconds of = KernelsOfRank(log, rank);
    if (Sum(of) > Sum(most)) most = std::move(of);
  }
  return most;
}

NamedSeconds MeansOfRecord(const TrainingLog& log) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const measured::TermSample& term : log.terms) {
    auto& [sum, count] = sums[TermName(term.name)];
    sum += term.seconds;
    ++count;
  }
  NamedSeconds means;
  for (const auto& [name, sum] : sums) means[name] = sum.first / sum.second;
  return means;
}

}  // namespace

Ranks RanksOf(const TrainingLog& log) {
  Ranks ranks;
  for (const SpanSample& span : log.spans) ranks.ranks.insert(span.rank);
  const double steps = std::max<double>(1, static_cast<double>(log.steps.size()));
  if (!ranks.ranks.empty()) ranks.scale = 1 / (steps * static_cast<double>(ranks.ranks.size()));
  return ranks;
}

bool Communicates(const SpanSample& span) {
  return span.work == measured::Work::kCollective || span.work == measured::Work::kPointToPoint;
}

bool NamesTerms(const TrainingLog& log) {
  return std::ranges::none_of(log.spans, [](const SpanSample& span) { return span.term.empty(); });
}

bool IsTraceOfRun(const TrainingLog& log) {
  if (!log.own || log.format != measured::LogFormat::kTrace) return false;
  const std::string_view text = log.source->text;
  const std::string_view head = text.substr(0, text.find("\"traceEvents\""));
  return head.find("\"clock_error_us\"") != head.npos;
}

NamedSeconds TermsOfTrace(const TrainingLog& log, double step) {
  const double scale = RanksOf(log).scale;
  std::map<int64_t, std::vector<const SpanSample*>> ranks;
  for (const SpanSample& span : log.spans) ranks[span.rank].push_back(&span);
  NamedSeconds sums;
  double all = 0;
  for (auto& [rank, spans] : ranks) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const SpanSample* a, const SpanSample* b) { return a->begin < b->begin; });
    std::vector<std::pair<double, double>> busy;  // disjoint, in order
    for (const SpanSample* span : spans) {
      if (Communicates(*span)) continue;
      const double from = busy.empty() ? span->begin : std::max(span->begin, busy.back().second);
      const double end = span->begin + span->seconds;
      if (end <= from) continue;
      busy.emplace_back(from, end);
      sums[span->term] += scale * (end - from);
      all += scale * (end - from);
    }
    double counted = -std::numeric_limits<double>::infinity();
    for (const SpanSample* span : spans) {
      if (!Communicates(*span)) continue;
      const double end = span->begin + span->seconds, from = std::max(span->begin, counted);
      if (end <= from) continue;
      double exposed = end - from;
      auto at = std::upper_bound(busy.begin(), busy.end(), std::pair(from, from));
      if (at != busy.begin()) --at;
      for (; at != busy.end() && at->first < end; ++at)
        exposed -= std::max(0.0, std::min(end, at->second) - std::max(from, at->first));
      sums[span->term] += scale * exposed;
      all += scale * exposed;
      counted = end;
    }
  }
  sums[kWaiting] = step - all > kRoundingError ? step - all : 0;
  return sums;
}

std::pair<NamedSeconds, NamedSeconds> PartsOf(const TrainingLog& predicted, double predicted_step,
                                              const TrainingLog& measured, double measured_step) {
  const bool both = !predicted.terms.empty() && !measured.terms.empty();
  if (both || predicted.spans.empty() == measured.spans.empty())
    return {MeansOfRecord(predicted), MeansOfRecord(measured)};
  const auto kernels = [](const TrainingLog& log) {
    if (!log.spans.empty()) return KernelsOfTrace(log);
    NamedSeconds parts = MeansOfRecord(log);
    std::erase_if(parts, [](const auto& part) { return !IsKernels(part.first); });
    return parts;
  };
  NamedSeconds p = kernels(predicted), m = kernels(measured);
  if (p.empty() || m.empty()) return {};
  p[kBetweenKernels] = std::max(0.0, predicted_step - Sum(p));
  m[kBetweenKernels] = std::max(0.0, measured_step - Sum(m));
  return {p, m};
}

}  // namespace orrery::compare
