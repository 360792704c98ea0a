// SPDX-License-Identifier: Apache-2.0
// Sections of layouts, searches and several topologies.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "model/base/text.h"
#include "model/report/figures.h"
#include "model/report/short_number.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

// `run`: of all tokens, whose slowest node is not in the steps of the curve. `of`: ": its topology", where there are several.
std::string ScalingSection(const Ref& scaling, bool run = false, const std::string& of = "") {
  if (scaling.size() < 2) return "";
  Chart chart;
  chart.title = "Tokens per second by number of nodes, with the line of ideal scaling";
  chart.x = {"nodes", true, TickCount, 0, "", false};
  chart.y = {"tokens/s", true, Scaled, 0, "", false};
  chart.joined = chart.proportional = true;
  std::string rows;
  for (std::size_t i = 0; i < scaling.size(); ++i) {
    const Ref one = scaling[i], nodes = one["nodes"], rate = one["tokens_per_s"];
    chart.marks.push_back(
        {nodes, rate,
         fmt::format("{}: {} tokens/s, {}", NodesOf(nodes), ScaledOf(rate), one["layout"].text()),
         0, false, Ref::None(), Ref::None()});
    rows += Row({NumberCell(nodes, nodes.json().dump()), TextCell(one["layout"].text()),
                 NumberCell(one["step_time_s"], SecondsOf(one["step_time_s"])),
                 NumberCell(rate, ScaledOf(rate)), NumberCell(one["mfu"], PercentOf(one["mfu"]))});
  }
  return Section(
      "scaling", "Scaling" + of,
      Figure(DrawChart(chart),
             fmt::format("The fastest layout at each node count in closed form, "
                         "same batch, default order of ranks{}. Dashed: proportional to the nodes.",
                         run ? ", without the slowest node of a run (--straggler)" : ""),
             HtmlTable("Scaling" + of, {"nodes", "layout", "step", "tokens/s", "MFU"}, rows)));
}

std::string Title(const Ref& prediction) {
  return fmt::format("{}, {} node{}", prediction["layout"].text(),
                     prediction["nodes"].json().dump(),
                     prediction["nodes"].number() == 1 ? "" : "s");
}

std::vector<std::string> RunHeads(std::vector<std::string> heads) {
  for (const char* head :
       {"days (80 % interval)", "cost (80 % interval)", "goodput", "spares", "energy", "limits"})
    heads.emplace_back(head);
  return heads;
}

std::vector<std::string> RunCells(const Ref& run, bool priced) {
  const Ref span = run["time_interval_s"], cost = run["cost_interval_usd"];
  return {NumberCell(run["time_s"], DaysOf(run["time_s"].number()), span, DaysSpanOf(span)),
          priced ? NumberCell(run["cost_usd"], DollarsOf(run["cost_usd"].number()), cost,
                              DollarsSpanOf(cost))
                 : "<td class=n>no price</td>",
          NumberCell(run["goodput"], PercentOf(run["goodput"])),
          NumberCell(run["spares"], run["spares"].json().dump()),
          NumberCell(run["energy_kwh"], EnergyOf(run)),
          NameCell(run["verdict"].text())};
}

std::string WordsIn(const Ref& text) {
  return text.text().empty() ? "" : Paragraph(text.text() + ".");
}

// Limits in the caption.
std::string TokensWithLimits(const Ref& training) {
  const std::string limits = LimitsOf(training);
  return fmt::format("{} tokens, with failures{}", Count(training["tokens"].number()),
                     limits.empty() ? "" : "; limits: " + limits);
}

std::string TrainingSection(const Ref& training) {
  std::string rows;
  const Ref runs = training["runs"];
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Ref run = runs[i];
    std::vector<std::string> cells = {NumberHead(std::to_string(i + 1))};
    for (std::string& cell : RunCells(run, training["priced"].is_true()))
      cells.push_back(std::move(cell));
    rows += Row(cells);
  }
  if (rows.empty()) return "";
  return Section("training", "The whole training run",
                 HtmlTable(TokensWithLimits(training), RunHeads({"layout"}), rows) +
                     WordsIn(training["placed"]) + WordsIn(training["ranked_by_input"]) +
                     "<p>How the run of layout 1 goes:</p>" +
                     Listed(TextsIn(training["first_run_words"])));
}

