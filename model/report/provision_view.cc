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

std::string TickNodes(double nodes) { return fmt::format("{:g}", nodes); }

std::set<std::size_t> Chosen(const Ref& answer) {
  std::set<std::size_t> chosen;
  for (const char* which : {"cheapest", "sure", "fastest", "fastest_sure"}) {
    if (answer[which].is_number()) chosen.insert(static_cast<std::size_t>(answer[which].number()));
  }
  const Ref frontier = answer["frontier"];
  if (chosen.empty() && !frontier.empty())
    chosen.insert(static_cast<std::size_t>(frontier[frontier.size() - 1].number()));
  return chosen;
}

// Rows whose cost intervals overlap, where there are several.
bool AnyTie(const Ref& answer) {
  int tied = 0;
  for (std::size_t i = 0; i < answer["frontier"].size(); ++i)
    tied += answer["answers"][static_cast<std::size_t>(answer["frontier"][i].number())]["tie"]
                .is_true();
  return tied > 1;  // the best is one of them
}

std::string Spot(const Ref& offer) {
  return offer["kind"].text() == "spot" ? ", if the capacity stays" : "";
}

std::string NameOf(const Ref& row) {
  return fmt::format("{}, {}", row["offer"]["id"].text(), NodesOf(row["nodes"]));
}

std::string RowOf(const Ref& row, bool best, const std::string& more = "") {
  const Ref plan = row["plan"], time = row["time_interval_s"], cost = row["cost_interval_usd"];
  const std::string beyond = row["beyond_limits"].text();
  return fmt::format("<tr{}>", best ? " class=best" : "") +
         NameCell(row["offer"]["id"].text() + Spot(row["offer"]) +
                  (beyond.empty() ? "" : " (" + beyond + ")")) +
         NumberCell(row["time_s"], DaysOf(row["time_s"].number()), time, DaysSpanOf(time)) +
         NumberCell(row["cost_usd"], DollarsOf(row["cost_usd"].number()), cost,
                    DollarsSpanOf(cost)) +
         NumberCell(row["nodes"], row["nodes"].json().dump()) +
         NumberCell(row["spares"], row["spares"].json().dump()) + more +
         NumberCell(row["goodput"], PercentOf(row["goodput"])) +
         NumberCell(row["energy_kwh"], EnergyOf(row)) +
         NumberCell(plan["global_batch"], plan["global_batch"].json().dump()) +
         LayoutCell(plan["layout"].text() +
                    (row["input"]["input_bound"].is_true() ? "; INPUT-BOUND" : "")) +
         "</tr>\n";
}

// Days and dollars first: a phone shows no more. With what each day costs that a row takes less than the one above.
std::vector<std::string> Heads(bool sooner) {
  std::vector<std::string> heads = {"offer", "days (80 % interval)", "cost (80 % interval)",
                                    "nodes", "spares"};
  if (sooner) heads.emplace_back("a day sooner");
  for (const char* head : {"goodput", "energy", "batch, sequences", "layout"})
    heads.emplace_back(head);
  return heads;
}

