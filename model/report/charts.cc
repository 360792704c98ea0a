// SPDX-License-Identifier: Apache-2.0
// Marks on two axes, linear or logarithmic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "model/base/text.h"
#include "model/report/figures.h"
#include "model/report/short_number.h"

namespace orrery::report {
namespace {

constexpr double kLeft = 132, kRight = 14, kTop = 16, kBottom = 52, kWide = 640, kHigh = 400;

// From numbers to the drawing.
class Scale {
 public:
  Scale(const ChartAxis& axis, double low, double high, double from, double to)
      : log_(axis.logarithmic && low > 0), from_(from), to_(to), unit_(axis.unit) {
    if (log_) {
      const double room = std::max(0.06 * std::log(high / low), 0.05);
      low_ = std::log(low) - room;
      high_ = std::log(high) + room;
    } else {
      const double room = high > low ? 0.06 * (high - low) : 0.5 * std::max(1e-9, std::abs(high));
      low_ = axis.from_zero ? 0 : low - room;
      high_ = high + room;
    }
  }

  double At(double value) const {
    return from_ + (to_ - from_) * ((log_ ? std::log(value) : value) - low_) / (high_ - low_);
  }
  double low() const { return log_ ? std::exp(low_) : low_; }
  double high() const { return log_ ? std::exp(high_) : high_; }
  bool logarithmic() const { return log_; }

  std::vector<double> Ticks() const {
    if (!log_) return Even();
    std::vector<double> ticks;
    const double from = low() / unit_, to = high() / unit_;
    for (int decade = static_cast<int>(std::floor(std::log10(from)));; ++decade) {
      const double power = std::pow(10, decade);
      if (power > to) break;
      for (const double step : {1.0, 2.0, 5.0}) {
        if (step * power >= from && step * power <= to) ticks.push_back(step * power * unit_);
      }
    }
    if (ticks.size() < 2) return Even();
    // Decades alone where there are many.
    if (ticks.size() > 9)
      std::erase_if(ticks, [this](double t) {
        const double decades = std::log10(t / unit_);
        return std::abs(decades - std::round(decades)) > 1e-9;
      });
    return ticks;
  }

 private:
  // Round numbers at one distance.
  std::vector<double> Even() const {
    const double from = low() / unit_, to = high() / unit_;
    double step = std::pow(10, std::floor(std::log10((to - from) / 4)));
    for (const double more : {2.0, 2.5, 2.0}) {
      if ((to - from) / step > 6) step *= more;
    }
    std::vector<double> ticks;
    for (double t = std::ceil(from / step) * step; t <= to + 1e-9 * step; t += step)
      ticks.push_back(std::abs(t) < 1e-9 * step ? 0 : t * unit_);
    return ticks;
  }

