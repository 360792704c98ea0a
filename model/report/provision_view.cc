// SPDX-License-Identifier: Apache-2.0
// Sections of `plan provision`: days against dollars, the offers, the chosen runs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "model/report/figures.h"
#include "model/report/short_number.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

constexpr std::size_t kMostMarks = 900, kMostPrices = 60;

std::string TickDays(double seconds) { return fmt::format("{:g}", seconds / 86400); }
std::string TickNodes(double nodes) { return fmt::format("{:g}", nodes); }

std::set<std::size_t> Chosen(const Ref& answer) {
  std::set<std::size_t> chosen;
  for (const char* which : {"cheapest", "sure", "fastest"}) {
    if (answer[which].is_number()) chosen.insert(static_cast<std::size_t>(answer[which].number()));
  }
  const Ref frontier = answer["frontier"];
  if (chosen.empty() && !frontier.empty())
    chosen.insert(static_cast<std::size_t>(frontier[frontier.size() - 1].number()));
  return chosen;
}

std::string RowOf(const Ref& row, bool best) {
  const Ref time = row["time_interval_s"];
  return fmt::format("<tr{}>", best ? " class=best" : "") + TextCell(row["offer"]["id"].text()) +
         NumberCell(row["offer"]["price_usd_per_hour"],
                    DollarsOf(row["offer"]["price_usd_per_hour"].number()) + "/h") +
         NumberCell(row["nodes"], row["nodes"].json().dump()) +
         NumberCell(row["spares"], row["spares"].json().dump()) +
         TextCell(row["plan"]["layout"].text()) +
         NumberCell(row["time_s"], DaysOf(row["time_s"].number())) +
         NumberCell(time[0], DaysOf(time[0].number())) +
         NumberCell(time[1], DaysOf(time[1].number())) +
         NumberCell(row["cost_usd"], DollarsOf(row["cost_usd"].number())) +
         NumberCell(row["goodput"], PercentOf(row["goodput"])) +
         NumberCell(row["energy_kwh"], Scaled(1000 * row["energy_kwh"].number()) + "Wh") +
         "</tr>\n";
}

const std::vector<std::string> kHeads = {"offer",  "price",   "nodes",      "spares",
                                         "layout", "days",    "80 %: from", "to",
                                         "cost",   "goodput", "energy"};

std::string FrontierSection(const Ref& answer) {
  const Ref rows = answer["answers"], question = answer["question"], frontier = answer["frontier"];
  Chart chart;
  chart.title = "Cost against days of every offer and node count; the frontier stands out";
  chart.x = {"days to train", true,  TickDays, std::max(0.0, question["deadline_s"].number()),
             "deadline",      false, 86400};
  chart.y = {"cost",   true, DollarsOf, std::max(0.0, question["budget_usd"].number()),
             "budget", false};
  if (!question["deadline_s"].is_number()) chart.x.limit = 0;
  if (!question["budget_usd"].is_number()) chart.y.limit = 0;
  std::map<std::string, std::size_t> providers;
  for (std::size_t i = 0; i < std::min(rows.size(), kMostMarks); ++i) {
    const Ref row = rows[i];
    const auto [at, added] =
        providers.try_emplace(row["offer"]["provider"].text(), providers.size());
    if (added) chart.groups.push_back(at->first);
    const bool on_frontier = row["on_frontier"].is_true();
    const Ref interval = row["cost_interval_usd"];
    chart.marks.push_back(
        {row["time_s"], row["cost_usd"],
         fmt::format("{}, {} nodes: {}, {}", row["offer"]["id"].text(), row["nodes"].json().dump(),
                     DaysOf(row["time_s"].number()), DollarsOf(row["cost_usd"].number())),
         at->second, !on_frontier, on_frontier ? interval[0] : Ref::None(),
         on_frontier ? interval[1] : Ref::None()});
  }
  const std::set<std::size_t> chosen = Chosen(answer);
  std::string table;
  for (std::size_t i = 0; i < frontier.size(); ++i) {
    const auto index = static_cast<std::size_t>(frontier[i].number());
    table += RowOf(rows[index], chosen.contains(index));
  }
  return Section("frontier", "Days against dollars",
                 Figure(DrawChart(chart),
                        "One mark for each offer and node count that was looked at; faint ones are "
                        "beaten in days and "
                        "dollars. Bars: 80 % interval of the cost.",
                        "") +
                     HtmlTable("The frontier: no other run is faster and cheaper", kHeads, table));
}

std::string ScalingOf(const Ref& answer, const Ref& chosen) {
  const Ref rows = answer["answers"];
  std::vector<Ref> same;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]["offer"].json() == chosen["offer"].json()) same.push_back(rows[i]);
  }
  if (same.size() < 2) return "";
  std::ranges::stable_sort(same, {}, [](const Ref& row) { return row["nodes"].number(); });
  Chart chart;
  chart.title = "Tokens per second of the chosen offer by number of nodes";
  chart.x = {"nodes", true, TickNodes, 0, "", false};
  chart.y = {"tokens/s", true, Scaled, 0, "", false};
  chart.joined = chart.proportional = true;
  std::string table;
  for (const Ref& row : same) {
    const Ref rate = row["plan"]["tokens_per_s"];
    chart.marks.push_back(
        {row["nodes"], rate,
         fmt::format("{} nodes: {} tokens/s", row["nodes"].json().dump(), ScaledOf(rate)), 0, false,
         Ref::None(), Ref::None()});
    table += RowOf(row, row.pointer() == chosen.pointer());
  }
  return Figure(
      DrawChart(chart),
      fmt::format("{} at the node counts that were evaluated. Dashed: proportional to the nodes.",
                  chosen["offer"]["id"].text()),
      HtmlTable("The same offer with more or fewer nodes", kHeads, table));
}

