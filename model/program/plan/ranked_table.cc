// SPDX-License-Identifier: Apache-2.0
// The table of `plan --nodes N --model NAME`.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/plan/lower/balance.h"
#include "model/program/common/memory_report.h"
#include "model/program/common/names.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "model/program/plan/search_report.h"

namespace orrery::report {
namespace {

using Cell = std::string (*)(const Candidate&);

struct Field {
  Column column;
  Cell cell;
  const char* plain;  // the column is left out when every row says this; null: never
};

std::string DataParallel(const Candidate& candidate) {
  const Strategy& strategy = candidate.strategy;
  if (strategy.dp_outer == 1) return std::to_string(strategy.dp);
  return fmt::format("{}x{}", strategy.dp_outer, strategy.dp);
}

std::string Schedule(const Candidate& candidate) {
  const Strategy& strategy = candidate.strategy;
  if (strategy.pp == 1) return "-";
  return strategy.vpp == 1 ? Name(strategy.schedule)
                           : fmt::format("{} x {}", Name(strategy.schedule), strategy.vpp);
}

std::string Memory(const Candidate& candidate) {
  if (!candidate.memory) return "over " + Format(candidate.memory_bound);
  return fmt::format("{} {:3.0f} %", Format(candidate.memory->total),
                     100 * (candidate.memory->total / candidate.memory->capacity));
}

const Field kFields[] = {
    {{"nodes", true}, [](const Candidate& c) { return std::to_string(c.nodes); }, nullptr},
    {{"batch", true}, [](const Candidate& c) { return std::to_string(c.global_batch); }, nullptr},
    {{"TP", true}, [](const Candidate& c) { return std::to_string(c.strategy.tp); }, "1"},
    {{"PP", true}, [](const Candidate& c) { return std::to_string(c.strategy.pp); }, "1"},
    {{"CP", true}, [](const Candidate& c) { return std::to_string(c.strategy.cp); }, "1"},
    {{"DP", true}, DataParallel, nullptr},
    {{"ZeRO", true}, [](const Candidate& c) { return std::to_string(c.strategy.zero); }, "0"},
    {{"micro-\nbatch", true},
     [](const Candidate& c) {
       return fmt::format("{} x {}", c.strategy.micro_batch, c.micro_batches);
     },
     nullptr},
    {{"schedule"}, Schedule, "-"},
    {{"layers\nby stage"},
     [](const Candidate& c) {
       return c.shares.empty() ? std::string("-") : orrery::LayoutWords(c.shares);
     },
     "-"},
    {{"recompute"}, [](const Candidate& c) { return RecomputeText(c.strategy.recompute); }, "none"},
    {{"seq.\npar."},
     [](const Candidate& c) { return std::string(c.strategy.sequence_parallel ? "on" : "-"); },
     "-"},
    {{"step time\n(80 % interval)"},
     [](const Candidate& c) { return TimeWithInterval(c.time); },
     nullptr},
    {{"closed\nform", true},
     [](const Candidate& c) {
       return c.closed_form ? Format(Seconds(c.closed_form->total)) : std::string("-");
     },
     "-"},
    {{"tokens/s", true}, [](const Candidate& c) { return Scaled(c.tokens_per_second); }, nullptr},
    {{"MFU", true}, [](const Candidate& c) { return Percent(c.mfu); }, nullptr},
    {{"memory", true}, Memory, nullptr},
    {{"USD per\n1e9 tokens", true},
     [](const Candidate& c) {
       return c.price_per_billion_tokens ? ThreeDigits(c.price_per_billion_tokens->value)
                                         : std::string("-");
     },
     "-"},
};

bool HasTie(const std::vector<Candidate>& candidates) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [](const Candidate& candidate) { return candidate.tie_with_first; });
}

}  // namespace

std::string RankedTable(const Job& job, const std::vector<Candidate>& candidates) {
  std::vector<Column> columns = {{"", true}};
  for (const Field& field : kFields) columns.push_back(field.column);
  Table table(std::move(columns));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool tied = i == 0 ? HasTie(candidates) : candidates[i].tie_with_first;
    std::vector<std::string> cells = {fmt::format("{}{}", tied ? "= " : "", i + 1)};
    for (const Field& field : kFields) cells.push_back(field.cell(candidates[i]));
    table.Row(std::move(cells));
  }
  for (std::size_t f = std::size(kFields); f-- > 0;) {
    const bool plain = kFields[f].plain != nullptr && table.AllEqual(f + 1, kFields[f].plain);
    const bool given = (f == 0 && job.request.nodes.size() <= 1) ||
                       (f == 1 && job.request.global_batches.size() <= 1);
    if (plain || given) table.Remove(f + 1);
  }
  return table.Text();
}

}  // namespace orrery::report
