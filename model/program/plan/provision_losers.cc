// SPDX-License-Identifier: Apache-2.0
// Why offers are not on the frontier of `plan provision`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "model/base/text.h"
#include "model/program/common/table.h"
#include "model/program/plan/provision_report.h"
#include "model/provision/choices.h"

namespace orrery::report {
namespace {

constexpr std::size_t kMostLosers = 12;  // in the text
constexpr const char* kTied = ", tied";

// Cheapest row of an offer within the limits; null: there is none.
const Row* BestOf(const ProvisionAnswer& answer, std::size_t quote) {
  const cli::LongRun& run = *answer.run;
  for (const Row& row : answer.result->rows) {  // by cost
    if (row.quote == quote && run.Keeps(row.run, true)) return &row;
  }
  return nullptr;
}

// Why an offer is not on the frontier. How far those are from it that keep no limit is known as a bound alone: the
// search stops where the limits end.
struct Defeat {
  enum Kind { kBeaten, kBeyondLimits, kTooSlow, kNoLayout } kind;
  double dollars;  // of its cheapest run, or less: orders offers of one kind
  std::string why;
};

// A bound that rounds to the limit does not look as if it kept it.
std::string AtLeast(const std::string& bound, const std::string& limit, const char* name) {
  return fmt::format("at least {}{}", bound,
                     bound == limit ? fmt::format(", just beyond {}", name) : "");
}

Defeat DefeatOf(const ProvisionAnswer& answer, std::size_t quote) {
  const Provisioned& result = *answer.result;
  const cli::LongRun& run = *answer.run;
  const QuoteBounds& bounds = result.bounds[quote];
  const double least = bounds.least_cost.value;
  // What was looked for and not found, before what a bound says of it.
  if (!result.no_layout[quote].empty()) return {Defeat::kNoLayout, least, result.no_layout[quote]};
  if (bounds.known && run.deadline && bounds.least_time > *run.deadline)
    return {Defeat::kTooSlow, least,
            "too slow: " + AtLeast(Days(bounds.least_time), Days(*run.deadline), "the deadline")};
  const Row* best = BestOf(answer, quote);
  if (best == nullptr) {
    if (run.budget && bounds.least_cost > *run.budget)
      return {Defeat::kBeyondLimits, least,
              "over the budget: " +
                  AtLeast(Money(bounds.least_cost), Money(*run.budget), "the budget")};
    if (result.open[quote])
      return {Defeat::kBeyondLimits, least,
              fmt::format("not on the frontier, not looked at further: at least {}",
                          Money(bounds.least_cost))};
    const char* why = !run.budget     ? "too slow at each node count"
                      : !run.deadline ? "over the budget at each node count"
                                      : "too slow or over the budget at each node count";
    return {Defeat::kBeyondLimits, least, why};
  }
  const Row& cheapest = result.rows[result.cheapest.value_or(result.frontier.front())];
  const double ratio = best->run.cost.value / cheapest.run.cost.value;
  return {Defeat::kBeaten, best->run.cost.value,
          fmt::format("{}{}: {} in {}{}", result.open[quote] ? "at most " : "",
                      Money(best->run.cost), NodesWords(*best), Days(best->run.time),
                      ratio > 1.005
                          ? fmt::format(", {:.2f} x the cheapest{}", ratio, best->tie ? kTied : "")
                          : ", but each node count is beaten in days and dollars")};
}

// Those that come nearest first.
std::vector<std::pair<std::size_t, Defeat>> LosersOf(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  std::set<std::size_t> winners;
  for (const std::size_t i : result.frontier) winners.insert(result.rows[i].quote);
  std::vector<std::pair<std::size_t, Defeat>> losers;
  for (std::size_t q = 0; q < answer.quotes->size(); ++q) {
    if (!winners.contains(q)) losers.emplace_back(q, DefeatOf(answer, q));
  }
  std::ranges::stable_sort(losers, {}, [](const auto& loser) {
    return std::pair(loser.second.kind, loser.second.dollars);
  });
  return losers;
}

}  // namespace

std::string NoOffer(const ProvisionAnswer& answer) {
  const std::vector<std::string>& why = answer.result->no_layout;
  const auto all = [&](const char* begin) {
    return std::ranges::all_of(why, [&](const std::string& one) { return one.starts_with(begin); });
  };
  if (all("none of"))
    return "\nNo offer can run this: none is sold at these node counts (--nodes, --spares).\n";
  // One rule may keep out all layouts, whatever the sequences of a step.
  constexpr std::string_view kBecause = "is possible: ";
  const auto rule = [&](const std::string& one) {
    const std::size_t at = one.find(kBecause);
    return at == std::string::npos ? std::string() : one.substr(at + kBecause.size());
  };
  if (const std::string first = why.empty() ? "" : rule(why.front());
      !first.empty() && first.find("divide") == std::string::npos &&
      std::ranges::all_of(why, [&](const std::string& one) { return rule(one) == first; }))
    return fmt::format("\nNo offer can run this: {}.\n", first);
  if (all("no layout of"))
    return "\nNo offer can run this: the sequences of a step do not divide over the GPUs "
           "(--global-batch, --nodes).\n";
  if (all(kSlowStorage))
    return "\nNo offer can run this: loading a checkpoint from this file system takes longer than "
           "stops are apart\n(a faster --storage).\n";
  if (all("does not finish"))
    return "\nNo offer can run this: failures leave less than 1 % of the time (fewer --nodes, "
           "--recovery\nelastic, a faster --storage).\n";
  return "\nNo offer can run this: nothing fits at any node count (--nodes, --memory-margin, other "
         "--offers).\n";
}

std::string LosersText(const ProvisionAnswer& answer) {
  const auto losers = LosersOf(answer);
  if (losers.empty()) return "";
  const bool limits = answer.run->deadline || answer.run->budget;
  std::string text =
      fmt::format("\nWhy {} lose (their cheapest run{}, in closed form)\n",
                  answer.result->frontier.empty() ? "the offers" : "the other offers",
                  limits ? " within the limits" : "");
  Table table({{"offer"}, {"a node", true}, {""}});
  const std::size_t most = answer.all ? losers.size() : std::min(kMostLosers, losers.size());
  for (std::size_t i = 0; i < most; ++i) {
    const Quote& quote = (*answer.quotes)[losers[i].first];
    table.Row({quote.Name(), Format(quote.price.price), losers[i].second.why});
  }
  text += table.Text(2, false);
  if (std::ranges::any_of(std::span(losers).first(most),
                          [](const auto& loser) { return loser.second.why.ends_with(kTied); }))
    text += "  tied: the cost interval overlaps with that of the cheapest\n";
  if (losers.size() > most)
    text += fmt::format("  and {} more (--all, --json)\n", losers.size() - most);
  const Provisioned& result = *answer.result;
  if (std::ranges::count(result.open, true) > 0)
    text += fmt::format("  {}\n", Fold("at most, not looked at further: such an offer may have a "
                                       "cheaper run than that, but none "
                                       "that is on the frontier",
                                       2));
  if (result.units == 0) return text;
  const std::string looked =
      result.evaluated == result.units
          ? "Looked for layouts on every (cluster, node count) pair."
          : fmt::format(
                "Looked for layouts on {} of {} (cluster, node count) pairs; bounds on the "
                "step time {}.",
                result.evaluated, result.units,
                std::ranges::count(result.open, true) > 0 ? "keep the others off the frontier"
                                                          : "rule the others out");
  return text + fmt::format("  {}\n", Fold(looked, 2));
}

nlohmann::ordered_json LosersJson(const ProvisionAnswer& answer) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const auto& [quote, defeat] : LosersOf(answer)) {
    const Quote& of = (*answer.quotes)[quote];
    json.push_back(
        {{"offer", of.Name()}, {"price_usd_per_hour", of.price.price.value}, {"why", defeat.why}});
  }
  return json;
}

std::string BeyondRangeWords(const ProvisionAnswer& answer) {
  if (!answer.beyond_range) return "";
  const Row& beyond = *answer.beyond_range;
  const Row& row = answer.result->rows[answer.Told()];
  const auto& deadline = answer.run->deadline;
  const bool saves = deadline && row.run.time > *deadline && beyond.run.time <= *deadline;
  if (!saves && Days(beyond.run.time) == Days(row.run.time) &&
      Money(beyond.run.cost) == Money(row.run.cost))
    return "";  // nothing to see
  return fmt::format(
      "batch: {} tokens per step, {:.2g} % beyond the range, would take {} and {} instead of {} "
      "and {}{} (--global-batch {})",
      Scaled(beyond.candidate.tokens), 100 * (beyond.candidate.tokens / answer.range->most - 1),
      Days(beyond.run.time), Money(beyond.run.cost), Days(row.run.time), Money(row.run.cost),
      saves ? ", and keep the deadline" : "", beyond.candidate.global_batch);
}

}  // namespace orrery::report
