// SPDX-License-Identifier: Apache-2.0
// The section "Placement".
#include "model/program/plan/placement_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/names.h"
#include "model/program/common/table.h"

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

// What of the gain is the layers', and what the order's.
std::string PartsWords(const PlacementChoice& choice) {
  if (!choice.layers_alone) return "";
  const double plain = choice.plain.time.total;
  const double layers = 1 - choice.layers_alone->value / plain;
  return fmt::format(": {:.1f} % {} by the layers alone, {:.1f} % {} by the order",
                     100 * std::abs(layers), layers < 0 ? "more" : "less",
                     100 * std::abs(choice.gain() - layers),
                     choice.gain() < layers ? "more" : "less");
}

// How far the search went.
std::string Certainty(std::span<const PlacedRow> rows) {
  int64_t looked_at = 0;
  bool exact = true;
  for (const PlacedRow& row : rows) {
    looked_at += row.choice.found.looked_at;
    exact = exact && row.choice.found.exact;
  }
  const std::string looked =
      looked_at > 0 ? fmt::format(" ({} partial orders looked at)", looked_at) : "";
  if (exact)
    return Dash("In closed form no order of axes and nodes is faster than the one that it found" +
                looked);
  std::string text = Dash("Not all orders were looked at" + looked);
  for (const PlacedRow& row : rows) {
    const PlacementFound& found = row.choice.found;
    if (!found.exact)
      text += Dash(fmt::format("Plan {}: {} in closed form, no order below {}", row.row,
                               Format(Seconds(found.seconds)), Format(Seconds(found.bound))));
  }
  return text;
}

}  // namespace

std::string PlacementText(std::span<const PlacedRow> rows, bool numbered) {
  std::string text = "\nPlacement\n";
  if (rows[0].given)
    text +=
        Dash(fmt::format("Layouts are ranked in the default order of ranks; with yours, "
                         "--placement {}:",
                         orrery::PlacementText(*rows[0].choice.strategy.placement)));
  for (const PlacedRow& one : rows) {
    const PlacementChoice& choice = one.choice;
    const std::string plan = numbered ? fmt::format("Plan {}: ", one.row) : "";
    const char* engine = choice.placed.simulated ? "simulated" : "in closed form";
    const std::string what = What(choice);
    if (one.given) {
      text += Dash(fmt::format(
          "{}{} instead of {}, {:.1f} % {}, {}", plan, Format(Seconds(choice.placed.time.total)),
          Format(Seconds(choice.plain.time.total)), 100 * std::abs(choice.gain()),
          choice.gain() < 0 ? "more" : "less", engine));
    } else if (!what.empty()) {
      text += Dash(fmt::format("{}{}: {} instead of {}, {:.1f} % less, {}{}", plan, what,
                               Format(Seconds(choice.placed.time.total)),
                               Format(Seconds(choice.plain.time.total)), 100 * choice.gain(),
                               engine, PartsWords(choice)));
    } else if (choice.refuted) {
      text += Dash(plan +
                   "the closed form prefers another order of ranks, but the simulation "
                   "finds no gain in it: the default stays");
    } else {
      text += Dash(plan + "no order of ranks is faster than the default");
    }
  }
  const auto fastest = std::ranges::min_element(
      rows, {}, [](const PlacedRow& one) { return one.choice.placed.time.total; });
  if (fastest != rows.begin())
    text += Dash(fmt::format("So placed, plan {} is the fastest", fastest->row));
  return rows[0].given ? text : text + Certainty(rows);
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
  json["layers_alone_step_time_s"] = choice.layers_alone
                                         ? nlohmann::ordered_json(choice.layers_alone->value)
                                         : nlohmann::ordered_json();
  json["given"] = given;
  json["engine"] = choice.placed.simulated ? "event" : "closed";
  json["refuted_by_simulation"] = choice.refuted;
  json["simulated"] = choice.simulated;
  if (given) return json;
  json["closed_form"] = {{"step_time_s", choice.found.seconds},
                         {"default_step_time_s", choice.found.plain},
                         {"lower_bound_s", choice.found.bound},
                         {"exact", choice.found.exact},
                         {"partial_orders", choice.found.looked_at}};
  return json;
}

}  // namespace orrery::report