struct Placed {
  std::string layout;
  Ref placement;
};

// --placement search: what was found for each layout, against the default order of ranks.
std::string PlacementSection(const std::vector<Placed>& all) {
  std::string out;
  for (const auto& [layout, found] : all) {
    if (found.empty()) continue;
    const Ref step = found["step_time_s"], plain = found["default_step_time_s"],
              closed = found["closed_form"];
    const std::string engine = found["engine"].text() == "event" ? "simulated" : "closed form";
    std::string words = "Found: " + PlacementFlags(found);
    words += fmt::format(": {} less than by default ({}).", PercentOf(found["gain"]), engine);
    if (found["refuted_by_simulation"].is_true())
      words =
          "The closed form prefers another order of ranks, the simulation finds no gain in it: "
          "the default stays.";
    else if (!(found["gain"].number() > 0))
      words = "No order of ranks is faster than the default.";
    const bool given = found["given"].is_true();
    const double gain = found["gain"].number();
    if (given)
      words = fmt::format("Given: --placement {}: {} {} than by default ({}).",
                          found["placement"].text(), Percent(std::abs(gain)),
                          gain < 0 ? "more" : "less", engine);
    else
      words += closed["exact"].is_true() ? " In closed form nothing else is faster."
                                         : " Not all orders and splits were looked at.";
    std::string rows;
    const auto line = [&](const std::string& what, const Ref& value, const std::string& text) {
      rows += Row({"<th scope=row>" + Escape(what) + "</th>", NumberCell(value, text)});
    };
    line("step by default, " + engine, plain, SecondsOf(plain));
    const std::string as = given ? "as given" : "as found";
    line(fmt::format("step {}, {}", as, engine), step, SecondsOf(step));
    line("gain", found["gain"], PercentOf(found["gain"]));
    if (const Ref alone = found["layers_alone_step_time_s"]; alone.is_number())
      line("step with the best layers alone, " + engine, alone, SecondsOf(alone));
    if (const Ref alone = found["order_alone_step_time_s"]; alone.is_number())
      line("step with the best order alone, " + engine, alone, SecondsOf(alone));
    const auto seconds = [&](const char* what, const char* key) {
      line(what, closed[key], SecondsOf(closed[key]));
    };
    std::vector<PlainBar> bars = {{"by default", plain, SecondsOf(plain)},
                                  {as, step, SecondsOf(step)}};
    if (!given) {
      seconds("step by default, closed form", "default_step_time_s");
      seconds("step as found, closed form", "step_time_s");
      seconds("no order can be below, closed form", "lower_bound_s");
      line("partial orders looked at", closed["partial_orders"],
           Count(closed["partial_orders"].number()));
      bars.push_back(
          {"no order can be below", closed["lower_bound_s"], SecondsOf(closed["lower_bound_s"])});
    }
    out += Paragraph(layout + ". " + words) +
           PlainBars(bars, fmt::format("Time of the step, {}{}.", engine,
                                       given ? "" : "; the bound in closed form")) +
           HtmlTable("Placement of ranks: " + layout, {"", ""}, rows);
  }
  return Section("placement", "Placement", out);
}

}  // namespace

