// SPDX-License-Identifier: Apache-2.0
// Passes of each stage over time, and what fills its memory meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "model/base/text.h"
#include "model/report/figures.h"

namespace orrery::report {
namespace {

constexpr double kTime = 10000;  // width of a drawing
constexpr int kPassHeight = 22, kMessageHeight = 12, kGap = 3, kWaitHeight = 3;
constexpr double kWorthAWord = 0.02;  // of a pass, that its stream waits within it
constexpr int kTicks = 5;

// What is a term of the breakdown has its colour there (BreakdownTerms()), so that one colour means one thing.
struct PhaseRow {
  const char* phase;
  const char* legend;
  std::size_t colour;
};
constexpr PhaseRow kPhases[] = {{"forward", "forward", 0},
                                {"backward", "backward", 12},
                                {"weight_grad", "weight grad", 13},
                                {"recompute", "recompute", 14},
                                {"optimizer", "optimizer, gradient norm", 7},
                                {"grad_norm", "optimizer, gradient norm", 7},
                                {"mixed", "several joined", 15},
                                {"grad_reduce", "gradient reduction", 3},
                                {"param_gather", "gathered weights", 16},
                                {"pipeline", "transfers between stages", 4},
                                {"input", "input", 17},
                                {"setup", "setup", 18}};

const PhaseRow& RowOf(const std::string& phase) {
  const auto* row =
      std::ranges::find_if(kPhases, [&](const PhaseRow& one) { return phase == one.phase; });
  return row == std::end(kPhases) ? *std::prev(std::end(kPhases)) : *row;
}

std::string Words(std::string phase) {
  std::ranges::replace(phase, '_', ' ');
  return phase == "mixed" ? "several joined" : phase;
}

std::string TimeAxis(double seconds) {
  std::string ticks;
  for (int i = 0; i < kTicks; ++i)
    ticks += fmt::format("<span>{}</span>", Format(Seconds(seconds * i / (kTicks - 1))));
  return "<div class=axis>" + ticks + "</div>";
}

// Of a message when its last partner has come.
double BeginOf(const Ref& span) {
  return (span["met_s"].is_number() ? span["met_s"] : span["start_s"]).number();
}

std::string SpanTitle(const Ref& span) {
  std::string words = fmt::format("{} ({})", span["name"].text(), Words(span["phase"].text()));
  if (span["passes"].number() > 1)
    words = fmt::format("{} passes from {}", span["passes"].json().dump(), words);
  if (span["micro_batch"].number() >= 0)
    words += fmt::format(", micro-batch {}", span["micro_batch"].json().dump());
  const double start = BeginOf(span), end = span["end_s"].number(), busy = span["busy_s"].number();
  words =
      fmt::format("{}: {} from {}", words, Format(Seconds(end - start)), Format(Seconds(start)));
  if (const double waits = end - start - busy; waits > kWorthAWord * (end - start))
    words += fmt::format(", of them {} waits", Format(Seconds(waits)));
  return words;
}

struct Lanes {
  std::string rects, labels;
  int height = 0;
  bool waits = false;  // of messages
  std::vector<bool> used = std::vector<bool>(kColours, false);
};

// "stage 3"; of a measured step with a lane for each rank "rank 3".
std::string LaneName(const Ref& lane, bool measured) {
  const char* what = measured ? "rank" : "stage";
  return fmt::format("{} {}", what, lane[what].json().dump());
}

// A thin line up to the message: told from work without colours, at any zoom.
void AddWait(const Ref& span, int height, double seconds, Lanes* lanes) {
  const double waits = BeginOf(span) - span["start_s"].number();
  if (!(waits > 0)) return;
  lanes->waits = true;
  lanes->rects += fmt::format(
      "<rect class=wait x=\"{:.2f}\" y={} width=\"{:.2f}\" height={}{}><title>{} waits for its "
      "partners: {}</title></rect>",
      kTime * span["start_s"].number() / seconds, (height - kWaitHeight) / 2,
      kTime * waits / seconds, kWaitHeight, Data(span, {"start_s", "met_s"}),
      Escape(span["name"].text()), Escape(Format(Seconds(waits))));
}

void AddLane(const Ref& lane, double seconds, bool measured, Lanes* lanes) {
  const bool compute = lane["compute"].is_true();
  const int height = compute ? kPassHeight : kMessageHeight;
  const Ref spans = lane["spans"];
  // Messages are seen however short they are.
  lanes->rects += fmt::format("<g{} transform=\"translate(0 {})\">", compute ? "" : " class=sent",
                              lanes->height);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Ref span = spans[i];
    const double start = kTime * BeginOf(span) / seconds;
    const double width = kTime * span["end_s"].number() / seconds - start;
    const std::size_t colour = RowOf(span["phase"].text()).colour;
    lanes->used[colour] = true;
    const bool message = span["met_s"].is_number();
    if (message) AddWait(span, height, seconds, lanes);
    lanes->rects += fmt::format(
        "<rect x=\"{:.2f}\" width=\"{:.2f}\" height={} class={}{}><title>{}</title></rect>", start,
        width, height, Colour(colour), Data(span, {message ? "met_s" : "start_s", "end_s"}),
        Escape(SpanTitle(span)));
  }
  lanes->rects += "</g>\n";
  lanes->labels +=
      fmt::format("<span style=\"height:{}px;line-height:{}px\">{}</span>", height + kGap, height,
                  Escape(compute ? LaneName(lane, measured) : lane["stream"].text()));
  lanes->height += height + kGap;
}

// What a drawing shows, for those who do not see it.
std::string LaneTable(const Ref& timeline) {
  std::string rows;
  const Ref lanes = timeline["lanes"];
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    const Ref lane = lanes[l], spans = lane["spans"];
    if (spans.empty()) continue;
    double busy = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) busy += spans[i]["busy_s"].number();
    const Ref first = spans[0]["start_s"], last = spans[spans.size() - 1]["end_s"];
    const double waits = std::max(0.0, last.number() - first.number() - busy);
    rows +=
        Row({NumberCell(lane["stage"], lane["stage"].json().dump()),
             NumberCell(lane["rank"], lane["rank"].json().dump()), TextCell(lane["stream"].text()),
             "<td class=n>" + std::to_string(spans.size()) + "</td>",
             NumberCell(first, SecondsOf(first)), NumberCell(last, SecondsOf(last)),
             "<td class=n>" + Escape(Format(Seconds(busy))) + "</td>",
             "<td class=n>" + Escape(Format(Seconds(waits))) + "</td>"});
  }
  return HtmlTable("Streams of the step",
                   {"stage", "rank", "stream", "marks", "begins", "ends", "busy", "waits between"},
                   rows);
}

