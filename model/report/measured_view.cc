// SPDX-License-Identifier: Apache-2.0
// Sections of what was measured: runs, comparisons, validations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/report/figures.h"
#include "model/report/short_number.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

std::string TickLoss(double loss) { return fmt::format("{:.5g}", loss); }

// Of so many things each n-th is drawn, at most `most`.
std::size_t StrideFor(std::size_t all, std::size_t most) {
  return std::max<std::size_t>(1, (all + most - 1) / most);
}

std::string OneOf(std::size_t stride, const std::string& noun) {
  return stride == 1 ? "each " + noun : fmt::format("one {} in {}", noun, stride);
}

}  // namespace

std::string RunSections(const Ref& answer) {
  const Ref steps = answer["steps"];
  Chart times, losses;
  times.title = "Seconds of each step";
  times.x = {"step", false, TickCount, 0, "", false};
  times.y = {"step time", false, TickSeconds, 0, "", true};
  losses.title = "Loss of each step";
  losses.x = times.x;
  losses.y = {"loss", false, TickLoss, 0, "", false};
  losses.joined = true;
  times.groups = {"alone on the machine", "disturbed by other programs"};
  std::string rows;
  const std::size_t stride = StrideFor(steps.size(), 500);
  for (std::size_t i = 0; i < steps.size(); i += stride) {
    const Ref step = steps[i], number = step["step"];
    times.marks.push_back(
        {number, step["seconds"],
         fmt::format("step {}: {}", number.json().dump(), SecondsOf(step["seconds"])),
         step["disturbed"].is_true() ? std::size_t{1} : std::size_t{0}, false, Ref::None(),
         Ref::None()});
    losses.marks.push_back(
        {number, step["loss"],
         fmt::format("step {}: loss {}", number.json().dump(), TickLoss(step["loss"].number())), 0,
         false, Ref::None(), Ref::None()});
    rows += Row(
        {NumberCell(number, number.json().dump()),
         NumberCell(step["seconds"], SecondsOf(step["seconds"])),
         NumberCell(step["loss"], fmt::format("{:.6g}", step["loss"].number())),
         NumberCell(step["gradient_norm"], fmt::format("{:.4g}", step["gradient_norm"].number()))});
  }
  // The first step may take a thousand times as long as the others.
  constexpr double kFarApart = 20;
  double fastest = INFINITY, slowest = 0;
  for (const Mark& mark : times.marks) {
    fastest = std::min(fastest, mark.y.number());
    slowest = std::max(slowest, mark.y.number());
  }
  if (fastest > 0 && slowest > kFarApart * fastest)
    times.y = {"step time", true, TickSeconds, 0, "", false};
  const Ref ranks = answer["per_rank"];
  std::string by_rank;
  const std::size_t rank_stride = StrideFor(ranks.size(), 256);
  for (std::size_t i = 0; i < ranks.size(); i += rank_stride) {
    const Ref rank = ranks[i];
    by_rank += Row({NumberCell(rank["rank"], rank["rank"].json().dump()),
                    NumberCell(rank["compute_s"], SecondsOf(rank["compute_s"])),
                    NumberCell(rank["communicate_s"], SecondsOf(rank["communicate_s"])),
                    NumberCell(rank["wait_s"], SecondsOf(rank["wait_s"])),
                    NumberCell(rank["arena_bytes"], BytesOf(rank["arena_bytes"]))});
  }
  const std::string undrawn = answer["not_pictured"].text();
  const std::string timeline =
      undrawn.empty() ? Timeline(answer["timeline"]) : Paragraph("Not drawn: " + undrawn + ".");
  return Section("steps", "Steps",
                 Figure(DrawChart(times) + DrawChart(losses),
                        "Time and loss of " + OneOf(stride, "step") + ".",
                        HtmlTable("Steps", {"step", "time", "loss", "gradient norm"}, rows))) +
         Section("breakdown", "Where the step goes",
                 BreakdownBars({{"step", answer["breakdown"], answer["step_time_s"]["median"]}},
                               "Means over ranks and steps, the first step left out; the number "
                               "is the median step.")) +
         Section("timeline", "The last step over time", timeline) +
         Section("ranks", "Ranks",
                 HtmlTable("Median of " + OneOf(rank_stride, "rank") +
                               "; arena: memory that holds all buffers of the plan",
                           {"rank", "compute", "communication", "wait", "arena"}, by_rank));
}