std::string FrontierSection(const Ref& answer) {
  const Ref rows = answer["answers"], question = answer["question"], frontier = answer["frontier"];
  Chart chart;
  chart.title = "Cost against days of every offer and node count; the frontier stands out";
  chart.x = DaysAxis(question["deadline_s"]);
  chart.y = DollarsAxis(question["budget_usd"]);
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
         fmt::format("{}, {}: {}, {}", row["offer"]["id"].text(), NodesOf(row["nodes"]),
                     DaysOf(row["time_s"].number()), DollarsOf(row["cost_usd"].number())),
         at->second, !on_frontier, on_frontier ? interval[0] : Ref::None(),
         on_frontier ? interval[1] : Ref::None()});
  }
  const std::set<std::size_t> chosen = Chosen(answer);
  const bool ties = AnyTie(answer);
  std::set<std::size_t> near;  // places that the text shows, too; the others are not on paper
  const Ref shown = answer["frontier_shown"];
  for (std::size_t i = 0; i < shown.size(); ++i)
    near.insert(static_cast<std::size_t>(shown[i].number()));
  std::string table;
  for (std::size_t i = 0; i < frontier.size(); ++i) {
    const auto index = static_cast<std::size_t>(frontier[i].number());
    const Ref sooner = answer["day_sooner_usd"][i];
    std::string row =
        RowOf(rows[index], chosen.contains(index), NumberCell(sooner, DollarsOf(sooner.number())));
    const std::string mark =
        NumberHead(fmt::format("{}{}", ties && rows[index]["tie"].is_true() ? "= " : "", i + 1));
    row.insert(row.find('>') + 1, mark);
    if (row.starts_with("<tr>") && !near.contains(i)) row.insert(3, " class=far");
    table += row;
  }
  std::vector<std::string> heads = Heads(true);
  heads.insert(heads.begin(), "");
  return Section(
      "frontier", "Days against dollars",
      Figure(DrawChart(chart),
             "One mark for each offer and node count that was looked at; hollow ones are "
             "beaten in days and dollars. Bars: 80 % interval of the cost.",
             "") +
          HtmlTable(fmt::format("The frontier: no other run is faster and cheaper{}",
                                near.size() < frontier.size()
                                    ? " (on paper without what is far beyond the limits)"
                                    : ""),
                    heads, table) +
          Paragraph(answer["frontier_notes"].text()));
}

// Of the offer of a chosen run; other chosen runs of it are marked, too.
std::string ScalingOf(const Ref& answer, const Ref& chosen, const std::set<std::size_t>& marked) {
  const Ref rows = answer["answers"];
  std::vector<Ref> same;
  std::set<std::string> best;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]["offer"].json() != chosen["offer"].json()) continue;
    same.push_back(rows[i]);
    if (marked.contains(i)) best.insert(rows[i].pointer());
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
    chart.marks.push_back({row["nodes"], rate,
                           fmt::format("{}: {} tokens/s", NodesOf(row["nodes"]), ScaledOf(rate)), 0,
                           false, Ref::None(), Ref::None()});
    table += RowOf(row, best.contains(row.pointer()));
  }
  return Figure(
      DrawChart(chart),
      fmt::format("{} at the node counts that were evaluated. Dashed: proportional to the nodes.",
                  chosen["offer"]["id"].text()),
      HtmlTable("The same offer with more or fewer nodes", Heads(false), table));
}