std::string RunTable(const Ref& row) {
  const auto line = [](const char* what, const Ref& value, const std::string& text) {
    return Row({std::string("<th scope=row>") + what + "</th>", NumberCell(value, text)});
  };
  const Ref checkpoint = row["checkpoint"], recovery = row["recovery"];
  return HtmlTable(
      "The run in figures", {"", ""},
      line("steps", row["steps"], Count(row["steps"].number())) +
          line("time without failures", row["ideal_s"], DaysOf(row["ideal_s"].number())) +
          line("goodput", row["goodput"], PercentOf(row["goodput"])) +
          line("time between failures", row["mtbf_s"], DaysOf(row["mtbf_s"].number())) +
          line("expected failures", row["expected_failures"],
               ThreeDigits(row["expected_failures"].number())) +
          line("checkpoint", checkpoint["bytes"], BytesOf(checkpoint["bytes"])) +
          line("checkpoint every", checkpoint["interval_s"], SecondsOf(checkpoint["interval_s"])) +
          line("a checkpoint blocks for", checkpoint["blocking_s"],
               SecondsOf(checkpoint["blocking_s"])) +
          line("a failure is detected and the node replaced in", recovery["detect_s"],
               SecondsOf(recovery["detect_s"])) +
          line("restart", recovery["restart_s"], SecondsOf(recovery["restart_s"])) +
          line("share of such runs in time", row["finish_probability"],
               PercentOf(row["finish_probability"])));
}

std::string LosersSection(const Ref& answer) {
  const Ref losers = answer["losers"], rejected = answer["rejected"];
  std::string rows, refused;
  for (std::size_t i = 0; i < losers.size(); ++i) {
    const Ref one = losers[i], price = one["price_usd_per_hour"];
    rows += Row({TextCell(one["offer"].text()), NumberCell(price, DollarsOf(price.number()) + "/h"),
                 TextCell(one["why"].text())});
  }
  for (std::size_t i = 0; i < rejected.size(); ++i) {
    const Ref one = rejected[i];
    if (one["least"].empty())
      refused += Row({TextCell(one["offer"]["id"].text()), TextCell(one["reason"].text())});
  }
  return Section(
      "losers", "Why the other offers lose",
      HtmlTable("Their cheapest run within the limits", {"offer", "per node", "why"}, rows) +
          HtmlTable("Not considered", {"offer", "why"}, refused));
}

}  // namespace

std::string ProvisionSections(const Ref& answer) {
  const Ref rows = answer["answers"];
  std::string out = FrontierSection(answer), runs, scaling;
  std::vector<StepBar> bars;
  for (const std::size_t i : Chosen(answer)) {
    const Ref row = rows[i];
    const std::string name =
        fmt::format("{}, {} nodes", row["offer"]["id"].text(), row["nodes"].json().dump());
    runs += "<h3>" + Escape(name) + "</h3>" + RunTable(row);
    scaling += ScalingOf(answer, row);
    bars.push_back({name, row["plan"]["breakdown"], row["plan"]["step_time_s"]});
  }
  out += Section("runs", "The chosen runs", runs) + Section("scaling", "Scaling", scaling) +
         Section("breakdown", "Where a step goes", BreakdownBars(bars));
  for (const std::size_t i : Chosen(answer)) {
    out += Section("memory-" + std::to_string(i), "Memory of " + rows[i]["offer"]["id"].text(),
                   MemoryBars(rows[i]["plan"]["memory"]));
  }
  std::string prices;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < answer["frontier"].size(); ++i) {
    const Ref offer = rows[static_cast<std::size_t>(answer["frontier"][i].number())]["offer"];
    if (!seen.insert(offer["id"].text()).second || seen.size() > kMostPrices) continue;
    prices += Row({TextCell(offer["id"].text()),
                   NumberCell(offer["price_usd_per_hour"],
                              DollarsOf(offer["price_usd_per_hour"].number()) + "/h"),
                   TextCell(offer["kind"].text()), TextCell(offer["region"].text()),
                   TextCell(offer["date"].text()), TextCell(offer["source"].text())});
  }
  return out +
         Section("prices", "Prices behind the frontier",
                 HtmlTable("Prices with date and source",
                           {"offer", "per node", "kind", "region", "date", "source"}, prices)) +
         LosersSection(answer) + Section("assumptions", "What was assumed", Assumptions(answer));
}

std::string PublishedSections(const Ref& answer) {
  const Ref runs = answer["runs"];
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Ref run = runs[i];
    const auto cell = [&](const Ref& value) {
      return NumberCell(value, run["quantity"].text() == "goodput"
                                   ? PercentOf(value)
                                   : ThreeDigits(value.number()) + " h");
    };
    rows += Row({TextCell(run["run"].text()), cell(run["published"][0]), cell(run["published"][1]),
                 cell(run["predicted"][0]), cell(run["predicted"][1]),
                 TextCell(run["known_miss"].text()), TextCell(run["source"].text())});
  }
  return Section(
      "runs", "Published runs",
      HtmlTable("Goodput of published runs, or hours between stops",
                {"run", "published: from", "to", "predicted: from", "to", "known miss", "source"},
                rows));
}

}  // namespace orrery::report