std::string PictureSections(const Ref& answer, const Ref& prediction, const std::string& of) {
  if (const std::string why = answer["not_pictured"].text(); !why.empty())
    return Section("timeline", "The step over time" + of, Paragraph("Not drawn: " + why + "."));
  std::string words;
  constexpr double kWorthAWord = 0.005;
  const Ref fixed = prediction["breakdown"]["fixed_s"], step = prediction["step_time_s"];
  if (prediction["engine"].text() == "closed")
    words += "Simulated for this figure; the step time above is in closed form. ";
  if (fixed.number() > kWorthAWord * step.number())
    words += fmt::format("Not drawn: fixed costs, {} of {}.", SecondsOf(fixed), SecondsOf(step));
  const std::string timeline = Timeline(answer["timeline"]);
  return Section("timeline", "The step over time" + of,
                 timeline.empty() || words.empty() ? timeline : Paragraph(words) + timeline) +
         Section("memory-over-time", "Memory over time, by tensor" + of,
                 MemoryOverTime(answer["memory_over_time"], prediction["memory"])) +
         Section("cluster", "The cluster and the load of its links" + of,
                 ClusterDrawing(answer["cluster"]));
}

std::string PredictionSections(const Ref& answer, const Ref& prediction) {
  std::vector<StepBar> bars = {{"this step", prediction["breakdown"], prediction["step_time_s"]}};
  if (const std::string window = answer["window"].text(); !window.empty() && window != "step")
    bars.push_back({"one micro-batch, closed form", answer["micro_step_breakdown"],
                    answer["micro_step_time_s"]});
  if (!answer["closed_form"]["breakdown"].empty())
    bars.push_back(
        {answer["perturbation"].text().empty() ? "closed form" : "closed form, unperturbed",
         answer["closed_form"]["breakdown"], answer["closed_form"]["step_time_s"]});
  return Section("breakdown", "Where the step goes", BreakdownBars(bars)) +
         PictureSections(answer, prediction, "") +
         Section("memory", "Memory at the peak", MemoryBars(prediction["memory"])) +
         PlacementSection({{prediction["layout"].text(), answer["placement"]}}) +
         ScalingSection(answer["scaling"], !answer["training"].empty()) +
         Section("measured", "Predicted against measured",
                 NearestRuns(prediction["nearest_runs"])) +
         Section("assumptions", "What was assumed", Assumptions(answer));
}

std::string SearchSections(const Ref& answer) {
  const Ref ranked = answer["ranked"], best = ranked[0];
  if (best.empty())
    return Section("memory", "Memory of the closest layout",
                   MemoryBars(answer["closest"]["memory"])) +
           Section("assumptions", "What was assumed", Assumptions(answer));
  std::vector<StepBar> bars;
  constexpr std::size_t kMostBars = 6;
  for (std::size_t i = 0; i < std::min(ranked.size(), kMostBars); ++i) {
    const Ref placed = ranked[i]["placement"];
    if (IsMoved(placed))
      bars.push_back({fmt::format("{}, placed: {}", i + 1, Title(ranked[i])), placed["breakdown"],
                      placed["step_time_s"]});
    bars.push_back({fmt::format("{}: {}", i + 1, Title(ranked[i])), ranked[i]["breakdown"],
                    ranked[i]["step_time_s"]});
  }
  std::vector<Placed> placed;
  for (std::size_t i = 0; i < ranked.size(); ++i)
    placed.push_back(
        {fmt::format("{}: {}", i + 1, ranked[i]["layout"].text()), ranked[i]["placement"]});
  const Ref rejections = answer["rejections"];
  std::string rows;
  for (std::size_t i = 0; i < rejections.size(); ++i)
    rows +=
        Row({TextCell(rejections[i]["reason"].text()),
             NumberCell(rejections[i]["strategies"], Count(rejections[i]["strategies"].number())),
             TextCell(rejections[i]["example"].text())});
  return Section("ranking", "Ranking", RankedTable(ranked)) + TrainingSection(answer["training"]) +
         PlacementSection(placed) +
         Section("breakdown", "Where the step goes", BreakdownBars(bars)) +
         PictureSections(answer, best, "") +
         Section("memory", "Memory at the peak of layout 1", MemoryBars(best["memory"])) +
         ScalingSection(answer["scaling"], !answer["training"].empty()) +
         Section("measured", "Predicted against measured", NearestRuns(best["nearest_runs"])) +
         Section("rejected", "Rejected",
                 HtmlTable("Layouts that were rejected", {"reason", "layouts", "example"}, rows)) +
         Section("assumptions", "What was assumed", Assumptions(answer));
}

