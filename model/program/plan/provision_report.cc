// SPDX-License-Identifier: Apache-2.0
// The text of `plan provision`.
#include "model/program/plan/provision_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "model/arch/parameters.h"
#include "model/base/text.h"
#include "model/plan/lower/balance.h"
#include "model/program/common/names.h"
#include "model/program/common/table.h"
#include "model/report/short_number.h"

namespace orrery::report {
namespace {

constexpr std::size_t kMostRows = 18;  // of the frontier
constexpr std::size_t kNearest = 2;    // rows shown beyond each limit
constexpr std::size_t kMisses = 6;     // where no row keeps it

const Row& RowAt(const ProvisionAnswer& answer, std::size_t i) { return answer.result->rows[i]; }
const Quote& QuoteOf(const ProvisionAnswer& answer, const Row& row) {
  return (*answer.quotes)[row.quote];
}

std::string Where(const ProvisionAnswer& answer, const Row& row) {
  return fmt::format("{}, {}", QuoteOf(answer, row).Name(), NodesWords(row));
}

std::string Limits(const cli::LongRun& run) {
  std::string text;
  if (run.deadline) text += fmt::format(", within {}", GivenDays(*run.deadline));
  if (run.budget) text += fmt::format(", at most {}", GivenMoney(*run.budget));
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
  const Job& job = answer.TheJob();
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
    if (SearchedByProvision(decision) || decision.flag == "--framework" ||
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
  if (const std::string words = BatchWords(answer); !words.empty()) line("batch", words);
  return text;
}

// Both limits are kept in the mean; its time and its bill scatter together.
std::string Likelihoods(const ProvisionAnswer& answer, const Row& row) {
  const cli::LongRun& run = *answer.run;
  std::string words;
  const auto add = [&](double probability, const std::string& limit) {
    words += fmt::format("{}{} % {}within {}", words.empty() ? "; " : ", ",
                         WholePercent(probability), words.empty() ? "likely " : "", limit);
  };
  if (run.deadline) add(row.run.ProbabilityWithin(*run.deadline), GivenDays(*run.deadline));
  if (run.budget) add(WithinBudget(answer, row), GivenMoney(*run.budget));
  return words;
}

std::string AnswerWords(const ProvisionAnswer& answer, const Row& row) {
  std::string words = fmt::format("{}: {}, {}", Where(answer, row), DaysWithInterval(row.run),
                                  MoneyWithInterval(row.run));
  if (QuoteOf(answer, row).price.kind == PriceKind::kSpot) words += ", if the capacity stays";
  words += Likelihoods(answer, row);
  if (row.run.input.bound()) words += "; INPUT-BOUND";
  if (answer.far_below.contains(row.quote)) words += "; its PRICE is FAR BELOW all others (Advice)";
  return words;
}

std::string AnswerLine(const ProvisionAnswer& answer, const std::string& label, const Row& row) {
  return fmt::format("{}\n  {}\n", label, Fold(AnswerWords(answer, row), 2));
}

// What would do in the place of a limit that nothing keeps, and what the other limit makes of it.
std::string DeadlineThatDoes(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  const RunEstimate& fastest = RowAt(answer, result.frontier.back()).run;
  std::string words = fmt::format("deadline: {} would do, at {}", Days(EnoughDays(fastest.time)),
                                  Money(EnoughMoney(fastest.cost)));
  if (!answer.run->budget)
    return words + "; no budget buys a faster run of these offers at these node counts (--nodes)";
  if (!result.fastest) return words + "; with this budget none would";
  return fmt::format("{}; with this budget {}", words,
                     Days(EnoughDays(RowAt(answer, *result.fastest).run.time)));
}

std::string BudgetThatDoes(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  const RunEstimate& cheapest = RowAt(answer, result.frontier.front()).run;
  std::string words = fmt::format("budget: {} would do, in {}", Money(EnoughMoney(cheapest.cost)),
                                  Days(EnoughDays(cheapest.time)));
  if (!answer.run->deadline)
    return words + "; a run of these offers is no cheaper for taking longer";
  if (!result.cheapest) return words + "; with this deadline none would";
  return fmt::format("{}; with this deadline {}", words,
                     Money(EnoughMoney(RowAt(answer, *result.cheapest).run.cost)));
}

// What would have to give way, where the limits cannot be kept.
std::string Refusals(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  const cli::LongRun& run = *answer.run;
  std::string text, would_do;
  if (!result.cheapest) {
    const std::string setup = result.setup_too_long
                                  ? fmt::format(": the time before the first step is {} (--setup)",
                                                Days(run.conditions.run.setup))
                                  : "";
    text += AnswerLine(answer,
                       fmt::format("None is done within {}{}. The fastest of all",
                                   GivenDays(*run.deadline), setup),
                       RowAt(answer, result.frontier.back()));
    would_do += fmt::format("  {}\n", Fold(DeadlineThatDoes(answer), 2));
  }
  if (!result.fastest) {
    text += AnswerLine(
        answer, fmt::format("None costs at most {}. The cheapest of all", GivenMoney(*run.budget)),
        RowAt(answer, result.frontier.front()));
    would_do += fmt::format("  {}\n", Fold(BudgetThatDoes(answer), 2));
  }
  if (!would_do.empty()) text += "What would do, rounded up\n" + would_do;
  if (result.cheapest && result.fastest && !result.feasible) {
    text += fmt::format(
        "Nothing keeps both limits: a budget of {} would do, or a deadline of {} (rounded up)\n",
        Money(EnoughMoney(RowAt(answer, *result.cheapest).run.cost)),
        Days(EnoughDays(RowAt(answer, *result.fastest).run.time)));
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
        answer,
        run.deadline ? fmt::format("Cheapest within {}", GivenDays(*run.deadline)) : "Cheapest",
        RowAt(answer, *result.cheapest));
    if (result.fastest == result.cheapest)
      text += fmt::format("  also the fastest{}\n",
                          run.deadline || run.budget ? " within the limits" : "");
    if (result.sure && result.sure != result.cheapest) {
      const Row& row = RowAt(answer, *result.sure);
      text += AnswerLine(
          answer,
          fmt::format("Cheapest that is {:.0f} % likely in time{}", 100 * kSure,
                      run.budget && row.run.cost > *run.budget ? ", over the budget" : ""),
          row);
    }
  }
  if (result.fastest != result.cheapest && result.fastest && (result.cheapest || run.budget)) {
    text += AnswerLine(
        answer, run.budget ? fmt::format("Fastest within {}", GivenMoney(*run.budget)) : "Fastest",
        RowAt(answer, *result.fastest));
  }
  if (result.fastest && result.fastest_sure && result.fastest_sure != result.fastest) {
    const Row& row = RowAt(answer, *result.fastest_sure);
    text +=
        AnswerLine(answer,
                   fmt::format("Fastest that is {:.0f} % likely within the budget{}", 100 * kSure,
                               run.deadline && row.run.time > *run.deadline ? ", too late" : ""),
                   row);
  }
  return text;
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

}  // namespace

Beyond BeyondLimits(const ProvisionAnswer& answer, const Row& row) {
  const cli::LongRun& run = *answer.run;
  Beyond beyond{run.deadline && row.run.time > *run.deadline,
                run.budget && row.run.cost > *run.budget, ""};
  if (beyond.late) beyond.words = "too late";
  if (beyond.dear) beyond.words += beyond.late ? ", over the budget" : "over the budget";
  return beyond;
}

double WithinBudget(const ProvisionAnswer& answer, const Row& row) {
  return row.run.ProbabilityWithin((*answer.quotes)[row.quote], row.nodes + row.run.spares,
                                   *answer.run->budget);
}

std::string FrontierNotes(const ProvisionAnswer& answer) {
  const std::vector<std::size_t>& frontier = answer.result->frontier;
  const EnergyFacts& energy = answer.run->conditions.energy;
  std::string notes = fmt::format(
      "a day sooner: what each day costs against the row of the next lower number, shown or not. "
      "MWh: rated power of "
      "the GPUs x {} for their nodes x {} for cooling. ",
      ThreeDigits(energy.node_factor), ThreeDigits(energy.pue));
  if (!answer.run->conditions.spares)
    notes += fmt::format(
        "spares: each number from none to what covers {} of the failures in repair was compared "
        "(--spares). ",
        Percent(1 - answer.run->conditions.run.shortage));
  if (AnyTie(answer))
    notes += fmt::format(
        "=: cost intervals overlap with that of the cheapest{}: treat them as "
        "tied. ",
        answer.run->deadline ? " in time" : "");
  const auto simulated = static_cast<std::size_t>(std::ranges::count_if(
      frontier, [&](std::size_t i) { return RowAt(answer, i).candidate.simulated.has_value(); }));
  if (simulated == frontier.size())
    return notes +
           (answer.run->deadline || answer.run->budget
                ? "Step times are simulated op by op: where the limits are kept, of the layout "
                  "that "
                  "is the fastest so, else of the one that is best in closed form."
                : "Step times are simulated op by op, of the layout that is the fastest so.");
  return notes + fmt::format(
                     "Step times: {} of {} rows are simulated, the others in closed form "
                     "(too large, or the effort was used up).",
                     simulated, frontier.size());
}

namespace {

// Whether the words above the table are of the row at this place in the frontier.
bool Named(const ProvisionAnswer& answer, std::size_t place) {
  const Provisioned& result = *answer.result;
  const std::size_t i = result.frontier[place];
  return i == result.cheapest || i == result.fastest || i == result.sure ||
         i == result.fastest_sure || (!result.cheapest && place + 1 == result.frontier.size()) ||
         (!result.fastest && place == 0);
}

// Places in the frontier that keep the limits, the nearest beyond each, and what the answer names.
std::vector<std::size_t> WithinReach(const ProvisionAnswer& answer) {
  const std::vector<std::size_t>& frontier = answer.result->frontier;
  std::vector<std::size_t> places;
  // Ever dearer and faster: the last that are late and the first that are over the budget are the nearest.
  const auto late = static_cast<std::size_t>(std::ranges::count_if(
      frontier, [&](std::size_t i) { return BeyondLimits(answer, RowAt(answer, i)).late; }));
  const auto dear = static_cast<std::size_t>(std::ranges::count_if(
      frontier, [&](std::size_t i) { return BeyondLimits(answer, RowAt(answer, i)).dear; }));
  const std::size_t beyond = answer.result->feasible ? kNearest : kMisses;
  for (std::size_t at = 0; at < frontier.size(); ++at) {
    const bool too_late = at + beyond < late;
    const bool too_dear = at >= frontier.size() - dear + beyond;
    if (answer.all || Named(answer, at) || (!too_late && !too_dear)) places.push_back(at);
  }
  return places;
}

}  // namespace

std::vector<std::size_t> ShownPlaces(const ProvisionAnswer& answer) {
  const std::vector<std::size_t> reach = WithinReach(answer);
  std::set<std::size_t> shown;
  for (const std::size_t i :
       ShownRows(reach.size(), answer.all ? reach.size() : kMostRows, reach.size()))
    shown.insert(reach[i]);
  std::ranges::copy_if(reach, std::inserter(shown, shown.end()),
                       [&](std::size_t at) { return Named(answer, at); });
  return {shown.begin(), shown.end()};
}

namespace {

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
               {"a day\nsooner", true},
               {""}});
  const std::vector<std::size_t> reach = WithinReach(answer), shown = ShownPlaces(answer);
  for (const std::size_t at : shown) {
    const Row& row = RowAt(answer, result.frontier[at]);
    std::vector<std::string> cells = FrontierCells(answer, row);
    const char* mark = row.tie && AnyTie(answer) ? "= " : "";
    cells.insert(cells.begin(), fmt::format("{}{}", mark, at + 1));
    const std::optional<Dollars> sooner = PerDaySooner(result, at);
    cells.push_back(sooner ? Money(*sooner) : "");
    cells.push_back(BeyondLimits(answer, row).words);
    table.Row(std::move(cells));
  }
  std::string text =
      "\nDays against dollars: no offer at any number of nodes and spares is better in both\n";
  text += table.Text();
  const std::size_t further = result.frontier.size() - reach.size();
  if (shown.size() < result.frontier.size())
    text += fmt::format(
        "  {} of {} rows{} (--all shows them)\n", shown.size(), result.frontier.size(),
        further == 0 ? ""
                     : fmt::format("; {} of the others break{} the limits by more than these",
                                   further, further == 1 ? "s" : ""));
  return text + fmt::format("  {}\n", Fold(FrontierNotes(answer), 2));
}

