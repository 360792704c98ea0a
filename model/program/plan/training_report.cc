// SPDX-License-Identifier: Apache-2.0
// Ranked layouts as runs of so many tokens, and topologies next to each other.
#include "model/program/plan/training_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/base/text.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "model/program/plan/run_report.h"
#include "model/program/plan/search_report.h"
#include "model/provision/batch_range.h"
#include "model/report/short_number.h"
#include "model/twin/evaluator.h"

namespace orrery::report {
namespace {

std::optional<DollarsPerHour> PriceOf(const Job& job) {
  return job.request.node_price ? job.request.node_price : job.request.topology.node_price;
}

double ValueOf(const Compared& one) {
  if (!one.result.feasible()) return std::numeric_limits<double>::infinity();
  const Candidate& best = one.result.ranked.front();
  const orrery::Job twin = JobOf(one.job.request, one.job.profiles, best.nodes, best.global_batch);
  return ObjectiveValue(one.job.request, best.time.total, twin, best.strategy.data_parallel());
}

}  // namespace

std::optional<Quote> QuoteOf(const Job& job) {
  const auto price = PriceOf(job);
  if (!price) return std::nullopt;
  Quote quote;
  quote.offer.name = job.request.topology.name;
  quote.price.price = *price;
  return quote;
}

Candidate InItsOrder(const Candidate& candidate, int row, std::span<const PlacedRow> placed) {
  const auto own = std::ranges::find(placed, row, &PlacedRow::row);
  if (own == placed.end()) return candidate;
  const double ratio = own->choice.placed.time.total / candidate.time.total;
  Candidate moved = candidate;
  StepTime time = candidate.time;
  time.total *= ratio, time.low *= ratio, time.high *= ratio;
  moved.SetTime(time);
  return moved;
}

std::vector<RunEstimate> EstimateRuns(const Compared& one, const cli::LongRun& run) {
  const Job& job = one.job;
  const std::optional<Quote> quote = QuoteOf(job);
  std::map<int64_t, int64_t> spares;  // by nodes
  std::vector<RunEstimate> runs;
  for (const Candidate& ranked : one.result.ranked) {
    const Candidate candidate = InItsOrder(ranked, static_cast<int>(runs.size()) + 1, one.placed);
    const orrery::Job twin =
        JobOf(job.request, job.profiles, candidate.nodes, candidate.global_batch);
    const Quote* price = quote ? &*quote : nullptr;
    const auto known = spares.find(candidate.nodes);
    runs.push_back(known != spares.end()
                       ? EstimateRun(run.conditions, twin, candidate, price, known->second)
                       : BestRun(run.conditions, twin, candidate, price, [&](const auto& of_it) {
                           return run.Keeps(of_it, price != nullptr);
                         }));
    spares.emplace(candidate.nodes, runs.back().spares);
  }
  return runs;
}

namespace {

// In what is searched for: dollars or seconds, with failures, spares and setup.
double ValueOf(const SearchRequest& request, const RunEstimate& run) {
  return request.objective == Objective::kTime ? run.time.value : run.cost.value;
}

// Against the limits that were asked for.
std::string AgainstLimits(const RunEstimate& one, int64_t nodes, const std::optional<Quote>& quote,
                          const cli::LongRun& run) {
  std::string text;
  if (run.deadline && one.time > *run.deadline)
    text = run.conditions.run.setup >= *run.deadline
               ? fmt::format("too late: {} before the first step (--setup)",
                             Days(run.conditions.run.setup))
               : "too late";
  else if (run.deadline)
    text = fmt::format("{} % likely in time", WholePercent(one.ProbabilityWithin(*run.deadline)));
  const auto add = [&](const std::string& words) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", words);
  };
  if (run.budget && !quote) add("no price, budget not checked (--node-price)");
  if (run.budget && quote && one.cost > *run.budget)
    add("over the budget");
  else if (run.budget && quote)
    add(fmt::format("{} % likely within the budget",
                    WholePercent(one.ProbabilityWithin(*quote, nodes + one.spares, *run.budget))));
  if (one.input.bound()) add("INPUT-BOUND");
  return text;
}

}  // namespace

namespace {

// "": all rows are in the default order of ranks.
std::string PlacedRows(const Compared& one) {
  if (one.placed.empty()) return "";
  std::vector<int> rows;
  for (const PlacedRow& row : one.placed) rows.push_back(row.row);
  return fmt::format(
      "Days and cost of {} {} are in the order of ranks of --placement{}",
      rows.size() == 1 ? "row" : "rows", fmt::join(rows, ", "),
      rows.size() < one.result.ranked.size() ? ", of the others in the default one" : "");
}

}  // namespace

namespace {

// Of the first row.
std::vector<std::string> FirstLines(const Compared& compared, const RunEstimate& first,
                                    const cli::LongRun& run) {
  std::vector<std::string> lines = RunLines(first, run.conditions);
  if (compared.job.model.spec.family != Family::kDecoder) return lines;  // no rule is known
  std::string large =
      LargeBatch(compared.result.ranked.front().tokens, run.conditions.tokens, LoadBatch());
  if (!large.empty()) lines.push_back(std::move(large));
  return lines;
}

}  // namespace

