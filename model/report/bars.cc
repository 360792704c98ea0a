// SPDX-License-Identifier: Apache-2.0
// Horizontal bars: a stretched drawing between a label and a number, so that they fit every width.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/price/breakdown.h"
#include "model/report/figures.h"
#include "model/report/memory_parts.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

constexpr double kWidth = 1000;  // of a drawing

std::string Rect(double x, double width, std::size_t colour, const Ref& value,
                 const std::string& title) {
  return fmt::format(
      "<rect x=\"{:.3f}\" width=\"{:.3f}\" height=20 class={}{}><title>{}</title></rect>", x, width,
      Colour(colour), Data(value), Escape(title));
}

std::string Bar(const std::string& label, const std::string& rects, const std::string& value) {
  return fmt::format(
      "<div class=bar><div>{}</div><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=none "
      "aria-hidden=true>"
      "<rect class=track width=1000 height=20></rect>{}</svg><div class=v>{}</div></div>\n",
      Escape(label), rects, Escape(value));
}

std::string Bars(const std::string& bars) {
  return bars.empty() ? "" : "<div class=bars>\n" + bars + "</div>";
}

// One piece after the other; nothing without seconds.
struct Piece {
  std::size_t colour;
  std::string name;
  Ref value;
};

std::string Stacked(const std::vector<Piece>& pieces, double scale,
                    std::string (*words)(const Ref&)) {
  std::string rects;
  double at = 0;
  for (const Piece& piece : pieces) {
    const double width = kWidth * piece.value.number() / scale;
    if (!(width > 0)) continue;
    rects += Rect(at, width, piece.colour, piece.value, piece.name + ": " + words(piece.value));
    at += width;
  }
  return rects;
}

// The total of the words, which the bars of tensors do not reach.
std::string MemoryTotal(const Ref& memory, const Ref& stage) {
  std::string rows;
  const auto row = [&](const char* what, const Ref& bytes) {
    if (bytes.number() > 0) rows += Row({TextCell(what), NumberCell(bytes, BytesOf(bytes))});
  };
  row("tensors of the plan", stage["live_peak_bytes"]);
  for (const MemoryPart& part : kMemoryParts) row(part.words, memory[part.key]);
  row("total", memory["total_bytes"]);
  row("capacity", memory["capacity_bytes"]);
  return HtmlTable("What fills a GPU of stage " + stage["stage"].json().dump(), {"what", "bytes"},
                   rows);
}

// The largest tensors at the peak.
std::string LargestTensors(const Ref& largest) {
  std::string rows;
  for (std::size_t i = 0; i < largest.size(); ++i)
    rows +=
        Row({TextCell(largest[i]["name"].text()),
             NumberCell(largest[i]["bytes"], BytesOf(largest[i]["bytes"])),
             NumberCell(largest[i]["micro_batches"], largest[i]["micro_batches"].json().dump())});
  return HtmlTable("Largest tensors of the fullest stage", {"tensor", "bytes", "micro-batches"},
                   rows);
}

// "gathered_weights_bytes" -> "gathered weights".
std::string ClassName(std::string key) {
  if (const std::size_t unit = key.rfind("_bytes"); unit != std::string::npos) key.resize(unit);
  std::ranges::replace(key, '_', ' ');
  return key;
}

}  // namespace

std::string BreakdownBars(const std::vector<StepBar>& bars, const std::string& caption) {
  double scale = 0;
  for (const StepBar& bar : bars) {
    double sum = 0;  // a run's means may come to more than its median step
    for (const BreakdownTerm& term : BreakdownTerms())
      sum += std::max(0.0, bar.breakdown[term.key].number());
    scale = std::max({scale, bar.total.number(), sum});
  }
  if (!(scale > 0)) return "";
  std::string drawn, legend, rows;
  std::vector<std::string> heads = {"part of the step"};
  for (const StepBar& bar : bars) {
    std::vector<Piece> pieces;
    std::size_t colour = 0;
    for (const BreakdownTerm& term : BreakdownTerms())
      pieces.push_back({colour++, term.name, bar.breakdown[term.key]});
    drawn += Bar(bar.label, Stacked(pieces, scale, SecondsOf), SecondsOf(bar.total));
    heads.push_back(bar.label);
  }
  std::size_t colour = 0;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    std::vector<std::string> cells = {TextCell(term.title)};
    bool any = false;
    for (const StepBar& bar : bars) {
      const Ref value = bar.breakdown[term.key];
      any = any || value.number() != 0;
      cells.push_back(NumberCell(value, SecondsOf(value)));
    }
    if (any) {
      legend += LegendItem(colour, term.name);
      rows += Row(cells);
    }
    ++colour;
  }
  return Figure(Bars(drawn) + "<ul class=legend>" + legend + "</ul>", caption,
                HtmlTable("Parts of the step", heads, rows));
}