std::string SoftwareWords(const Job& job) {
  std::string facts;
  for (const ReleaseFact& fact : job.facts) facts += ", " + fact.what;
  return fmt::format("software: framework {}, {} attention{} (--framework, --attention, --fact)",
                     FrameworkWords(job.request.framework),
                     job.request.flash_attention ? "flash" : "standard", facts);
}

std::string Details(const ProvisionAnswer& answer) {
  const std::size_t index = answer.Told();
  const Row& row = RowAt(answer, index);
  std::string text = fmt::format("\nHow {} runs\n", Where(answer, row));
  const auto bullet = [&](const std::string& words) {
    text += fmt::format("  - {}\n", Fold(words, 4));
  };
  bullet(fmt::format("layout: {}",
                     DescribeLayout(row.candidate.strategy, row.candidate.micro_batches)));
  if (!row.candidate.shares.empty())
    bullet("layers by stage: " + orrery::LayoutWords(row.candidate.shares));
  bullet(SoftwareWords(answer.TheJob()));
  text += Bullets(RunLines(row.run, answer.run->conditions));
  for (const auto& [of, ratio] : answer.margin_costs) {
    if (of != index) continue;
    bullet(ratio > 1.0005
               ? fmt::format("memory: {:.0f} % stay free on a run of weeks; training takes {} "
                             "for it (--memory-margin)",
                             100 * answer.memory_margin, LongerWords(ratio))
               : fmt::format("memory: {:.0f} % stay free, at no cost: {} of {} in use",
                             100 * answer.memory_margin, Format(row.candidate.memory->total),
                             Format(row.candidate.memory->capacity)));
  }
  for (const auto& [of, replay] : answer.replays) {
    if (of != index) continue;
    bullet(
        fmt::format("replayed {} times with random failures: {} in the mean, standard deviation "
                    "{}; the formula says {} and {}",
                    replay.runs, Days(replay.mean), Days(replay.deviation), Days(row.run.time),
                    Days(row.run.luck)));
  }
  return text;
}