std::string TrainingText(const Compared& compared, const cli::LongRun& run) {
  const Job& job = compared.job;
  const SearchResult& result = compared.result;
  const std::optional<Quote> quote = QuoteOf(job);
  const bool priced = quote.has_value();
  const std::vector<RunEstimate> runs = EstimateRuns(compared, run);
  Table table({{"", true},
               {"nodes\n+ spares", true},
               {"goodput", true},
               {"days\n(80 % interval)"},
               {"cost\n(80 % interval)"},
               {"MWh", true},
               {""}});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunEstimate& one = runs[i];
    table.Row({std::to_string(i + 1),
               one.spares > 0 ? fmt::format("{} + {}", result.ranked[i].nodes, one.spares)
                              : std::to_string(result.ranked[i].nodes),
               Percent(one.goodput), DaysWithInterval(one), priced ? MoneyWithInterval(one) : "-",
               one.energy_kwh ? ThreeDigits(*one.energy_kwh / 1000) : "-",
               AgainstLimits(one, result.ranked[i].nodes, quote, run)});
  }
  std::string limits;
  if (run.deadline) limits += fmt::format(", within {}", GivenDays(*run.deadline));
  if (run.budget) limits += fmt::format(", at most {}", GivenMoney(*run.budget));
  std::string text =
      fmt::format("\n{} tokens with each{}\n", Count(run.conditions.tokens), limits) + table.Text();
  if (!priced) text += "  cost: no price is known (--node-price)\n";
  if (const std::string rows = PlacedRows(compared); !rows.empty())
    text += fmt::format("  {}\n", Fold(rows, 2));
  return text + "\nHow the run of 1 goes\n" + Bullets(FirstLines(compared, runs.front(), run));
}

std::string RunBrief(const Compared& one, const cli::LongRun& run) {
  const RunEstimate first = EstimateRuns(one, run).front();
  const std::optional<Quote> quote = QuoteOf(one.job);
  const std::string text = AgainstLimits(first, one.result.ranked.front().nodes, quote, run);
  return DaysWithInterval(first) + (quote ? ", " + MoneyWithInterval(first) : "") +
         (text.empty() ? "" : ", " + text);
}

nlohmann::ordered_json TrainingJson(const Compared& compared, const cli::LongRun& run) {
  const Job& job = compared.job;
  nlohmann::ordered_json json = {{"tokens", run.conditions.tokens}};
  json["deadline_s"] =
      run.deadline ? nlohmann::ordered_json(run.deadline->value) : nlohmann::ordered_json();
  json["budget_usd"] =
      run.budget ? nlohmann::ordered_json(run.budget->value) : nlohmann::ordered_json();
  const std::optional<Quote> quote = QuoteOf(job);
  json["priced"] = quote.has_value();
  const std::vector<RunEstimate> runs = EstimateRuns(compared, run);
  json["placed"] = PlacedRows(compared);
  json["ranked_by_input"] = WaitingForInput(job, compared.result);
  if (job.model.spec.family == Family::kDecoder) {
    const BatchRange range = BatchRangeFor(LoadBatch(), run.conditions.tokens);
    json["published_batch_tokens"] = {range.least, range.most};
  }
  if (!runs.empty()) json["first_run_words"] = FirstLines(compared, runs.front(), run);
  json["runs"] = nlohmann::ordered_json::array();
  using Json = nlohmann::ordered_json;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunEstimate& one = runs[i];
    const int64_t nodes = compared.result.ranked[i].nodes;
    Json& row = json["runs"].emplace_back(RunJson(one));
    row["finish_probability"] = run.deadline ? Json(one.ProbabilityWithin(*run.deadline)) : Json();
    row["budget_probability"] =
        run.budget && quote ? Json(one.ProbabilityWithin(*quote, nodes + one.spares, *run.budget))
                            : Json();
    row["verdict"] = AgainstLimits(one, nodes, quote, run);
  }
  return json;
}

std::vector<std::size_t> OrderOf(const std::vector<Compared>& all, const cli::LongRun& run) {
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // What keeps the limits, what may (no price to compare with the budget), what breaks one, what does not run.
  enum Standing { kKeeps, kUnchecked, kMisses, kNotFeasible };
  const auto standing = [&](const Compared& one) {
    if (!one.result.feasible()) return kNotFeasible;
    if (!run.deadline && !run.budget) return kKeeps;
    const bool priced = PriceOf(one.job).has_value();
    if (!run.Keeps(EstimateRuns(one, run).front(), priced)) return kMisses;
    return run.budget && !priced ? kUnchecked : kKeeps;
  };
  // Of equal bills, of whole hours, the shorter run comes first.
  const auto value = [&](const Compared& one) {
    if (!run.tokens_given || !one.result.feasible()) return std::pair(ValueOf(one), 0.0);
    const RunEstimate first = EstimateRuns(one, run).front();
    return std::pair(ValueOf(one.job.request, first), first.time.value);
  };
  std::ranges::stable_sort(
      order, {}, [&](std::size_t i) { return std::pair(standing(all[i]), value(all[i])); });
  return order;
}

