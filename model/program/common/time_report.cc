// SPDX-License-Identifier: Apache-2.0
// Times as tables and bars.
#include "model/program/common/time_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "model/base/text.h"
#include "model/program/common/table.h"

namespace orrery::report {
namespace {

constexpr int kTimeBarWidth = 22;
constexpr double kLeastTimeShown = 5e-4;  // of the total

constexpr std::pair<const char*, double> kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3},
                                                         {"s", 1},     {"min", 60},  {"h", 3600}};

}  // namespace

std::string TimeWithInterval(const StepTime& time) {
  const std::string total = Format(Seconds(time.total));
  if (std::isnan(time.low)) return total;
  const std::string unit = total.substr(total.find(' ') + 1);
  double factor = 1;
  for (const auto& [name, seconds] : kTimeUnits) {
    if (unit == name) factor = seconds;
  }
  const auto in_unit = [&](double seconds) {
    const double number = seconds / factor;
    return fmt::format("{:.{}f}", number, number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2);
  };
  // A bound that needs another unit says so.
  if (time.high >= 999.5 * factor || time.low < 0.00995 * factor)
    return fmt::format("{} ({} to {})", total, Format(Seconds(time.low)),
                       Format(Seconds(time.high)));
  return fmt::format("{} ({} to {})", total, in_unit(time.low), in_unit(time.high));
}

std::string BreakdownTable(const Breakdown& time, double total) {
  std::vector<const BreakdownTerm*> terms;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    if (time.*term.seconds > kLeastTimeShown * total) terms.push_back(&term);
  }
  std::stable_sort(terms.begin(), terms.end(), [&](const BreakdownTerm* a, const BreakdownTerm* b) {
    return time.*a->seconds > time.*b->seconds;
  });
  Table table({{""}, {"", true}, {"", true}, {""}});
  for (const BreakdownTerm* term : terms) {
    const double seconds = time.*term->seconds;
    table.Row({term->title, Format(Seconds(seconds)), Percent(seconds / total),
               Bar(seconds / total, kTimeBarWidth)});
  }
  std::string text = table.Text(2, false);
  if (time.Hidden() > 0) {
    text += fmt::format("  Hidden behind compute: {} of communication.\n",
                        Format(Seconds(time.Hidden())));
  }
  return text;
}

StepTime UnknownTime() {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  StepTime time;
  for (const BreakdownTerm& term : BreakdownTerms()) time.*term.seconds = kUnknown;
  for (const CommAxis axis : kCommAxes) time.*HiddenOf(axis) = kUnknown;
  time.total = time.low = time.high = kUnknown;
  return time;
}

nlohmann::ordered_json TimeJson(const Breakdown& time) {
  nlohmann::ordered_json json;
  for (const BreakdownTerm& term : BreakdownTerms()) json[term.key] = time.*term.seconds;
  json["hidden_s"] = time.Hidden();
  return json;
}

}  // namespace orrery::report