  const bool log_;
  const double from_, to_, unit_;
  double low_ = 0, high_ = 1;
};

bool Drawable(const Mark& mark, const Chart& chart) {
  const double x = mark.x.number(), y = mark.y.number();
  return std::isfinite(x) && std::isfinite(y) && !(chart.x.logarithmic && x <= 0) &&
         !(chart.y.logarithmic && y <= 0);
}

struct Range {
  double low = INFINITY, high = -INFINITY;
  void Add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// A shape and a colour of its own for each group, so that neither is needed alone; where colours repeat, shapes differ.
std::string Shape(std::size_t group, double x, double y, bool hollow) {
  const std::string start = hollow
                                ? fmt::format("<path class=\"s{} hollow\" d=\"", group % kColours)
                                : fmt::format("<path class={} d=\"", Colour(group));
  switch ((group + 2 * (group / kColours)) % 4) {  // another shape where colours come again
    case 0:
      return start + fmt::format("M{:.2f} {:.2f}m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0\"", x, y);
    case 1:
      return start + fmt::format("M{:.2f} {:.2f}m-5 -5h10v10h-10z\"", x, y);
    case 2:
      return start + fmt::format("M{:.2f} {:.2f}m0 -6.5l6 11h-12z\"", x, y);
    default:
      return start + fmt::format("M{:.2f} {:.2f}m0 -7l6.5 7l-6.5 7l-6.5 -7z\"", x, y);
  }
}

std::string AxisLines(const Chart& chart, const Scale& x, const Scale& y) {
  std::string out;
  const double bottom = kHigh - kBottom;
  for (const double t : x.Ticks())
    out += fmt::format(
        "<line class=grid x1={0:.1f} x2={0:.1f} y1={1} y2={2}></line><text x={0:.1f} y={3} "
        "text-anchor=middle>{4}</text>",
        x.At(t), kTop, bottom, bottom + 18, Escape(chart.x.words(t)));
  for (const double t : y.Ticks())
    out += fmt::format(
        "<line class=grid x1={0} x2={1} y1={2:.1f} y2={2:.1f}></line><text x={3} y={4:.1f} "
        "text-anchor=end>{5}</text>",
        kLeft, kWide - kRight, y.At(t), kLeft - 6, y.At(t) + 4, Escape(chart.y.words(t)));
  out += fmt::format("<rect class=frame x={} y={} width={} height={}></rect>", kLeft, kTop,
                     kWide - kLeft - kRight, kHigh - kTop - kBottom);
  out += fmt::format("<text x={:.0f} y={:.0f} text-anchor=middle>{}</text>",
                     (kLeft + kWide - kRight) / 2, kHigh - 10, Escape(chart.x.title));
  out += fmt::format(
      "<text transform=\"translate(20 {:.0f}) rotate(-90)\" text-anchor=middle>{}</text>",
      (kTop + kHigh - kBottom) / 2, Escape(chart.y.title));
  return out;
}

std::string DataOf(const Ref& limit) { return limit.is_number() ? Data(limit) : ""; }

std::string Limits(const Chart& chart, const Scale& x, const Scale& y) {
  std::string out;
  const double bottom = kHigh - kBottom;
  if (chart.x.limit > 0) {
    const double line = x.At(chart.x.limit);
    constexpr double kLetter = 8;  // no wider on average
    // Without room before the line they stand behind it.
    const bool behind = line - kLetter * static_cast<double>(chart.x.limit_words.size()) < kLeft;
    out += fmt::format(
        "<line class=limit x1={0:.1f} x2={0:.1f} y1={1} y2={2}></line><text class=halo x={3:.1f} "
        "y={4} "
        "text-anchor={5}{7}>{6}</text>",
        line, kTop, bottom, behind ? line + 5 : line - 5, kTop + 15, behind ? "start" : "end",
        Escape(chart.x.limit_words), DataOf(chart.x.limit_at));
  }
  if (chart.y.limit > 0) {
    const double line = y.At(chart.y.limit);
    const double above = line - 5, below = line + 15;
    // At the right end: of days against dollars the dear marks stand on the left.
    out += fmt::format(
        "<line class=limit x1={0} x2={1} y1={2:.1f} y2={2:.1f}></line><text class=halo x={3} "
        "y={4:.1f} text-anchor=end{6}>{5}</text>",
        kLeft, kWide - kRight, line, kWide - kRight - 6, above < kTop + 13 ? below : above,
        Escape(chart.y.limit_words), DataOf(chart.y.limit_at));
  }
  return out;
}

// A straight line in numbers, bent by logarithmic axes; cut at the frame.
std::string Straight(const Scale& x, const Scale& y, double slope) {
  const double low = std::max(x.low(), y.low() / slope),
               high = std::min(x.high(), y.high() / slope);
  std::string path;
  for (int i = 0; i <= 40 && high > low; ++i) {
    const double value =
        x.logarithmic() ? low * std::pow(high / low, i / 40.0) : low + (high - low) * i / 40.0;
    if (y.logarithmic() && value <= 0) continue;
    path +=
        fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.At(value), y.At(slope * value));
  }
  return "<path class=ideal d=\"" + path + "\"></path>";
}

std::string Curves(const Chart& chart, const std::vector<const Mark*>& marks, const Scale& x,
                   const Scale& y) {
  std::string out;
  for (std::size_t g = 0; g < std::max<std::size_t>(1, chart.groups.size()); ++g) {
    std::string path;
    for (const Mark* mark : marks) {
      if (mark->group == g)
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.At(mark->x.number()),
                            y.At(mark->y.number()));
    }
    out += fmt::format("<path class=\"curve s{}\" d=\"{}\"></path>", g % kColours, path);
  }
  return out;
}

std::string Marks(const std::vector<const Mark*>& marks, const Scale& x, const Scale& y) {
  std::string out;
  for (const Mark* mark : marks) {
    const double at_x = x.At(mark->x.number()), at_y = y.At(mark->y.number());
    if (mark->low.is_number() && mark->high.is_number())
      out += fmt::format("<line class=interval x1={0:.1f} x2={0:.1f} y1={1:.1f} y2={2:.1f}></line>",
                         at_x, std::clamp(y.At(mark->low.number()), kTop, kHigh - kBottom),
                         std::clamp(y.At(mark->high.number()), kTop, kHigh - kBottom));
    // Two values: x and y, each with its place.
    out += fmt::format(
        "{} data-p=\"{}\" data-v=\"{}\" data-px=\"{}\" data-vx=\"{}\"><title>{}</title></path>",
        Shape(mark->group, at_x, at_y, mark->hollow), Escape(mark->y.pointer()),
        mark->y.json().dump(), Escape(mark->x.pointer()), mark->x.json().dump(),
        Escape(mark->text));
  }
  return out;
}

std::string Legend(const Chart& chart, const std::vector<const Mark*>& marks) {
  std::set<std::size_t> used;
  for (const Mark* mark : marks) used.insert(mark->group);
  if (chart.groups.size() < 2) return "";
  std::string items;
  for (const std::size_t g : used) {
    if (g >= chart.groups.size()) continue;
    items +=
        fmt::format("<li><svg aria-hidden=true viewBox=\"-7 -7 14 14\">{}></path></svg>{}</li>",
                    Shape(g, 0, 0, false), Escape(chart.groups[g]));
  }
  return "<ul class=legend>" + items + "</ul>";
}

std::string TickDays(double seconds) { return fmt::format("{:g}", seconds / 86400); }

}  // namespace