std::string Caption(const Ref& timeline) {
  const bool measured = timeline["measured"].is_true();
  std::string caption =
      measured ? fmt::format(
                     "Step {} as it ran: a lane for each rank and, below it, for its "
                     "messages. Gaps are waits and the time between ops; {}.",
                     timeline["step"].json().dump(),
                     timeline["meetings_known"].is_true()
                         ? "a thin line in front of a message is its wait for its partners"
                         : "a message also holds the wait for its partners")
               : "One simulated step: a lane for each stage and, below it, for its messages. Gaps "
                 "are waits; a thin line in front of a message is its wait for its partners.";
  const std::string what = measured ? "rank" : "stage";
  std::set<double> shown;
  for (std::size_t l = 0; l < timeline["lanes"].size(); ++l)
    shown.insert(timeline["lanes"][l][what].number());
  if (static_cast<double>(shown.size()) < timeline[what + "s"].number())
    caption +=
        fmt::format(" {} of {} {}s.", shown.size(), timeline[what + "s"].json().dump(), what);
  if (timeline["joined"].number() > 0)
    caption += fmt::format(" {} passes and messages in the middle of their lanes are joined.",
                           timeline["joined"].json().dump());
  if (timeline["clock_error_s"].number() > 0)
    caption +=
        fmt::format(" Clocks of the ranks are known to {}.", SecondsOf(timeline["clock_error_s"]));
  return caption;
}