std::string PartPairs(const Ref& parts, const std::string& caption) {
  double scale = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    scale = std::max({scale, parts[i]["predicted_s"].number(), parts[i]["measured_s"].number()});
  if (!(scale > 0)) return "";
  std::string drawn, rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Ref part = parts[i];
    for (std::size_t side = 0; side < 2; ++side) {
      const Ref value = part[side == 0 ? "predicted_s" : "measured_s"];
      const std::string words = side == 0 ? "predicted" : "measured";
      drawn += Bar(part["work"].text() + ", " + words,
                   Stacked({{side, words, value}}, scale, SecondsOf), SecondsOf(value));
    }
    rows += Row({TextCell(part["work"].text()),
                 NumberCell(part["predicted_s"], SecondsOf(part["predicted_s"])),
                 NumberCell(part["measured_s"], SecondsOf(part["measured_s"])),
                 NumberCell(part["difference_s"], SecondsOf(part["difference_s"])),
                 NumberCell(part["share_of_differences"], PercentOf(part["share_of_differences"])),
                 TextCell(fmt::format("{}", fmt::join(TextsIn(part["constants"]), ", ")))});
  }
  const std::string legend = LegendItem(0, "predicted") + LegendItem(1, "measured");
  return Figure(Bars(drawn) + "<ul class=legend>" + legend + "</ul>", caption,
                HtmlTable("Predicted and measured",
                          {"part", "predicted", "measured", "difference",
                           "share of all differences", "constants that govern it"},
                          rows));
}

std::string MemoryBars(const Ref& memory) {
  const Ref stages = memory["stages"];
  if (stages.empty() || !(memory["capacity_bytes"].number() > 0)) return "";
  const bool mixed = stages[0]["capacity_bytes"].is_number();  // stages are on different GPUs
  const auto capacity = [&](std::size_t stage) {
    return (mixed ? stages[stage] : memory)["capacity_bytes"].number();
  };
  double scale = 0;
  for (std::size_t s = 0; s < stages.size(); ++s)
    scale = std::max({scale, capacity(s), stages[s]["live_peak_bytes"].number()});
  std::string drawn, legend, rows, fullest;
  std::vector<std::string> heads = {"stage"};
  const std::vector<std::string> classes = stages[0]["live_at_peak"].keys();
  for (std::size_t c = 0; c < classes.size(); ++c) {
    bool any = false;
    for (std::size_t s = 0; s < stages.size(); ++s)
      any |= stages[s]["live_at_peak"][classes[c]].number() > 0;
    if (any) legend += LegendItem(c, ClassName(classes[c]));
    heads.push_back(ClassName(classes[c]));
  }
  heads.insert(heads.end(), {"together", "peak at"});
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Ref stage = stages[s], live = stage["live_at_peak"];
    std::vector<Piece> pieces;
    std::vector<std::string> cells = {NumberCell(stage["stage"], stage["stage"].json().dump())};
    for (std::size_t c = 0; c < classes.size(); ++c) {
      pieces.push_back({c, ClassName(classes[c]), live[classes[c]]});
      cells.push_back(NumberCell(live[classes[c]], BytesOf(live[classes[c]])));
    }
    cells.push_back(NumberCell(stage["live_peak_bytes"], BytesOf(stage["live_peak_bytes"])));
    cells.push_back(TextCell(stage["peak_moment"].text()));
    rows += Row(cells);
    std::string limit;
    for (const char* line : {"under", "limit"})
      limit += fmt::format(
          "<line class={0} x1=\"{1:.3f}\" x2=\"{1:.3f}\" y2=20 "
          "vector-effect=non-scaling-stroke></line>",
          line, kWidth * capacity(s) / scale);
    drawn += Bar("stage " + stage["stage"].json().dump(), Stacked(pieces, scale, BytesOf) + limit,
                 BytesOf(stage["live_peak_bytes"]));
    if (stage["stage"].number() == memory["fullest_stage"].number())
      fullest = MemoryTotal(memory, stage) + LargestTensors(stage["largest"]);
  }
  const Ref total = memory["total_bytes"];
  return Figure(
      Bars(drawn) + "<ul class=legend>" + legend + "</ul>",
      fmt::format("Bytes of the plan's tensors at the peak of each stage; dashed: {}.{}",
                  mixed ? "the memory of the stage's GPUs"
                        : fmt::format("the {} of a GPU", BytesOf(memory["capacity_bytes"])),
                  total.is_number()
                      ? fmt::format(" With what framework and allocator add, stage {} needs {}.",
                                    memory["fullest_stage"].json().dump(), BytesOf(total))
                      : ""),
      HtmlTable("Memory by stage and class", heads, rows) + fullest);
}

std::string PlainBars(const std::vector<PlainBar>& bars, const std::string& caption) {
  double scale = 0;
  for (const PlainBar& bar : bars) scale = std::max(scale, std::abs(bar.value.number()));
  if (!(scale > 0)) return "";
  std::string drawn;
  for (const PlainBar& bar : bars)
    drawn +=
        Bar(bar.label,
            Rect(0, kWidth * std::abs(bar.value.number()) / scale, bar.colour, bar.value, bar.text),
            bar.text);
  return Figure(Bars(drawn), caption, "");
}

}  // namespace orrery::report