namespace {

// Days against dollars of the best layouts, where all tokens and a price are known.
std::string DaysAndDollars(const Ref& answer) {
  const Ref all = answer["topologies"], frontier = answer["frontier"];
  if (frontier.empty()) return "";
  std::set<std::size_t> on_it;
  for (std::size_t i = 0; i < frontier.size(); ++i)
    on_it.insert(static_cast<std::size_t>(frontier[i].number()));
  const Ref limits = all[static_cast<std::size_t>(frontier[0].number())]["training"];
  Chart chart;
  chart.title = "Cost against days of the best layout on each topology; the frontier stands out";
  chart.x = DaysAxis(limits["deadline_s"]);
  chart.y = DollarsAxis(limits["budget_usd"]);
  std::map<std::string, std::size_t> groups;
  std::string rows, unpriced;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Ref run = all[i]["training"]["runs"][0], nodes = all[i]["ranked"][0]["nodes"];
    const std::string name = all[i]["topology"]["name"].text();
    if (run.empty()) continue;
    if (!all[i]["training"]["priced"].is_true()) {
      unpriced += (unpriced.empty() ? "" : ", ") + name + ", " + NodesOf(nodes);
      continue;
    }
    const auto [at, added] = groups.try_emplace(name, groups.size());
    if (added) chart.groups.push_back(name);
    const Ref time = run["time_s"], cost = run["cost_usd"], days = run["time_interval_s"],
              dollars = run["cost_interval_usd"];
    const bool stands_out = on_it.contains(i);
    chart.marks.push_back({time, cost,
                           fmt::format("{}, {}: {}, {}", name, NodesOf(nodes),
                                       DaysOf(time.number()), DollarsOf(cost.number())),
                           at->second, !stands_out, stands_out ? dollars[0] : Ref::None(),
                           stands_out ? dollars[1] : Ref::None()});
    rows += Row({TextCell(name), NumberCell(nodes, nodes.json().dump()),
                 NumberCell(time, DaysOf(time.number()), days, DaysSpanOf(days)),
                 NumberCell(cost, DollarsOf(cost.number()), dollars, DollarsSpanOf(dollars)),
                 TextCell(stands_out ? "yes" : "no")});
  }
  std::string caption =
      "One mark for each topology and number of nodes; hollow ones are beaten in days and dollars. "
      "Bars: 80 % interval of the cost.";
  if (!unpriced.empty()) caption += " Not drawn, without a price: " + unpriced + ".";
  return Section("frontier", "Days against dollars",
                 Figure(DrawChart(chart), caption,
                        HtmlTable("Days and dollars of the best layouts",
                                  {"topology", "nodes", "days (80 % interval)",
                                   "cost (80 % interval)", "on the frontier"},
                                  rows)));
}

// Days and dollars first and the layout last: a phone shows three or four columns.
std::vector<std::string> BestCells(const Ref& one, int number, bool priced, bool training,
                                   bool batches) {
  const Ref best = one["ranked"][0], step = best["step_time_interval_s"];
  std::vector<std::string> cells = {NumberHead(std::to_string(number)),
                                    NameCell(one["topology"]["name"].text()),
                                    NumberCell(best["nodes"], best["nodes"].json().dump())};
  if (training) {
    const Ref run = one["training"];
    for (std::string& cell : RunCells(run["runs"][0], run["priced"].is_true()))
      cells.push_back(std::move(cell));
  }
  cells.push_back(
      NumberCell(best["step_time_s"], SecondsOf(best["step_time_s"]), step, SecondsSpanOf(step)));
  if (!training) cells.push_back(NumberCell(best["tokens_per_s"], ScaledOf(best["tokens_per_s"])));
  if (priced)
    cells.push_back(NumberCell(best["price_per_billion_tokens_usd"],
                               DollarsOf(best["price_per_billion_tokens_usd"].number())));
  if (batches)
    cells.push_back(NumberCell(best["global_batch"], best["global_batch"].json().dump()));
  cells.push_back(LayoutCell(best["layout"].text()));
  return cells;
}