std::vector<std::size_t> FrontierOf(const std::vector<Compared>& all, const cli::LongRun& run) {
  std::vector<std::size_t> frontier;
  std::vector<std::pair<double, double>> points(all.size());  // seconds, dollars
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].result.feasible() || !PriceOf(all[i].job)) continue;
    const RunEstimate best = EstimateRuns(all[i], run).front();
    points[i] = {best.time.value, best.cost.value};
    frontier.push_back(i);
  }
  std::ranges::stable_sort(frontier, {}, [&](std::size_t i) { return points[i]; });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(frontier, [&](std::size_t i) {
    if (points[i].second >= least) return true;
    least = points[i].second;
    return false;
  });
  return frontier;
}

std::string PassedOverWords(const std::vector<Compared>& all, const cli::LongRun& run) {
  if (run.conditions.tokens <= 0 || !run.budget) return "";
  const Compared& best = all[OrderOf(all, run).front()];
  if (!best.result.feasible() || !PriceOf(best.job)) return "";
  const Seconds time = EstimateRuns(best, run).front().time;
  std::string passed;
  for (const Compared& one : all) {
    if (!one.result.feasible() || PriceOf(one.job)) continue;
    const Seconds other = EstimateRuns(one, run).front().time;
    if (other >= time) continue;
    const int64_t nodes = one.result.ranked.front().nodes;
    passed += fmt::format("{}{}, {} node{}, in {}", passed.empty() ? "" : "; ",
                          one.job.request.topology.name, nodes, nodes == 1 ? "" : "s", Days(other));
  }
  return passed.empty() ? ""
                        : fmt::format(
                              "Faster than the best, but excluded: {}. No price is known, so the "
                              "budget cannot be checked (--node-price)",
                              passed);
}

std::string ComparisonText(const std::vector<Compared>& all, const cli::LongRun& run) {
  const bool long_run = run.conditions.tokens > 0;
  std::vector<Column> columns = {{"", true},
                                 {"topology"},
                                 {"nodes", true},
                                 {"layout"},
                                 {"step time\n(80 % interval)"},
                                 {"tokens/s", true},
                                 {"memory", true},
                                 {"USD per\n1e9 tokens", true}};
  if (long_run) {
    columns.push_back({"days\n(80 % interval)"});
    columns.push_back({"cost\n(80 % interval)"});
  }
  std::vector<std::optional<RunEstimate>> runs(all.size());
  bool input_bound = false;
  for (std::size_t i = 0; long_run && i < all.size(); ++i) {
    if (!all[i].result.feasible()) continue;
    runs[i] = EstimateRuns(all[i], run).front();
    input_bound = input_bound || runs[i]->input.bound();
  }
  const bool limited = run.deadline || run.budget || input_bound;
  if (limited) columns.push_back({""});
  Table table(columns);
  std::size_t number = 0;
  for (const std::size_t i : OrderOf(all, run)) {
    const Compared& one = all[i];
    if (!one.result.feasible()) {
      table.Row({"-", one.job.request.topology.name, "", "nothing fits"});
      continue;
    }
    const Candidate& best = one.result.ranked.front();
    const Strategy& layout = best.strategy;
    std::vector<std::string> cells = {
        std::to_string(++number),
        one.job.request.topology.name,
        std::to_string(best.nodes),
        fmt::format("tp {} pp {} dp {}", layout.tp, layout.pp, layout.data_parallel()),
        TimeWithInterval(best.time),
        Scaled(best.tokens_per_second),
        best.memory ? fmt::format("{:.0f} %", 100 * (best.memory->total / best.memory->capacity))
                    : "-",
        best.price_per_billion_tokens ? ThreeDigits(best.price_per_billion_tokens->value) : "-"};
    if (runs[i]) {
      cells.push_back(DaysWithInterval(*runs[i]));
      cells.push_back(PriceOf(one.job) ? MoneyWithInterval(*runs[i]) : "-");
      if (limited) cells.push_back(AgainstLimits(*runs[i], best.nodes, QuoteOf(one.job), run));
    }
    table.Row(std::move(cells));
  }
  std::set<std::string> topologies;
  for (const Compared& one : all) topologies.insert(one.job.request.topology.name);
  const std::string of =
      topologies.size() == all.size() ? fmt::format("on each of {} topologies", all.size())
      : topologies.size() == 1        ? fmt::format("at each of {} node counts", all.size())
                               : fmt::format("on each of {} topologies at each of {} node counts",
                                             topologies.size(), all.size() / topologies.size());
  const std::string note =
      input_bound ? "  INPUT-BOUND: days and cost count the waits for input, the other columns do "
                    "not.\n"
                  : "";
  const std::string passed = PassedOverWords(all, run);
  return fmt::format("The best layout {}\n", of) + table.Text() + note +
         (passed.empty() ? "" : fmt::format("  {}.\n", Fold(passed, 2))) +
         "\nThe best of them in full\n\n";
}

}  // namespace orrery::report
