// SPDX-License-Identifier: Apache-2.0
// Sections of the report of `plan simulate`.
#include "model/program/simulate/analysis_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"

namespace orrery::report {
namespace {

constexpr std::size_t kStretchesShown = 5;
constexpr std::size_t kStretchesInJson = 20;
constexpr double kLeastOfPath = 5e-4;  // of the step
constexpr int kPathBarWidth = 22;
constexpr std::size_t kMostRowsShown = 8;

std::string StretchWords(const sim::PathStretch& stretch) {
  return stretch.first == stretch.last ? stretch.first
                                       : fmt::format("{} to {}", stretch.first, stretch.last);
}

std::vector<sim::PathStretch> LongestStretches(const sim::CriticalPath& path, std::size_t most) {
  std::vector<sim::PathStretch> longest = path.stretches;
  std::ranges::stable_sort(longest, std::greater<>(), &sim::PathStretch::seconds);
  if (longest.size() > most) longest.resize(most);
  return longest;
}

}  // namespace

std::string BreakdownSection(const StepAnalysis& analysis) {
  std::string text = fmt::format("\nWhere the step goes, on rank {} (longest compute)\n{}",
                                 analysis.rank, BreakdownTable(analysis.time, analysis.time.total));
  Table table({{"link"}, {"", true}, {"", true}, {"slows"}, {"shared with"}});
  for (const sim::SharedLink& link : analysis.contention) {
    if (link.seconds < kLeastOfPath * analysis.time.total || table.rows() == kMostRowsShown) break;
    const std::vector<std::string> others = sim::SharedWith(link);
    table.Row({link.link.empty() ? "-" : link.link, Format(Seconds(link.seconds)),
               Percent(link.seconds / analysis.time.total), AxisWords(link.axis),
               others.empty() ? "no other group" : fmt::format("{}", fmt::join(others, ", "))});
  }
  return table.rows() == 0 ? text : text + "\nContention by link\n" + table.Text();
}

// One row per stage, the columns of the breakdown; every row adds up to the step.
std::string StageSection(const StepAnalysis& analysis) {
  if (analysis.of_ranks.size() < 2) return "";
  Table table({{"stage", true},
               {"rank", true},
               {"compute", true},
               {"exposed\ncommunication", true},
               {"contention", true},
               {"bubble", true},
               {"host", true},
               {"optimizer\nand fixed", true}});
  std::size_t longest = 0;
  for (std::size_t i = 0; i < analysis.memory.size(); ++i) {
    if (analysis.memory[i].rank == analysis.rank) longest = i;
  }
  const auto part = [&](double seconds) { return Percent(seconds / analysis.time.total); };
  for (const std::size_t i : ShownRows(analysis.of_ranks.size(), kMostRowsShown, longest)) {
    const Breakdown& time = analysis.of_ranks[i];
    table.Row({std::to_string(analysis.memory[i].stage), std::to_string(analysis.memory[i].rank),
               part(time.compute), part(time.Exposed()), part(time.contention), part(time.bubble),
               part(time.host), part(time.optimizer + time.fixed)});
  }
  return "\nThe same by stage, on the GPU with the longest compute\n" + table.Text();
}

std::string PathSection(const StepAnalysis& analysis) {
  const sim::CriticalPath& path = analysis.path;
  const double step = analysis.time.total;
  Table classes({{""}, {"", true}, {"", true}, {""}});
  for (const sim::PathClass& part : path.classes) {
    if (part.seconds < kLeastOfPath * step) continue;
    classes.Row({part.name, Format(Seconds(part.seconds)), Percent(part.seconds / step),
                 Bar(part.seconds / step, kPathBarWidth)});
  }
  std::string text = "\nCritical path: what the step waited for, from beginning to end\n";
  text += classes.Text(2, false);
  if (path.stretches.size() == 1) return text;
  text +=
      fmt::format("  It changes rank {} times; its longest stays:\n", path.stretches.size() - 1);
  Table stays({{"rank", true}, {"stage", true}, {"from", true}, {"for", true}, {"blocks"}});
  for (const sim::PathStretch& stretch : LongestStretches(path, kStretchesShown)) {
    stays.Row({std::to_string(stretch.rank), std::to_string(stretch.stage),
               Format(Seconds(stretch.begin)), Format(Seconds(stretch.seconds())),
               StretchWords(stretch)});
  }
  return text + stays.Text();
}

std::string MemorySection(const StepAnalysis& analysis) {
  const std::vector<MemoryUse>& memory = analysis.memory;
  Table table({{"stage", true},
               {"rank", true},
               {"allocated", true},
               {"live at the peak", true},
               {"static layout", true},
               {"peak at", true},
               {""}});
  std::size_t fullest = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].need.allocated() > memory[fullest].need.allocated()) fullest = i;
  }
  for (const std::size_t i : ShownRows(memory.size(), kMostRowsShown, fullest)) {
    const MemoryUse& use = memory[i];
    table.Row({std::to_string(use.stage), std::to_string(use.rank), Format(use.need.allocated()),
               Format(use.need.need.live), Format(use.need.arena), Format(Seconds(use.peak_time)),
               use.need.moment.words});
  }
  return "\nPeak memory, on the same GPUs\n" + table.Text();
}

void AddAnalysisJson(const StepAnalysis& analysis, nlohmann::ordered_json* json) {
  nlohmann::ordered_json& links = (*json)["contention_on_links"] = nlohmann::ordered_json::array();
  for (const sim::SharedLink& link : analysis.contention) {
    links.push_back({{"link", link.link},
                     {"term", AxisWords(link.axis)},
                     {"contention_s", link.seconds},
                     {"shared_with", sim::SharedWith(link)}});
  }
  nlohmann::ordered_json classes, stretches = nlohmann::ordered_json::array();
  for (const sim::PathClass& part : analysis.path.classes) classes[part.name] = part.seconds;
  for (const sim::PathStretch& stretch : LongestStretches(analysis.path, kStretchesInJson)) {
    stretches.push_back({{"rank", stretch.rank},
                         {"stage", stretch.stage},
                         {"begin_s", stretch.begin},
                         {"end_s", stretch.end},
                         {"first", stretch.first},
                         {"last", stretch.last}});
  }
  (*json)["critical_path"] = {{"seconds_by_class", classes},
                              {"tasks", analysis.path.tasks},
                              {"rank_changes", analysis.path.stretches.size() - 1},
                              {"longest_stretches", stretches}};
}

void AddRankAnalysis(const StepAnalysis& analysis, std::size_t i, nlohmann::ordered_json* rank) {
  const MemoryUse& memory = analysis.memory[i];
  (*rank)["memory_allocated_bytes"] = memory.need.allocated().value;
  (*rank)["memory_peak_bytes"] = memory.need.need.live.value;
  (*rank)["memory_peak_at_s"] = memory.peak_time;
  (*rank)["memory_layout_bytes"] = memory.need.arena.value;
  (*rank)["breakdown"] = TimeJson(analysis.of_ranks[i]);
}

}  // namespace orrery::report