std::string RunTable(const Ref& answer, const Ref& row) {
  std::string rows;
  const auto line = [&](const std::string& what, const Ref& value, const std::string& text) {
    rows += Row({"<th scope=row>" + Escape(what) + "</th>", NumberCell(value, text)});
  };
  const Ref question = answer["question"], plan = row["plan"], checkpoint = row["checkpoint"],
            recovery = row["recovery"], input = row["input"];
  line("steps", row["steps"], Count(row["steps"].number()));
  line("one step, with its input", row["step_time_s"], SecondsOf(row["step_time_s"]));
  line("slowest node, times the step (--straggler)", question["straggler"],
       ThreeDigits(question["straggler"].number()));
  line("before the first step (--setup)", question["setup_s"], SecondsOf(question["setup_s"]));
  line("time without failures", row["ideal_s"], DaysOf(row["ideal_s"].number()));
  line("goodput", row["goodput"], PercentOf(row["goodput"]));
  line("time between failures", row["mtbf_s"], DaysOf(row["mtbf_s"].number()));
  line("expected failures", row["expected_failures"],
       ThreeDigits(row["expected_failures"].number()));
  if (row["failures_without_spare"].is_number() && row["spares"].number() > 0)
    line("expected failures that find no spare (--spares)", row["failures_without_spare"],
         ThreeDigits(row["failures_without_spare"].number()));
  const auto recovers = [&](const std::string& what, const char* key) {
    if (recovery[key].is_number()) line(what, recovery[key], SecondsOf(recovery[key]));
  };
  recovers("after a failure the other replicas go on in", "pause_s");
  recovers("a failure is detected and the node replaced in", "detect_s");
  recovers("and, in the mean, waits for a node (--spares)", "wait_s");
  recovers("restart", "restart_s");
  line("checkpoint", checkpoint["bytes"], OnStorage(checkpoint["bytes"].number()));
  line("checkpoint every", checkpoint["interval_s"], SecondsOf(checkpoint["interval_s"]));
  line("a checkpoint blocks for", checkpoint["blocking_s"], SecondsOf(checkpoint["blocking_s"]));
  line("and is written behind the steps in", checkpoint["background_s"],
       SecondsOf(checkpoint["background_s"]));
  line(fmt::format("file system{}{} (--storage)",
                   checkpoint["file_system_to_be_ordered"].is_true() ? ", to be ordered" : "",
                   checkpoint["file_system_words"].text()),
       checkpoint["file_system_bytes_per_s"], RateOf(checkpoint["file_system_bytes_per_s"]));
  line("input: storage and hosts must deliver", input["read_bytes_per_s"],
       RateOf(input["read_bytes_per_s"]));
  line("input: tokens/s that the GPUs take, with the slowest node", input["tokens_per_s"],
       ScaledOf(input["tokens_per_s"]));
  if (input["limit_tokens_per_s"].is_number())
    line(fmt::format("input: tokens/s, limit of the {}{}", input["limited_by"].text(),
                     input["input_bound"].is_true() ? ": INPUT-BOUND" : ""),
         input["limit_tokens_per_s"], ScaledOf(input["limit_tokens_per_s"]));
  if (row["memory_margin_cost"].is_number()) {
    line("memory that stays free (--memory-margin)", answer["memory_margin"],
         PercentOf(answer["memory_margin"]));
    line("what that costs: training takes", row["memory_margin_cost"],
         LongerWords(1 + row["memory_margin_cost"].number()));
  }
  line("memory in use", plan["memory"]["total_bytes"], BytesOf(plan["memory"]["total_bytes"]));
  line("billed", row["billed_s"], DaysOf(row["billed_s"].number()));
  if (row["finish_probability"].is_number())
    line("share of such runs in time", row["finish_probability"],
         PercentOf(row["finish_probability"]));
  if (row["budget_probability"].is_number())
    line("share of such runs within the budget", row["budget_probability"],
         PercentOf(row["budget_probability"]));
  if (const Ref replay = row["replay"]; !replay.empty()) {
    line("replayed with random failures, times (--replay)", replay["runs"],
         Count(replay["runs"].number()));
    line("mean of the replays", replay["mean_s"], DaysOf(replay["mean_s"].number()));
    line("their standard deviation", replay["sd_s"], SecondsOf(replay["sd_s"]));
  }
  return HtmlTable("The run in figures", {"", ""}, rows);
}

std::string PricesSection(const Ref& answer) {
  std::string rows;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < answer["frontier"].size(); ++i) {
    const Ref offer =
        answer["answers"][static_cast<std::size_t>(answer["frontier"][i].number())]["offer"];
    if (!seen.insert(offer["id"].text()).second || seen.size() > kMostPrices) continue;
    std::string notes = offer["stand_in"].text().empty()
                            ? ""
                            : fmt::format("predicted as {}: {}", offer["topology"].text(),
                                          offer["stand_in"].text());
    const auto add = [&](const std::string& words) {
      if (!words.empty()) notes += (notes.empty() ? "" : "; ") + words;
    };
    if (offer["billed_at_least_s"].number() > 0)
      add("billed for at least " + DaysOf(offer["billed_at_least_s"].number()));
    if (offer["billed_in_steps_of_s"].number() > 3600)
      add("billed in steps of " + DaysOf(offer["billed_in_steps_of_s"].number()));
    add(offer["note"].text());
    if (!offer["user_file"].text().empty()) add("user file " + offer["user_file"].text());
    rows += Row({NameCell(offer["id"].text()),
                 NumberCell(offer["price_usd_per_hour"],
                            DollarsOf(offer["price_usd_per_hour"].number()) + "/h"),
                 TextCell(fmt::format("{}, {}{}", offer["kind"].text(), offer["region"].text(),
                                      Spot(offer))),
                 WordsCell(offer["age_days"],
                           fmt::format("{}: {}", offer["date"].text(), offer["age"].text())),
                 TextCell(notes), TextCell(offer["source"].text())});
  }
  return Section("prices", "Prices behind the frontier",
                 HtmlTable("Prices with date and source",
                           {"offer", "per node", "kind, region", "date", "notes", "source"}, rows));
}

