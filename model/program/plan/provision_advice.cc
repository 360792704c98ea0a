// SPDX-License-Identifier: Apache-2.0
// What `plan provision` adds to its rows: prices and their ages, what a day sooner costs, advice, offers left out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/arch/data_root.h"
#include "model/base/text.h"
#include "model/program/common/names.h"
#include "model/program/common/table.h"
#include "model/program/plan/provision_report.h"
#include "model/provision/choices.h"

namespace orrery::report {
namespace {

constexpr double kSecondsOfDay = 86400;
constexpr double kHardlyProgresses = 0.5;  // goodput

}  // namespace

PriceAge AgeOf(const ProvisionAnswer& answer, const OfferPrice& price) {
  PriceAge age;
  age.days = answer.run->today - price.date.DayNumber();
  age.old =
      static_cast<double>(age.days) * kSecondsOfDay > answer.run->conditions.run.old_price.value;
  const bool whole = price.date.day > 0;
  age.words = age.days < 0 ? fmt::format("dated {} days AHEAD, is the date right?", -age.days)
                           : fmt::format("{}{} days old{}", whole ? "" : "up to ", age.days,
                                         age.old ? ": OLD, ask again" : "");
  return age;
}

std::string BatchWords(const ProvisionAnswer& answer) {
  if (!answer.range || answer.batch_given) return "";
  return fmt::format("searched from {} to {} tokens per step (--global-batch), {}",
                     Scaled(answer.range->least), Scaled(answer.range->most),
                     RangeWords(*answer.range, answer.batch_facts));
}

std::optional<Dollars> PerDaySooner(const Provisioned& result, std::size_t place) {
  if (place == 0) return std::nullopt;
  const RunEstimate& run = result.rows[result.frontier[place]].run;
  const RunEstimate& before = result.rows[result.frontier[place - 1]].run;
  return Dollars((run.cost - before.cost).value / ((before.time - run.time).value / kSecondsOfDay));
}

namespace {

// "": more nodes than by default are not on offer, or were looked at.
std::string MostNodesWords(const ProvisionAnswer& answer) {
  const Provisioned& result = *answer.result;
  if (!answer.most_nodes || !result.fastest) return "";
  const Row& row = answer.result->rows[*result.fastest];
  const int64_t sold = MostNodes((*answer.quotes)[row.quote], (*answer.sites)[row.site]);
  if (row.nodes < *answer.most_nodes || sold <= *answer.most_nodes) return "";
  return fmt::format(
      "nodes: {} are the most that were looked at; more may be faster (--nodes 1..{})", row.nodes,
      std::min(sold, 4 * row.nodes));
}

}  // namespace

std::vector<std::string> AdviceOf(const ProvisionAnswer& answer) {
  std::vector<std::string> advice;
  for (const auto& [quote, words] : answer.far_below) advice.push_back("price: " + words);
  for (const std::string& words : answer.far_above) advice.push_back("price: " + words);
  const Row& row = answer.result->rows[answer.Told()];
  if (answer.range && answer.batch_given) {
    const std::string large =
        LargeBatch(row.candidate.tokens, answer.run->conditions.tokens, answer.batch_facts);
    if (!large.empty()) advice.push_back(large);
  }
  if (const std::string words = BeyondRangeWords(answer); !words.empty()) advice.push_back(words);
  if (answer.range) advice.push_back("batch: " + answer.batch_facts.note);
  if (row.run.goodput < kHardlyProgresses)
    advice.push_back(fmt::format(
        "failures take {} of the time: a faster recovery (--recovery), more spares (--spares) or "
        "fewer nodes",
        Percent(1 - row.run.goodput)));
  if (const std::string words = MostNodesWords(answer); !words.empty()) advice.push_back(words);
  if (!row.candidate.outside.empty())
    advice.push_back(fmt::format("extrapolated, its interval is wider: {}",
                                 fmt::join(row.candidate.outside, "; ")));
  return advice;
}

std::string LeftOutText(const ProvisionAnswer& answer) {
  if (answer.left_out.empty() && answer.nodes_left_out.empty()) return "";
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [offer, why] : answer.left_out) by_reason[why].push_back(offer);
  std::string text = "\nNot considered\n";
  if (!answer.nodes_left_out.empty())
    text += fmt::format("  - {}\n", Fold(answer.nodes_left_out, 4));
  for (const auto& [why, offers] : by_reason)
    text += fmt::format("  - {}\n", Fold(fmt::format("{}: {}", fmt::join(offers, ", "), why), 4));
  return text;
}

std::string PricesText(const ProvisionAnswer& answer) {
  std::string text = "\nPrices behind the rows above\n";
  std::set<std::size_t> seen;
  for (const std::size_t place : ShownPlaces(answer)) {
    const Row& row = answer.result->rows[answer.result->frontier[place]];
    if (!seen.insert(row.quote).second) continue;
    const Quote& quote = (*answer.quotes)[row.quote];
    const OfferPrice& price = quote.price;
    std::string words = fmt::format("{}: {} per node, {}, {}, {} ({}); {}", quote.Name(),
                                    Format(price.price), NameOf(price.kind), price.region,
                                    price.date.Text(), AgeOf(answer, price).words, price.source);
    if (answer.far_below.contains(row.quote)) words += "; FAR BELOW all others, see the advice";
    if (price.kind == PriceKind::kSpot) words += "; if the capacity stays";
    if (price.term.value > 0) words += fmt::format("; billed for {} at least", Days(price.term));
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

}  // namespace orrery::report