std::string ComparisonSections(const Ref& answer) {
  std::string out = Section(
      "steps", "Both steps",
      PlainBars({{"predicted", answer["predicted_step_s"], SecondsOf(answer["predicted_step_s"])},
                 {"measured", answer["measured_step_s"], SecondsOf(answer["measured_step_s"]), 1}},
                "Time of the step."));
  out += Section("parts", "Predicted against measured, by part",
                 PartPairs(answer["by_part"], "The terms of both steps, on one scale of time."));
  return out + Section("work", "By kind of work",
                       PartPairs(answer["by_work"],
                                 "Seconds of a rank in a step. Streams run concurrently, so kinds "
                                 "add up to more than the step."));
}

namespace {

std::string CaseRow(const Ref& one) {
  const double measured = one["measured_step_s"].number(),
               predicted = one["predicted_step_s"].number();
  const Ref span = one["interval_s"];
  return Row({TextCell(one["case"].text()), TextCell(one["source"].text()),
              NumberCell(one["measured_step_s"], SecondsOf(one["measured_step_s"])),
              NumberCell(one["predicted_step_s"], SecondsOf(one["predicted_step_s"]), span,
                         SecondsSpanOf(span)),
              "<td class=n>" + Percent(predicted / measured - 1) + "</td>"});
}

std::string ScatterSection(const Ref& cases) {
  constexpr std::size_t kMostMarks = 2000;  // 700 bytes each, with its row of the table
  Chart chart;
  chart.title = "Predicted against measured step time of every run; on the line they are equal";
  chart.x = {"measured", true, TickSeconds, 0, "", false};
  chart.y = {"predicted", true, TickSeconds, 0, "", false};
  chart.diagonal = true;
  std::vector<std::size_t> both;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i]["measured_step_s"].is_number() && cases[i]["predicted_step_s"].is_number())
      both.push_back(i);
  }
  const std::size_t stride = StrideFor(both.size(), kMostMarks);
  std::map<std::string, std::size_t> groups;
  std::string rows;
  for (std::size_t i = 0; i < both.size(); i += stride) {
    const Ref one = cases[both[i]];
    const std::string source = one["source"].text();
    const auto [at, added] = groups.try_emplace(source, groups.size());
    if (added) chart.groups.push_back(source);
    chart.marks.push_back(
        {one["measured_step_s"], one["predicted_step_s"],
         fmt::format("{}: {} measured, {} predicted", one["case"].text(),
                     SecondsOf(one["measured_step_s"]), SecondsOf(one["predicted_step_s"])),
         at->second, false, Ref::None(), Ref::None()});
    rows += CaseRow(one);
  }
  return Section(
      "measured", "Predicted against measured",
      Figure(DrawChart(chart), "One mark for " + OneOf(stride, "run") + ", by source.",
             HtmlTable("Runs; error: predicted / measured - 1",
                       {"run", "source", "measured", "predicted (80 % interval)", "error"}, rows)));
}

}  // namespace

std::string ValidationSections(const Ref& answer) {
  const Ref cases = answer["cases"], sources = answer["sources"];
  std::string rows;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Ref one = sources[i];
    rows += Row({TextCell(one["source"].text()), NumberCell(one["rows"], one["rows"].json().dump()),
                 NumberCell(one["predicted"], one["predicted"].json().dump()),
                 NumberCell(one["mean"], PercentOf(one["mean"])),
                 NumberCell(one["median"], PercentOf(one["median"])),
                 NumberCell(one["bias"], PercentOf(one["bias"])),
                 NumberCell(one["worst"], PercentOf(one["worst"])),
                 NumberCell(one["inside_80"], PercentOf(one["inside_80"]))});
  }
  std::map<std::string, int> refused;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (const std::string why = cases[i]["refused"].text(); !why.empty()) ++refused[why];
  }
  std::string why;
  for (const auto& [reason, count] : refused)
    why += Row({"<td class=n>" + std::to_string(count) + "</td>", TextCell(reason)});
  return ScatterSection(cases) +
         Section("sources", "Errors by source",
                 HtmlTable("Errors are predicted / measured - 1",
                           {"source", "rows", "predicted", "mean", "median", "bias", "worst",
                            "inside 80 %"},
                           rows)) +
         Section("refused", "Not predicted",
                 HtmlTable("Rows without a prediction", {"rows", "reason"}, why));
}

}  // namespace orrery::report