std::string LosersSection(const Ref& answer) {
  const Ref losers = answer["losers"], rejected = answer["rejected"];
  const bool limits =
      !answer["question"]["deadline_s"].empty() || !answer["question"]["budget_usd"].empty();
  std::string rows, refused;
  for (std::size_t i = 0; i < losers.size(); ++i) {
    const Ref one = losers[i], price = one["price_usd_per_hour"];
    rows += Row({NameCell(one["offer"].text()), NumberCell(price, DollarsOf(price.number()) + "/h"),
                 TextCell(one["why"].text())});
  }
  for (std::size_t i = 0; i < rejected.size(); ++i) {
    const Ref one = rejected[i];
    if (one["least"].empty())
      refused += Row({TextCell(one["offer"]["id"].text()), TextCell(one["reason"].text())});
  }
  return Section(
      "losers",
      answer["frontier"].size() == 0 ? "Why the offers lose" : "Why the other offers lose",
      HtmlTable(limits ? "Their cheapest run within the limits" : "Their cheapest run",
                {"offer", "per node", "why"}, rows) +
          Paragraph(answer["nodes_not_sold"].text()) +
          HtmlTable("Not considered", {"offer", "why"}, refused));
}

}  // namespace

std::string ProvisionSections(const Ref& answer) {
  const Ref rows = answer["answers"];
  std::string out = FrontierSection(answer), runs, scaling;
  std::vector<StepBar> bars;
  const std::set<std::size_t> chosen = Chosen(answer);
  std::set<std::string> drawn;  // offers with their scaling
  for (const std::size_t i : chosen) {
    const Ref row = rows[i];
    const std::string name = NameOf(row);
    runs += "<h3>" + Escape(name + Spot(row["offer"])) + "</h3>" +
            Paragraph(row["plan"]["layout"].text() + ".") + RunTable(answer, row) +
            Paragraph(row["spot"]["words"].text()) + Paragraph(row["checkpoint"]["warning"].text());
    if (drawn.insert(row["offer"]["id"].text()).second) scaling += ScalingOf(answer, row, chosen);
    bars.push_back({name, row["plan"]["breakdown"], row["plan"]["step_time_s"]});
  }
  out += Section("runs", "The chosen runs", runs) + Section("scaling", "Scaling", scaling) +
         Section("breakdown", "Where a step goes", BreakdownBars(bars));
  for (const std::size_t i : chosen)
    out += Section("memory-" + std::to_string(i), "Memory of " + NameOf(rows[i]),
                   MemoryBars(rows[i]["plan"]["memory"]));
  if (const Ref picture = answer["picture"]; !picture.empty()) {
    const Ref told = rows[static_cast<std::size_t>(picture["row"].number())];
    out += PictureSections(picture, told["plan"], ": " + NameOf(told));
  }
  return out + PricesSection(answer) + LosersSection(answer) +
         Section("advice", "Advice", Listed(TextsIn(answer["advice"]))) +
         Section("assumptions", "What was assumed", Assumptions(answer));
}

std::string PublishedSections(const Ref& answer) {
  const Ref runs = answer["runs"];
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Ref run = runs[i];
    const auto figure = [&](const Ref& pair) {
      const auto one = [&](const Ref& value) {
        return run["quantity"].text() == "goodput" ? PercentOf(value)
                                                   : ThreeDigits(value.number()) + " h";
      };
      return pair[0].json() == pair[1].json() ? one(pair[0]) : one(pair[0]) + " to " + one(pair[1]);
    };
    rows +=
        Row({TextCell(run["run"].text()),
             SpanCell(run["published"],
                      (run["at_least"].is_true() ? "> " : "") + figure(run["published"])),
             SpanCell(run["predicted"], figure(run["predicted"])), TextCell(run["verdict"].text()),
             TextCell(run["known_miss"].text()), TextCell(run["source"].text())});
  }
  return Section(
      "runs", "Published runs",
      HtmlTable("Goodput of published runs, or hours between stops; >: the source "
                "prints a lower bound",
                {"run", "published", "predicted", "result", "why it is missed", "source"}, rows));
}

}  // namespace orrery::report