std::string TickSeconds(double seconds) {
  // Decades of one axis in one unit.
  const double decade = std::log10(seconds);
  if (decade >= 3 && std::abs(decade - std::round(decade)) < 1e-9)
    return fmt::format("{:.0f} s", seconds);
  return Format(Seconds(seconds));
}

std::string TickCount(double number) {
  return number >= 1000 ? Scaled(number) : fmt::format("{:g}", number);
}

namespace {

ChartAxis LimitedAxis(const char* title, std::string (*words)(double), const char* limit,
                      std::string (*given)(double), double unit, const Ref& at) {
  ChartAxis axis{title, true, words};
  axis.unit = unit;
  axis.limit_at = at;
  if (at.is_number()) axis.limit = std::max(0.0, at.number());
  if (at.is_number()) axis.limit_words = fmt::format("{} {}", limit, given(at.number()));
  return axis;
}

}  // namespace

ChartAxis DaysAxis(const Ref& deadline_s) {
  return LimitedAxis("days to train", TickDays, "deadline", GivenDaysOf, 86400, deadline_s);
}

ChartAxis DollarsAxis(const Ref& budget_usd) {
  return LimitedAxis("cost", DollarsOf, "budget", GivenDollarsOf, 1, budget_usd);
}

std::string DrawChart(const Chart& chart) {
  Range x, y;
  std::vector<const Mark*> marks;
  for (const Mark& mark : chart.marks) {
    if (!Drawable(mark, chart)) continue;
    marks.push_back(&mark);
    x.Add(mark.x.number());
    for (const Ref& value : {mark.y, mark.low, mark.high}) {
      if (!chart.y.logarithmic || value.number() > 0) y.Add(value.number());
    }
  }
  if (marks.empty()) return "";
  if (chart.x.limit > 0) x.Add(chart.x.limit);
  if (chart.y.limit > 0) y.Add(chart.y.limit);
  const double first_x = marks.front()->x.number(), first_y = marks.front()->y.number();
  if (chart.proportional) y.Add(first_y / first_x * x.high);
  if (chart.diagonal) {
    x.Add(y.low);
    x.Add(y.high);
    y = x;
  }
  const Scale to_x(chart.x, x.low, x.high, kLeft, kWide - kRight);
  const Scale to_y(chart.y, y.low, y.high, kHigh - kBottom, kTop);
  std::string body = AxisLines(chart, to_x, to_y);
  if (chart.diagonal) body += Straight(to_x, to_y, 1);
  if (chart.proportional) body += Straight(to_x, to_y, first_y / first_x);
  if (chart.joined) body += Curves(chart, marks, to_x, to_y);
  // What matters most stands on top.
  std::ranges::stable_sort(marks,
                           [](const Mark* a, const Mark* b) { return a->hollow > b->hollow; });
  return fmt::format(
      "<div class=\"chart marks\" role=region tabindex=0 aria-label=\"{0}\"><svg viewBox=\"0 0 {1} "
      "{2}\" "
      "role=img "
      "aria-label=\"{0}\">{3}{4}{5}</svg></div>{6}",
      Escape(chart.title), kWide, kHigh, body, Marks(marks, to_x, to_y), Limits(chart, to_x, to_y),
      Legend(chart, marks));
}

}  // namespace orrery::report
