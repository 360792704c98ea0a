// SPDX-License-Identifier: Apache-2.0
// The section "Placement".
#include "model/program/plan/placement_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "model/base/text.h"
#include "model/hardware/host_order.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/names.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"

namespace orrery::report {
namespace {

std::string Dash(const std::string& text) { return fmt::format("  - {}\n", Fold(text, 4)); }

std::string What(const PlacementChoice& choice) {
  const Strategy& best = choice.strategy;
  std::string text =
      best.placement ? "--placement " + orrery::PlacementText(*best.placement) : std::string();
  if (best.layout != choice.plain.strategy.layout)
    text +=
        (text.empty() ? "" : ", ") + fmt::format("layers {}", orrery::LayoutWords(*best.layout));
  return text;
}

// Of either without the other; both together are not their sum.
std::string PartsWords(const PlacementChoice& choice) {
  if (!choice.layers_alone || !choice.order_alone) return "";
  constexpr double kShown = 0.0005;
  const auto saved = [&](const Seconds& alone) -> std::string {
    const double gain = 1 - alone.value / choice.plain.time.total;
    return gain <= 0       ? "nothing"
           : gain < kShown ? "less than 0.1 %"
                           : fmt::format("{:.1f} %", 100 * gain);
  };
  return fmt::format(" (other layers alone save {}, another order alone {})",
                     saved(*choice.layers_alone), saved(*choice.order_alone));
}

// How far the search went.
std::string Certainty(std::span<const PlacedRow> rows) {
  int64_t looked_at = 0, priced = 0;
  bool exact = true, splits = false;
  for (const PlacedRow& row : rows) {
    const PlacementFound& found = row.choice.found;
    looked_at += found.looked_at, priced += found.priced;
    exact = exact && found.exact;
    splits = splits || found.splits;
  }
  const std::string looked =
      looked_at > 0
          ? fmt::format(" ({} partial orders looked at, {} steps priced)", looked_at, priced)
      : splits ? fmt::format(" ({} steps priced)", priced)
               : "";
  const char* with_splits = splits ? ", with any split of the layers," : "";
  if (exact)
    return Dash(fmt::format(
        "In closed form no order of axes and nodes{} is faster than the one that it found{}",
        with_splits, looked));
  std::string text = Dash(fmt::format("Not all orders{} were looked at{}",
                                      splits ? " and splits of the layers" : "", looked));
  for (const PlacedRow& row : rows) {
    const PlacementFound& found = row.choice.found;
    if (!found.exact)
      text += Dash(fmt::format("Plan {}: {} in closed form, nothing can be below {}", row.row,
                               Format(Seconds(found.seconds)), Format(Seconds(found.bound))));
  }
  return text;
}

// A search that is silent on layers is taken for one that found none better.
std::string SplitsWords(std::span<const PlacedRow> rows) {
  const bool stages =
      std::ranges::any_of(rows, [](const PlacedRow& row) { return row.choice.strategy.pp > 1; });
  const bool looked =
      std::ranges::any_of(rows, [](const PlacedRow& row) { return row.choice.found.splits; });
  if (!stages || looked) return "";
  return Dash(
      "Other splits of the layers over the stages were not looked at: the framework has one rule "
      "for them, or --layout names one");
}

// "plan 4", "plans 1 and 3", "plans 2 to 5".
std::string Plans(const std::vector<int>& rows) {
  if (rows.size() == 1) return fmt::format("plan {}", rows[0]);
  const auto size = static_cast<int>(rows.size());
  if (size > 2 && rows.back() - rows.front() + 1 == size)
    return fmt::format("plans {} to {}", rows.front(), rows.back());
  const std::vector<int> first(rows.begin(), rows.end() - 1);
  return fmt::format("plans {} and {}", fmt::join(first, ", "), rows.back());
}

// Rows without a placement: too many to look at, or none that can have the order that is given.
std::string NotPlaced(std::span<const PlacedRow> rows, std::size_t shown) {
  std::vector<int> cannot, beyond;
  for (int row = 1; row <= static_cast<int>(shown); ++row) {
    if (std::ranges::find(rows, row, &PlacedRow::row) != rows.end()) continue;
    (row > static_cast<int>(kMostPlacedRows) ? beyond : cannot).push_back(row);
  }
  std::string words;
  if (!cannot.empty()) words += fmt::format("; the order given does not suit {}", Plans(cannot));
  if (!beyond.empty())
    words += fmt::format("; not looked at: {} (at most {} are)", Plans(beyond), kMostPlacedRows);
  return words;
}

}  // namespace

PlacedRanking RankPlaced(std::span<const PlacedRow> rows, std::size_t shown) {
  std::vector<PlacedRow> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(
      sorted, {}, [](const PlacedRow& row) { return std::tuple(row.nearly_full, row.value); });
  PlacedRanking ranking;
  for (const PlacedRow& row : sorted) ranking.order.push_back(row.row);
  std::vector<int> placed = ranking.order;
  std::ranges::sort(placed);
  const std::string order = ranking.order == placed
                                ? std::string("keep this order")
                                : fmt::format("rank {}", fmt::join(ranking.order, ", "));
  ranking.words = "Ranked in the default order of ranks";
  if (placed.size() > 1)
    ranking.words += fmt::format("; {}, {} {}", rows[0].given ? "in yours" : "with placements",
                                 Plans(placed), order);
  ranking.words += NotPlaced(rows, shown);
  return ranking;
}

std::string PlacementText(std::span<const PlacedRow> rows, std::size_t shown,
                          const FabricSpec& fabric) {
  std::string text = "\nPlacement\n";
  if (rows[0].given)
    text += Dash(fmt::format("Given: --placement {}",
                             orrery::PlacementText(*rows[0].choice.strategy.placement)));
  for (const PlacedRow& one : rows) {
    const PlacementChoice& choice = one.choice;
    const std::string plan = shown > 0 ? fmt::format("Plan {}: ", one.row) : "";
    const char* engine = choice.placed.simulated ? "simulated" : "in closed form";
    const std::string what = What(choice);
    if (one.given) {
      const bool moved = choice.strategy.layout != choice.plain.strategy.layout;
      text += Dash(fmt::format(
          "{}{}{} instead of {}, {:.1f} % {}, {}", plan,
          moved ? fmt::format("layers {}: ", orrery::LayoutWords(*choice.strategy.layout)) : "",
          Format(Seconds(choice.placed.time.total)), Format(Seconds(choice.plain.time.total)),
          100 * std::abs(choice.gain()), choice.gain() < 0 ? "more" : "less", engine));
    } else if (!what.empty()) {
      text += Dash(fmt::format(
          "{}{}: {} instead of {}, {:.1f} % {}, {}{}", plan, what,
          Format(Seconds(choice.placed.time.total)), Format(Seconds(choice.plain.time.total)),
          100 * std::abs(choice.gain()),
          choice.found.exceeded
              ? (choice.gain() < 0 ? "more, but it fits in memory" : "less, and it fits in memory")
              : "less",
          engine, PartsWords(choice)));
    } else if (choice.refuted) {
      text += Dash(plan +
                   "the closed form prefers another order of ranks, but the simulation "
                   "finds no gain in it: the default stays");
    } else {
      text += Dash(plan + (choice.found.exact
                               ? "no order of ranks is faster than the default"
                               : "no order of ranks was found that is faster than the default"));
    }
  }
  for (const PlacedRow& one : rows) {
    const auto& placement = one.choice.strategy.placement;
    if (!placement || placement->nodes.empty() || fabric.hosts.empty()) continue;
    const std::string plan = shown > 0 ? fmt::format("Plan {}, hosts", one.row) : "Hosts";
    text += Dash(fmt::format("{} in this order: {}", plan, HostsInOrder(fabric, placement->nodes)));
    if (one.given) break;  // all have the same
  }
  if (shown > 0) text += Dash(RankPlaced(rows, shown).words);
  return rows[0].given ? text : text + Certainty(rows) + SplitsWords(rows);
}

std::string BestPlaced(std::span<const PlacedRow> rows) {
  if (rows.empty()) return "";
  const int first = RankPlaced(rows, 0).order.front();
  const PlacedRow& row = *std::ranges::find(rows, first, &PlacedRow::row);
  const PlacementChoice& choice = row.choice;
  const std::string what = What(choice);
  if (what.empty()) return "";
  Strategy own = choice.plain.strategy;
  if (choice.strategy.layout != own.layout) own.layout = nullptr;  // `what` names the others
  const std::string plan = first == 1
                               ? std::string(row.given ? "with yours, " : "with ")
                               : fmt::format("so placed, plan {} is the best: {}, ", first,
                                             DescribeLayout(own, choice.plain.micro_batches));
  return plan + fmt::format("{}: {} instead of {}, {}", what,
                            Format(Seconds(choice.placed.time.total)),
                            Format(Seconds(choice.plain.time.total)),
                            choice.placed.simulated ? "simulated" : "in closed form");
}

nlohmann::ordered_json PlacementJson(const PlacementChoice& choice, bool given) {
  const Strategy& best = choice.strategy;
  nlohmann::ordered_json json = {
      {"placement", orrery::PlacementText(best.placement ? *best.placement : Placement{})},
      {"stages_inside", best.stages_inside()},
      {"nodes", best.placement ? best.placement->nodes : std::vector<int32_t>{}}};
  json["layers"] = best.layout ? nlohmann::ordered_json(*best.layout) : nlohmann::ordered_json();
  json["step_time_s"] = choice.placed.time.total;
  json["default_step_time_s"] = choice.plain.time.total;
  json["gain"] = choice.gain();
  json["tokens_per_s"] = choice.placed.tokens_per_second;
  json["mfu"] = choice.placed.mfu;
  json["breakdown"] = TimeJson(choice.placed.time);
  json["layers_alone_step_time_s"] = choice.layers_alone
                                         ? nlohmann::ordered_json(choice.layers_alone->value)
                                         : nlohmann::ordered_json();
  json["order_alone_step_time_s"] = choice.order_alone
                                        ? nlohmann::ordered_json(choice.order_alone->value)
                                        : nlohmann::ordered_json();
  json["given"] = given;
  json["engine"] = choice.placed.simulated ? "event" : "closed";
  json["refuted_by_simulation"] = choice.refuted;
  json["simulated"] = choice.simulated;
  if (given) return json;
  json["closed_form"] = {
      {"step_time_s", choice.found.seconds},     {"default_step_time_s", choice.found.plain},
      {"lower_bound_s", choice.found.bound},     {"exact", choice.found.exact},
      {"splits_of_layers", choice.found.splits}, {"partial_orders", choice.found.looked_at},
      {"steps_priced", choice.found.priced}};
  return json;
}

}  // namespace orrery::report