constexpr const char* kTools =
    "<div class=tools role=group aria-label=\"zoom of the timeline\">"
    "<button type=button data-key=\"+\" aria-label=\"zoom in\">+</button>"
    "<button type=button data-key=\"-\" aria-label=\"zoom out\">&minus;</button>"
    "<button type=button data-key=ArrowLeft aria-label=earlier>&larr;</button>"
    "<button type=button data-key=ArrowRight aria-label=later>&rarr;</button>"
    "<button type=button data-key=0 aria-label=\"whole step\">all</button>"
    "<span class=muted>keys + - &larr; &rarr; 0, drag, Ctrl and wheel, two fingers</span></div>\n";

}  // namespace

std::string Timeline(const Ref& timeline) {
  const Ref all = timeline["lanes"];
  const double seconds = timeline["seconds"].number();
  if (all.empty() || !(seconds > 0)) return "";
  Lanes lanes;
  const bool measured = timeline["measured"].is_true();
  for (std::size_t l = 0; l < all.size(); ++l) AddLane(all[l], seconds, measured, &lanes);
  std::string legend;
  for (const PhaseRow& row : kPhases) {
    if (lanes.used[row.colour]) legend += LegendItem(row.colour, row.legend);
    lanes.used[row.colour] = false;  // two phases may have one
  }
  if (lanes.waits)
    legend +=
        "<li><svg aria-hidden=true viewBox=\"0 0 12 12\"><rect class=wait y=4.5 width=12 "
        "height=3></rect></svg>message waits for its partners</li>";
  const std::string drawing = fmt::format(
      "<div data-zoom=\"{}\">{}<div class=plot><div class=lanes aria-hidden=true>{}</div>"
      "<svg class=zoomed role=img tabindex=0 aria-label=\"When each {} computes and sends in a "
      "step of {}; the table below says the same\" viewBox=\"0 0 {:.0f} {}\" height={} "
      "preserveAspectRatio=none>{}</svg>{}</div><div class=tip aria-hidden=true></div></div>"
      "<ul class=legend>{}</ul>",
      seconds, kTools, lanes.labels, measured ? "rank" : "stage", Escape(Format(Seconds(seconds))),
      kTime, lanes.height, lanes.height, lanes.rects, TimeAxis(seconds), legend);
  return Figure(drawing, Caption(timeline), LaneTable(timeline));
}