std::string Advice(const ProvisionAnswer& answer) {
  std::string text;
  for (const std::string& words : AdviceOf(answer)) text += fmt::format("  - {}\n", Fold(words, 4));
  return text.empty() ? "" : "\nAdvice\n" + text;
}

}  // namespace

std::size_t ProvisionAnswer::Told() const {
  return result->cheapest.value_or(result->frontier.back());
}

const Job& ProvisionAnswer::TheJob() const {
  return result->frontier.empty() ? jobs->front() : (*jobs)[result->rows[Told()].site];
}

bool SearchedByProvision(const Decision& decision) {
  return decision.flag == "--topology" || decision.flag == "--nodes" ||
         decision.flag == "--global-batch";
}

std::string NodesWords(const Row& row) {
  std::string text = fmt::format("{} node{}", row.nodes, row.nodes == 1 ? "" : "s");
  if (row.run.spares > 0)
    text += fmt::format(" + {} spare{}", row.run.spares, row.run.spares == 1 ? "" : "s");
  return text;
}

std::string ProvisionBrief(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  if (result.frontier.empty()) {
    std::string why = NoOffer(answer);
    const std::size_t first = why.find_first_not_of('\n');
    return first == std::string::npos ? "no offer can run this"
                                      : why.substr(first, why.find('\n', first) - first);
  }
  if (!result.cheapest)
    return "nothing is in time; fastest: " +
           AnswerWords(answer, RowAt(answer, result.frontier.back()));
  std::string text = result.fastest == result.cheapest ? "cheapest and fastest: " : "cheapest: ";
  text += AnswerWords(answer, RowAt(answer, *result.cheapest));
  if (result.fastest && result.fastest != result.cheapest)
    text += "; fastest: " + AnswerWords(answer, RowAt(answer, *result.fastest));
  return result.feasible ? text : "nothing keeps the limits; " + text;
}

std::string ProvisionText(const ProvisionAnswer& answer) {
  if (answer.result->frontier.empty()) {
    return Header(answer) + NoOffer(answer) + LosersText(answer) + LeftOutText(answer);
  }
  return Header(answer) + Answers(answer) + FrontierTable(answer) + Details(answer) +
         LosersText(answer) + LeftOutText(answer) + PricesText(answer) + Advice(answer);
}

}  // namespace orrery::report
