// SPDX-License-Identifier: Apache-2.0
// Cuts a log between its runs.
#include "calib/import/log_runs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace orrery::measured {
namespace {

using Starts = std::vector<LogStart>;

// Whether steps that count on with the number of the one before are of another run: ranks without names print each step again.
bool RepeatsAreRuns(const std::vector<StepSample>& steps) {
  std::size_t again = 0;
  for (std::size_t i = 1; i < steps.size(); ++i)
    again += steps[i].step >= 0 && steps[i].step == steps[i - 1].step ? 1 : 0;
  constexpr std::size_t kOneIn = 4;
  return again > 0 && again * kOneIn < steps.size();
}

// Of those in front of a run's first step, its own: from the last one back, until one would be the second of its kind. Earlier
// ones are of attempts that took no step.
Starts::const_iterator OwnStarts(Starts::const_iterator begin, Starts::const_iterator end) {
  std::set<LogStart::Kind> seen;
  auto own = end;
  while (own != begin) {
    const LogStart& one = *std::prev(own);
    const bool same = own != end && own->kind == one.kind && one.MayRepeat();
    if (!seen.insert(one.kind).second && !same) break;
    --own;
  }
  return own;
}

// The lines from `begin` up to the one before `end`, where they were; 0: to the last one.
SourcePtr LinesOf(const Source& log, int begin, int end) {
  std::string text(static_cast<std::size_t>(begin - 1), '\n');
  std::size_t at = 0;
  int line = 1;
  const auto skip_to = [&](int wanted) {
    for (; line < wanted && at < log.text.size(); ++line)
      at = std::min(log.text.find('\n', at), log.text.size() - 1) + 1;
    return at;
  };
  const std::size_t first = skip_to(begin);
  const std::size_t last = end > 0 ? skip_to(end) : log.text.size();
  text.append(log.text, first, last - first);
  return std::make_shared<const Source>(Source{log.name, std::move(text)});
}

}  // namespace

std::vector<LoggedRun> RunsOf(const TrainingLog& log) {
  const LogFacts all = log.source ? ReadLogFacts(*log.source) : LogFacts();
  const bool repeats = RepeatsAreRuns(log.steps);
  std::vector<LoggedRun> runs(1);
  std::vector<int> lines = {1};  // that each begins at
  int64_t last = -1;
  int line = 0;  // the last one of a step
  auto start = all.starts.begin();
  for (std::size_t i = 0; i < log.steps.size(); ++i) {
    const StepSample& step = log.steps[i];
    const auto begun = start;
    // By what ranks say first: where their logs stand one behind the other, each has begun once.
    while (start != all.starts.end() && start->line < step.FirstLine()) ++start;
    const bool back = step.step >= 0 && (step.step < last || (repeats && step.step == last));
    const auto own = OwnStarts(begun, start);
    if (i > 0 && (begun != start || back)) {
      runs.back().end = i;
      runs.emplace_back();
      runs.back().first = i;
      lines.push_back(own != begun ? own->line : line + 1);
    } else if (i == 0 && own != begun) {
      lines.back() = own->line;
    }
    last = std::max<int64_t>(step.step, 0);
    line = std::max(line, step.line);
  }
  runs.back().end = log.steps.size();
  if (runs.size() == 1 && lines[0] == 1) {
    runs[0].text = log.source;
    runs[0].facts = all;
    return runs;
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].text = LinesOf(*log.source, lines[i], i + 1 < runs.size() ? lines[i + 1] : 0);
    runs[i].facts = ReadLogFacts(*runs[i].text);
  }
  return runs;
}

}  // namespace orrery::measured