namespace {

// Steps: each value holds until the next date.
std::string Area(const Ref& series, const std::vector<double>& x, const std::vector<double>& below,
                 const std::vector<double>& above, std::size_t colour, double height) {
  std::string path;
  const auto at = [&](double bytes) { return 300 * (1 - bytes / height); };
  for (std::size_t i = 0; i < above.size(); ++i)
    path += fmt::format("{}{:.1f} {:.2f}H{:.1f}", i == 0 ? "M" : "L", x[i], at(above[i]), x[i + 1]);
  for (std::size_t i = below.size(); i-- > 0;)
    path += fmt::format("L{:.1f} {:.2f}H{:.1f}", x[i + 1], at(below[i]), x[i]);
  return fmt::format("<path d=\"{}Z\" class={}{}><title>{}</title></path>", path, Colour(colour),
                     DataAll(series["bytes"]), Escape(series["name"].text()));
}

// At least `least` bytes, as so many parts of a round number of KiB, MiB or GiB.
double RoundHeight(double least, int* parts) {
  double unit = 1;
  while (least / unit >= 1000) unit *= 1024;
  const double wanted = least / unit;
  double step = std::pow(10, std::floor(std::log10(wanted / 4)));
  for (const double more : {2.0, 2.5, 2.0}) {
    if (wanted / step > 5) step *= more;
  }
  *parts = static_cast<int>(std::ceil(wanted / step));
  return *parts * step * unit;
}

std::string MemoryOfStage(const Ref& stage, const Ref& capacity, double seconds) {
  const Ref series = stage["series"], dates = stage["time_s"];
  std::vector<double> x;
  for (std::size_t i = 0; i < dates.size(); ++i) x.push_back(kTime * dates[i].number() / seconds);
  x.push_back(kTime);
  std::vector<double> below(dates.size(), 0);
  // The limit is part of the picture where the tensors come near it.
  const double peak = stage["peak_bytes"].number();
  const bool limited = capacity.number() < 2 * peak;
  int parts = 0;
  const double height =
      RoundHeight(1.05 * (limited ? std::max(capacity.number(), peak) : peak), &parts);
  std::string ticks;
  for (int i = parts; i >= 0; --i)
    ticks +=
        fmt::format("<span>{}</span>", i == 0 ? "0" : Escape(Format(Bytes(height * i / parts))));
  std::string areas, legend, rows;
  std::size_t at_peak = 0;
  for (std::size_t i = 0; i < dates.size(); ++i) {
    if (stage["total_bytes"][i].number() > stage["total_bytes"][at_peak].number()) at_peak = i;
  }
  for (std::size_t s = 0; s < series.size(); ++s) {
    const Ref bytes = series[s]["bytes"];
    std::vector<double> above = below;
    for (std::size_t i = 0; i < above.size(); ++i) above[i] += bytes[i].number();
    areas += Area(series[s], x, below, above, s, height);
    below = std::move(above);
    legend += LegendItem(s, series[s]["name"].text());
    rows += Row(
        {TextCell(series[s]["name"].text()), NumberCell(bytes[at_peak], BytesOf(bytes[at_peak]))});
  }
  if (limited)
    for (const char* line : {"under", "limit"})  // seen on areas of any colour
      areas += fmt::format(
          "<line class={0} x2={1:.0f} y1=\"{2:.2f}\" y2=\"{2:.2f}\" "
          "vector-effect=non-scaling-stroke></line>",
          line, kTime, 300 * (1 - capacity.number() / height));
  const std::string drawing = fmt::format(
      "<div class=plot><div class=yaxis aria-hidden=true>{}</div><svg role=img aria-label=\"Bytes "
      "alive on rank {} over a step; the "
      "table "
      "below names the tensors at the peak\" viewBox=\"0 0 {:.0f} 300\" height=300 "
      "preserveAspectRatio=none>{}</svg>{}</div><ul class=legend>{}</ul>",
      ticks, stage["rank"].json().dump(), kTime, areas, TimeAxis(seconds), legend);
  return Figure(
      drawing,
      fmt::format("Stage {}, rank {}: {} at the peak, after {}. Drawn: the most in each interval "
                  "of time.{}",
                  stage["stage"].json().dump(), stage["rank"].json().dump(),
                  BytesOf(stage["peak_bytes"]), SecondsOf(stage["peak_at_s"]),
                  limited ? fmt::format(" Dashed: the {} of the GPU.", BytesOf(capacity)) : ""),
      HtmlTable("Alive at the peak", {"tensor, of all layers", "bytes"}, rows));
}

}  // namespace

std::string MemoryOverTime(const Ref& stages, const Ref& memory) {
  std::string out;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Ref dates = stages[s]["time_s"];
    if (dates.empty()) continue;
    // The step ends where the timeline does; the last date is at most one interval before it.
    const double seconds =
        std::max(stages[s]["seconds"].number(), dates[dates.size() - 1].number());
    const double stage = stages[s]["stage"].number();
    const Ref own = memory["stages"][stage >= 0 ? static_cast<std::size_t>(stage) : 0];
    const Ref capacity = (own["capacity_bytes"].is_number() ? own : memory)["capacity_bytes"];
    if (seconds > 0) out += MemoryOfStage(stages[s], capacity, seconds);
  }
  return out;
}

}  // namespace orrery::report