std::string NameOfBest(const Ref& one) {
  return fmt::format(": {}, {}", one["topology"]["name"].text(),
                     NodesOf(one["ranked"][0]["nodes"]));
}

std::string RunOfTheBest(const Ref& one) {
  const Ref training = one["training"];
  if (training["runs"][0].empty()) return "";
  return Section("run", "How the run goes" + NameOfBest(one),
                 Paragraph(FoundWords(one, one["ranked"][0]) + ".") +
                     Listed(TextsIn(training["first_run_words"])));
}

std::string BestPictures(const Ref& one) {
  const Ref best = one["ranked"][0];
  if (best.empty()) return "";
  const std::string of = NameOfBest(one);
  return PictureSections(one, best, of) +
         Section("memory", "Memory at the peak" + of, MemoryBars(best["memory"])) +
         ScalingSection(one["scaling"], !one["training"].empty(),
                        ": " + one["topology"]["name"].text());
}

}  // namespace

std::string SeveralSections(const Ref& answer) {
  const Ref all = answer["topologies"];
  std::vector<StepBar> bars;
  std::string rows;
  bool priced = false, training = false, batches = false;  // several, or not the same
  int number = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    priced |= all[i]["ranked"][0]["price_per_billion_tokens_usd"].is_number();
    training |= !all[i]["training"].empty();
    const Ref batch = all[i]["workload"]["global_batch"];
    batches |= batch.size() > 1 || batch.json() != all[0]["workload"]["global_batch"].json();
  }
  priced &=
      !training;  // days and cost of the run say it, and the rate; a page has no room for both
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Ref order = answer["order"][rank];
    const std::size_t i = order.is_number() ? static_cast<std::size_t>(order.number()) : rank;
    const Ref best = all[i]["ranked"][0];
    const std::string name = all[i]["topology"]["name"].text();
    if (best.empty()) {
      rows += Row({NumberHead("-"), TextCell(name), "<td class=n></td>", TextCell("nothing fits")});
      continue;
    }
    bars.push_back({fmt::format("{}, {} node{}", name, best["nodes"].json().dump(),
                                best["nodes"].number() == 1 ? "" : "s"),
                    best["breakdown"], best["step_time_s"]});
    const std::vector<std::string> cells = BestCells(all[i], ++number, priced, training, batches);
    rows += fmt::format("<tr{}>", i == static_cast<std::size_t>(answer["best_index"].number())
                                      ? " class=best"
                                      : "");
    for (const std::string& cell : cells) rows += cell;
    rows += "</tr>\n";
  }
  std::vector<std::string> heads = {"", "topology", "nodes"};
  if (training) heads = RunHeads(std::move(heads));
  heads.emplace_back("step (80 % interval)");
  if (!training) heads.emplace_back("tokens/s");
  if (priced) heads.push_back("per 1e9 tokens");
  if (batches) heads.push_back("batch");
  heads.push_back("layout");
  const Ref told = all[static_cast<std::size_t>(answer["best_index"].number())];
  return Section(
             "ranking", "Topologies",
             HtmlTable("The best layout on each" +
                           (training ? "; " + TokensWithLimits(told["training"]) : std::string()),
                       heads, rows) +
                 WordsIn(answer["passed_over"])) +
         DaysAndDollars(answer) + RunOfTheBest(told) +
         Section("breakdown", "Where the step goes", BreakdownBars(bars)) + BestPictures(told) +
         Section("assumptions", "What was assumed for the best", Assumptions(told));
}

}  // namespace orrery::report
