// SPDX-License-Identifier: Apache-2.0
// The text of `plan provision`.
#include "model/program/plan/provision_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "model/arch/data_root.h"
#include "model/arch/parameters.h"
#include "model/base/text.h"
#include "model/program/common/names.h"
#include "model/program/common/table.h"

namespace orrery::report {
namespace {

constexpr double kDay = 86400;
constexpr std::size_t kMostRows = 14;    // of the frontier
constexpr std::size_t kMostLosers = 12;  // offers that are not on it

const Row& RowAt(const ProvisionAnswer& answer, std::size_t i) { return answer.result->rows[i]; }
const Quote& QuoteOf(const ProvisionAnswer& answer, const Row& row) {
  return (*answer.quotes)[row.quote];
}

std::string Nodes(const Row& row) {
  std::string text = fmt::format("{} node{}", row.nodes, row.nodes == 1 ? "" : "s");
  if (row.run.spares > 0)
    text += fmt::format(" + {} spare{}", row.run.spares, row.run.spares == 1 ? "" : "s");
  return text;
}

std::string Where(const ProvisionAnswer& answer, const Row& row) {
  return fmt::format("{}, {}", QuoteOf(answer, row).Name(), Nodes(row));
}

std::string Limits(const cli::LongRun& run) {
  std::string text;
  if (run.deadline) text += fmt::format(", within {}", Days(*run.deadline));
  if (run.budget) text += fmt::format(", at most {}", Money(*run.budget));
  return text;
}

// What most clusters compute in, and which do not: "bf16 (--precision), fp16 on aws-p3-16xl".
std::string Precisions(const ProvisionAnswer& answer) {
  std::map<Precision, std::vector<std::string>> clusters;
  for (const Site& site : *answer.sites)
    clusters[site.request.work.precision].push_back(site.request.topology.name);
  const auto most =
      std::ranges::max_element(clusters, {}, [](const auto& one) { return one.second.size(); });
  std::string text = fmt::format("{} (--precision)", report::Name(most->first));
  for (const auto& [precision, names] : clusters) {
    if (precision != most->first)
      text += fmt::format(", {} on {}", report::Name(precision), fmt::join(names, ", "));
  }
  return text;
}

std::string Header(const ProvisionAnswer& answer) {
  const double tokens = answer.run->conditions.tokens;
  const Job& job = *answer.job;
  std::string text =
      fmt::format("{} ({} parameters), {} tokens{}\n", job.model.spec.name,
                  Count(static_cast<double>(job.parameters)), Count(tokens), Limits(*answer.run));
  const auto line = [&](const char* label, const std::string& words) {
    text += fmt::format("  {:<12}{}\n", label, Fold(words, 14));
  };
  const double per_parameter = tokens / static_cast<double>(job.parameters);
  line("tokens", answer.tokens_by_rule
                     ? "20 per parameter, the rule of arXiv:2203.15556 (--tokens)"
                     : fmt::format("{} per parameter", ThreeDigits(per_parameter)));
  std::string decided;
  for (const Decision& decision : job.decisions) {
    // Clusters and batches are this command's own.
    if (decision.flag == "--topology" || decision.flag == "--nodes" ||
        decision.flag == "--global-batch" || decision.flag == "--framework" ||
        decision.flag == "--attention")
      continue;
    decided += decided.empty() ? "" : ", ";
    if (decision.flag == "--precision") {
      decided += "precision " + Precisions(answer);
      continue;
    }
    decided += fmt::format("{} ({})", decision.what, decision.flag);
  }
  if (!decided.empty()) line("by default", decided);
  if (answer.range && !answer.batch_given) {
    line("batch", fmt::format("searched from {} to {} tokens per step, what published runs of so "
                              "many tokens used (--global-batch); {}",
                              Scaled(answer.range->least), Scaled(answer.range->most),
                              answer.batch_facts.source));
  }
  return text;
}

std::string AnswerLine(const ProvisionAnswer& answer, const std::string& label, const Row& row) {
  std::string words = fmt::format("{}: {}, {}", Where(answer, row), DaysWithInterval(row.run),
                                  MoneyWithInterval(row.run));
  if (QuoteOf(answer, row).price.kind == PriceKind::kSpot) words += ", if the capacity stays";
  if (answer.run->deadline)
    words += fmt::format("; {:.0f} % likely within {}",
                         100 * row.run.ProbabilityWithin(*answer.run->deadline),
                         Days(*answer.run->deadline));
  return fmt::format("{}\n  {}\n", label, Fold(words, 2));
}

// The cheapest row that is nearly certain to be in time, where the cheapest of all is not.
std::string Safer(const ProvisionAnswer& answer) {
  constexpr double kSure = 0.95;
  const Provisioned& result = *answer.result;
  for (const std::size_t i : result.frontier) {
    const Row& row = RowAt(answer, i);
    if (row.run.ProbabilityWithin(*answer.run->deadline) < kSure) continue;
    if (i == *result.cheapest) return "";
    return AnswerLine(answer, fmt::format("Cheapest that is {:.0f} % likely", 100 * kSure), row);
  }
  return "";
}

// What would have to give way, where the limits cannot be kept.
std::string Refusals(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  const cli::LongRun& run = *answer.run;
  std::string text;
  if (!result.cheapest) {
    text += AnswerLine(
        answer, fmt::format("None is done within {}. The fastest of all", Days(*run.deadline)),
        RowAt(answer, result.frontier.back()));
  }
  if (!result.fastest) {
    text += AnswerLine(
        answer, fmt::format("None costs at most {}. The cheapest of all", Money(*run.budget)),
        RowAt(answer, result.frontier.front()));
  }
  if (result.cheapest && result.fastest && !result.feasible) {
    text += fmt::format("Nothing keeps both limits: a budget of {} would do, or a deadline of {}\n",
                        Money(RowAt(answer, *result.cheapest).run.cost),
                        Days(RowAt(answer, *result.fastest).run.time));
  }
  return text;
}

std::string Answers(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  const cli::LongRun& run = *answer.run;
  std::string text = "\n" + Refusals(answer);
  // Without a limit of its own the other row was named as a refusal already.
  if (result.cheapest && (result.fastest || run.deadline)) {
    text += AnswerLine(
        answer, run.deadline ? fmt::format("Cheapest within {}", Days(*run.deadline)) : "Cheapest",
        RowAt(answer, *result.cheapest));
    if (run.deadline) text += Safer(answer);
  }
  if (result.fastest == result.cheapest) {
    if (result.fastest)
      text += fmt::format("  also the fastest{}\n",
                          run.deadline || run.budget ? " within the limits" : "");
  } else if (result.fastest && (result.cheapest || run.budget)) {
    text += AnswerLine(
        answer, run.budget ? fmt::format("Fastest within {}", Money(*run.budget)) : "Fastest",
        RowAt(answer, *result.fastest));
  }
  return text;
}

std::string PerDaySooner(const Row& row, const Row& cheaper) {
  const double days = (cheaper.run.time - row.run.time).value / kDay;
  return Money(Dollars((row.run.cost - cheaper.run.cost).value / days));
}

std::vector<std::string> FrontierCells(const ProvisionAnswer& answer, const Row& row) {
  const Strategy& layout = row.candidate.strategy;
  return {QuoteOf(answer, row).Name(),
          row.run.spares > 0 ? fmt::format("{} + {}", row.nodes, row.run.spares)
                             : std::to_string(row.nodes),
          fmt::format("{} x {} x {}", layout.tp, layout.pp, layout.data_parallel()),
          Scaled(row.candidate.tokens),
          Percent(row.run.goodput),
          DaysWithInterval(row.run),
          MoneyWithInterval(row.run),
          row.run.energy_kwh ? ThreeDigits(*row.run.energy_kwh / 1000) : "-"};
}

bool AnyTie(const ProvisionAnswer& answer) {
  const auto tied = std::ranges::count_if(answer.result->frontier,
                                          [&](std::size_t i) { return RowAt(answer, i).tie; });
  return tied > 1;  // the best is one of them
}

std::string FrontierNotes(const ProvisionAnswer& answer) {
  const std::vector<std::size_t>& frontier = answer.result->frontier;
  std::string notes = "a day sooner: what each day costs against the row above. ";
  if (AnyTie(answer))
    notes += fmt::format(
        "=: cost intervals overlap with that of the cheapest{}: treat them as "
        "tied. ",
        answer.run->deadline ? " in time" : "");
  const auto simulated = static_cast<std::size_t>(std::ranges::count_if(
      frontier, [&](std::size_t i) { return RowAt(answer, i).candidate.simulated.has_value(); }));
  if (simulated == frontier.size())
    return notes + "Step times are simulated op by op, as in `plan predict`.";
  return notes + fmt::format(
                     "Step times: {} of {} rows are simulated, the others in closed form "
                     "(too large, or the effort was used up).",
                     simulated, frontier.size());
}

std::string FrontierTable(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  Table table({{"", true},
               {"offer"},
               {"nodes\n+ spares", true},
               {"tp x pp\nx dp"},
               {"batch,\ntokens", true},
               {"good-\nput", true},
               {"days\n(80 % interval)"},
               {"cost\n(80 % interval)"},
               {"MWh", true},
               {"a day\nsooner", true}});
  const auto chosen = std::ranges::find(result.frontier, result.cheapest.value_or(0));
  const std::vector<std::size_t> shown =
      ShownRows(result.frontier.size(), answer.all ? result.frontier.size() : kMostRows,
                static_cast<std::size_t>(chosen - result.frontier.begin()));
  const Row* above = nullptr;
  for (const std::size_t at : shown) {
    const Row& row = RowAt(answer, result.frontier[at]);
    std::vector<std::string> cells = FrontierCells(answer, row);
    const char* mark = row.tie && AnyTie(answer) ? "= " : "";
    cells.insert(cells.begin(), fmt::format("{}{}", mark, at + 1));
    cells.push_back(above == nullptr ? "" : PerDaySooner(row, *above));
    table.Row(std::move(cells));
    above = &row;
  }
  std::string text = "\nDays against dollars: no offer at any node count is better in both\n";
  text += table.Text();
  if (shown.size() < result.frontier.size())
    text +=
        fmt::format("  {} of {} rows (--all shows them)\n", shown.size(), result.frontier.size());
  return text + fmt::format("  {}\n", Fold(FrontierNotes(answer), 2));
}

std::string Details(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  const std::size_t index = result.cheapest.value_or(result.frontier.back());
  const Row& row = RowAt(answer, index);
  std::string text = fmt::format("\nHow {} runs\n", Where(answer, row));
  const auto bullet = [&](const std::string& words) {
    text += fmt::format("  - {}\n", Fold(words, 4));
  };
  bullet(fmt::format("layout: {}; {} per step, {} steps",
                     DescribeLayout(row.candidate.strategy, row.candidate.micro_batches),
                     Format(Seconds(row.run.step_seconds)), row.run.steps));
  const Quote& quote = QuoteOf(answer, row);
  const Conditions& conditions = answer.run->conditions;
  text += RunDetails(row.run, conditions, row.candidate.tokens_per_second,
                     quote.price.kind == PriceKind::kSpot
                         ? quote.offer.spot_rate.value_or(conditions.spot.rate.value)
                         : 0);
  for (const auto& [of, ratio] : answer.margin_costs) {
    if (of != index) continue;
    const double share = answer.job->profiles.framework.memory_nearly_full;
    bullet(ratio > 1.0005
               ? fmt::format("memory: {:.0f} % stay free on a run of weeks; that costs {} of step "
                             "time (--memory-margin)",
                             100 * (1 - share), Percent(ratio - 1))
               : fmt::format("memory: {:.0f} % stay free, at no cost: {} of {} in use",
                             100 * (1 - share), Format(row.candidate.memory->total),
                             Format(row.candidate.memory->capacity)));
  }
  for (const auto& [of, replay] : answer.replays) {
    if (of != index) continue;
    bullet(
        fmt::format("replayed {} times with random failures: {} in the mean, standard deviation "
                    "{}; the formula says {} and {}",
                    replay.runs, Days(replay.mean), Format(replay.deviation), Days(row.run.time),
                    Format(row.run.luck)));
  }
  return text;
}

// Cheapest evaluated row of an offer within the deadline; null: none was.
const Row* BestOf(const ProvisionAnswer& answer, std::size_t quote) {
  const auto& deadline = answer.run->deadline;
  for (const Row& row : answer.result->rows) {  // by cost
    if (row.quote == quote && (!deadline || row.run.time <= *deadline)) return &row;
  }
  return nullptr;
}

// Why an offer is not on the frontier.
std::string WhyNot(const ProvisionAnswer& answer, std::size_t quote) {
  const Provisioned& result = *answer.result;
  const cli::LongRun& run = *answer.run;
  if (!result.no_layout[quote].empty()) return result.no_layout[quote];
  const Row* best = BestOf(answer, quote);
  const Row& cheapest = RowAt(answer, result.cheapest.value_or(result.frontier.front()));
  const QuoteBounds& bounds = result.bounds[quote];
  if (best == nullptr && run.deadline && bounds.least_time > *run.deadline)
    return fmt::format("too slow: at least {}", Days(bounds.least_time));
  const double least = best != nullptr ? best->run.cost.value : bounds.least_cost.value;
  std::string text = best != nullptr ? fmt::format("{}: {} in {}", Money(Dollars(least)),
                                                   Nodes(*best), Days(best->run.time))
                                     : fmt::format("at least {}", Money(Dollars(least)));
  if (run.budget && least > run.budget->value) return text + ", over the budget";
  const double ratio = least / cheapest.run.cost.value;
  if (ratio > 1.005) return text + fmt::format(", {:.2f} x the cheapest", ratio);
  return text + ", but each node count is beaten in days and dollars";
}

std::string Losers(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  std::set<std::size_t> winners;
  for (const std::size_t i : result.frontier) winners.insert(RowAt(answer, i).quote);
  std::vector<std::pair<double, std::size_t>> losers;
  for (std::size_t q = 0; q < answer.quotes->size(); ++q) {
    if (winners.contains(q)) continue;
    const Row* best = BestOf(answer, q);
    losers.emplace_back(best != nullptr ? best->run.cost.value : result.bounds[q].least_cost.value,
                        q);
  }
  if (losers.empty()) return "";
  // Those that come nearest first.
  const auto& deadline = answer.run->deadline;
  std::ranges::stable_sort(losers, {}, [&](const auto& loser) {
    const std::size_t q = loser.second;
    const bool slow =
        deadline && BestOf(answer, q) == nullptr && result.bounds[q].least_time > *deadline;
    return std::pair(!result.no_layout[q].empty() ? 2 : slow ? 1 : 0, loser.first);
  });
  std::string text = fmt::format("\nWhy the other offers lose (their cheapest run{})\n",
                                 deadline ? " within the deadline" : "");
  Table table({{"offer"}, {"a node", true}, {""}});
  const std::size_t most = answer.all ? losers.size() : kMostLosers;
  for (std::size_t i = 0; i < std::min(most, losers.size()); ++i) {
    const Quote& quote = (*answer.quotes)[losers[i].second];
    table.Row({quote.Name(), Format(quote.price.price), WhyNot(answer, losers[i].second)});
  }
  text += table.Text(2, false);
  if (losers.size() > most)
    text += fmt::format("  and {} more (--all, --json)\n", losers.size() - most);
  text += fmt::format(
      "  {}\n",
      Fold(fmt::format(
               "Looked for layouts on {} of {} (cluster, node count) pairs; bounds on the step "
               "time rule the others out.",
               result.evaluated, result.units),
           2));
  return text;
}

std::string LeftOut(const ProvisionAnswer& answer) {
  if (answer.left_out.empty()) return "";
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [offer, why] : answer.left_out) by_reason[why].push_back(offer);
  std::string text = "\nNot considered\n";
  for (const auto& [why, offers] : by_reason)
    text += fmt::format("  - {}\n", Fold(fmt::format("{}: {}", fmt::join(offers, ", "), why), 4));
  return text;
}

const char* AgeMark(const ProvisionAnswer& answer, int64_t days) {
  if (days < 0) return ": a day TO COME, is the date right?";
  const double most = answer.run->conditions.run.old_price.value;
  return static_cast<double>(days) * kDay > most ? ": OLD, ask again" : "";
}

std::string Prices(const ProvisionAnswer& answer) {
  std::string text = "\nPrices behind the rows above\n";
  std::set<std::size_t> seen;
  for (const std::size_t i : answer.result->frontier) {
    const Row& row = RowAt(answer, i);
    if (!seen.insert(row.quote).second) continue;
    const Quote& quote = QuoteOf(answer, row);
    const OfferPrice& price = quote.price;
    const int64_t age = answer.run->today - price.date.DayNumber();
    const bool whole = price.date.day > 0;
    std::string words = fmt::format("{}: {} per node, {}, {}, {} ({}{} days old{}); {}",
                                    quote.Name(), Format(price.price), NameOf(price.kind),
                                    price.region, price.date.Text(), whole ? "" : "up to ",
                                    std::max<int64_t>(0, age), AgeMark(answer, age), price.source);
    if (price.kind == PriceKind::kSpot) words += "; if the capacity stays";
    if (price.term.value > 0)
      words += fmt::format("; billed for {:.0f} d at least", price.term.value / kDay);
    if (price.quantum.value > 3600)
      words += fmt::format("; billed in steps of {}", Days(price.quantum));
    if (!quote.offer.stand_in.empty())
      words += fmt::format("; predicted as {}: {}", quote.offer.topology, quote.offer.stand_in);
    if (!quote.offer.note.empty()) words += "; " + quote.offer.note;
    if (IsUserFile(quote.offer.file)) words += "; user file " + ShownPath(quote.offer.file);
    text += fmt::format("  - {}\n", Fold(words, 4));
  }
  return text;
}

std::string Advice(const ProvisionAnswer& answer) {
  std::string text;
  const auto bullet = [&](const std::string& words) {
    text += fmt::format("  - {}\n", Fold(words, 4));
  };
  const Row& row = RowAt(answer, answer.result->cheapest.value_or(answer.result->frontier.back()));
  if (answer.range && answer.batch_given) {
    if (const std::string large =
            LargeBatch(row.candidate.tokens, answer.run->conditions.tokens, answer.batch_facts);
        !large.empty())
      bullet(large);
  }
  if (answer.range) bullet("batch: " + answer.batch_facts.note);
  const auto outside = row.candidate.outside;
  if (!outside.empty())
    bullet(fmt::format("extrapolated, its interval is wider: {}", fmt::join(outside, "; ")));
  return text.empty() ? "" : "\nAdvice\n" + text;
}

// Nothing is on the frontier: the offers' one reason, or all.
std::string NoOffer(const ProvisionAnswer& answer) {
  const std::vector<std::string>& why = answer.result->no_layout;
  const auto all = [&](const char* begin) {
    return std::ranges::all_of(why, [&](const std::string& one) { return one.starts_with(begin); });
  };
  if (all("none of"))
    return "\nNo offer can run this: none is sold at these node counts (--nodes).\n";
  if (all("does not finish"))
    return "\nNo offer can run this: failures leave less than 1 % of the time (fewer --nodes, "
           "--recovery\nelastic, a faster --storage).\n";
  return "\nNo offer can run this: nothing fits at any node count (--nodes, --memory-margin, other "
         "--offers).\n";
}

}  // namespace

std::string ProvisionText(const ProvisionAnswer& answer) {
  if (answer.result->frontier.empty()) {
    return Header(answer) + NoOffer(answer) + Losers(answer) + LeftOut(answer);
  }
  return Header(answer) + Answers(answer) + FrontierTable(answer) + Details(answer) +
         Losers(answer) + LeftOut(answer) + Prices(answer) + Advice(answer);
}

}  // namespace orrery::report
