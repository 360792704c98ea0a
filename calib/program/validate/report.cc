// SPDX-License-Identifier: Apache-2.0
// The tables of a validation.
#include "calib/program/validate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "calib/validate/memory_errors.h"
#include "calib/validate/ranking.h"
#include "model/base/text.h"
#include "model/program/common/table.h"

namespace orrery {
namespace {

using report::Table;

double ErrorOf(const CasePrediction& prediction) {
  return prediction.time->total / prediction.row.measured_step_s - 1.0;
}

using Groups = std::map<std::string, std::vector<const CasePrediction*>>;

Groups GroupBy(const std::vector<CasePrediction>& cases,
               const std::function<std::string(const CaseRow&)>& key) {
  Groups groups;
  for (const CasePrediction& c : cases) groups[key(c.row)].push_back(&c);
  return groups;
}

std::string TenthOfPercent(double share) { return fmt::format("{:.1f}", 100 * share); }
std::string SignedPercent(double share) { return fmt::format("{:+.1f}", 100 * share); }
std::string SignedWholePercent(double share) { return fmt::format("{:+.0f}", 100 * share); }

std::string Section(const char* title, const Groups& groups) {
  Table table({{title},
               {"rows", true},
               {"refused", true},
               {"mean", true},
               {"median", true},
               {"bias", true},
               {"worst", true},
               {"in80", true},
               {"worst case"}});
  for (const auto& [name, members] : groups) {
    const ErrorSummary s = Summarise(members);
    std::vector<std::string> row = {name, std::to_string(s.rows),
                                    s.refused > 0 ? std::to_string(s.refused) : "-"};
    if (s.predicted > 0)
      row.insert(row.end(), {TenthOfPercent(s.mean), TenthOfPercent(s.median),
                             SignedPercent(s.bias), SignedWholePercent(s.worst),
                             fmt::format("{:.0f}", 100 * s.inside), s.worst_case});
    table.Row(std::move(row));
  }
  return table.Text(0) + "\n";
}

std::string RankingSection(const Groups& groups) {
  Table table({{"source"},
               {"sweeps", true},
               {"rows", true},
               {"tau", true},
               {"regret", true},
               {"worst", true},
               {"best", true},
               {"worst choice"}});
  for (const auto& [name, members] : groups) {
    const RankingSummary r = SummariseRanking(FindSweeps(members));
    if (r.sweeps == 0) continue;
    table.Row({name, std::to_string(r.sweeps), std::to_string(r.rows), fmt::format("{:.3f}", r.tau),
               TenthOfPercent(r.regret), TenthOfPercent(r.worst_regret),
               fmt::format("{:.0f}", 100.0 * r.best_found / r.sweeps), r.worst_case});
  }
  if (table.rows() == 0) return "";
  return report::Fold(
             fmt::format("Order within sweeps (same model, cluster and batch, {} layouts or more): "
                         "mean of Kendall's tau; regret: slowdown of the chosen layout against the "
                         "best measured one, in %; best: % of sweeps where it is the best.",
                         kLeastSwept),
             0) +
         "\n\n" + table.Text(0) + "\n";
}

std::string MemorySection(const Groups& groups) {
  Table table({{"source"},
               {"allocator's\nrows", true},
               {"peak\nmean", true},
               {"\nbias", true},
               {"\nworst", true},
               {"nvidia-smi's\nrows", true},
               {"\nmean", true},
               {"\nbias", true},
               {"\nworst", true}});
  for (const auto& [name, members] : groups) {
    std::vector<std::string> row = {name};
    int rows = 0;
    for (const MemoryKind kind : {MemoryKind::kAllocator, MemoryKind::kDevice}) {
      const MemoryErrors e = SummariseMemory(members, kind);
      rows += e.rows;
      if (e.rows == 0)
        row.insert(row.end(), {"-", "", "", ""});
      else
        row.insert(row.end(), {std::to_string(e.rows), TenthOfPercent(e.mean),
                               SignedPercent(e.bias), SignedWholePercent(e.worst)});
    }
    if (rows > 0) table.Row(std::move(row));
  }
  if (table.rows() == 0) return "";
  return "Memory, errors in %. Rows without column memory_by count in both halves.\n\n" +
         table.Text(0) + "\n";
}

using Counts = std::map<std::string, int>;

std::string Tally(const char* title, const Counts& counts) {
  if (counts.empty()) return "";
  std::string out = fmt::format("{}\n", title);
  for (const auto& [text, count] : counts) out += fmt::format("{:>6}  {}\n", count, text);
  return out + "\n";
}

constexpr std::size_t kMostNamed = 5;

// Few runs are a user's own: each is shown, with what the sums below hide.
std::string RunsSection(const std::vector<CasePrediction>& cases) {
  constexpr std::size_t kMostShown = 30;
  if (cases.size() > kMostShown) return "";
  Table table(
      {{"run"}, {"measured", true}, {"predicted", true}, {"error", true}, {"80 % interval"}});
  for (const CasePrediction& c : cases) {
    if (!c.compared()) continue;
    table.Row(
        {c.row.name, Format(Seconds(c.row.measured_step_s)), Format(Seconds(c.time->total)),
         SignedPercent(ErrorOf(c)),
         fmt::format("{} to {}", Format(Seconds(c.time->low)), Format(Seconds(c.time->high)))});
  }
  return table.rows() == 0 ? "" : table.Text(0) + "\n";
}

// Rows without a measured time.
std::string UncomparedSection(const std::vector<CasePrediction>& cases) {
  std::string out;
  std::size_t rows = 0;
  for (const CasePrediction& c : cases) {
    if (!c.time || c.compared() || ++rows > kMostNamed) continue;
    out += fmt::format("        {} {}: {} predicted\n", c.row.place, c.row.name,
                       Format(Seconds(c.time->total)));
  }
  if (rows == 0) return "";
  if (rows > kMostNamed) out += fmt::format("        ... and {} more\n", rows - kMostNamed);
  return fmt::format("predicted, nothing to compare\n{:>6}  measured_step_s is not printed\n",
                     rows) +
         out + "\n";
}

// Reasons with the rows that they hold for.
std::string RefusedSection(const std::vector<CasePrediction>& cases) {
  std::map<std::string, std::vector<const CaseRow*>> reasons;
  for (const CasePrediction& c : cases) {
    if (c.row.refused) reasons[*c.row.refused].push_back(&c.row);
  }
  if (reasons.empty()) return "";
  std::string out = "refused rows\n";
  for (const auto& [reason, rows] : reasons) {
    out += fmt::format("{:>6}  {}\n", rows.size(), reason);
    for (std::size_t i = 0; i < std::min(rows.size(), kMostNamed); ++i)
      out += fmt::format("        {} {}\n", rows[i]->place, rows[i]->name);
    if (rows.size() > kMostNamed)
      out += fmt::format("        ... and {} more\n", rows.size() - kMostNamed);
  }
  return out + "\n";
}

// What of the rows the calibration does not cover; their intervals are wider for it.
std::string OutsideSection(const std::vector<CasePrediction>& cases) {
  Counts outside;
  for (const CasePrediction& c : cases) {
    for (const std::string& reason : c.outside) ++outside[reason];
  }
  return Tally("outside the calibrated range", outside);
}

// A published run fitted in memory: where the prediction says otherwise, it or the row is wrong.
std::string UnfitSection(const std::vector<CasePrediction>& cases) {
  Counts unfit;
  for (const CasePrediction& c : cases) {
    if (c.gpu_gib && c.predicted_mem_gib && *c.predicted_mem_gib > 1.1 * *c.gpu_gib)
      ++unfit[fmt::format("{}: more than {:.0f} GiB of a GPU", c.row.topology, *c.gpu_gib)];
  }
  return Tally("predicted to need at least 10 % more memory than available", unfit);
}

}  // namespace

std::map<std::string, std::vector<const CasePrediction*>> BySource(
    const std::vector<CasePrediction>& cases) {
  Groups all = GroupBy(cases, [](const CaseRow& row) { return row.source; });
  Groups groups;
  for (auto& [name, members] : all) {
    const auto one_node = [](const CasePrediction* c) { return c->row.nodes == 1; };
    const auto singles = std::count_if(members.begin(), members.end(), one_node);
    groups[name] = members;
    if (singles == 0 || singles == static_cast<std::ptrdiff_t>(members.size())) continue;
    for (const CasePrediction* c : members)
      groups[name + (one_node(c) ? ", one node" : ", several nodes")].push_back(c);
  }
  return groups;
}

namespace {

// Of what holds memory nothing differs but micro-batches that follow each other.
bool OneLayout(const CaseRow& a, const CaseRow& b) {
  const auto layout = [](const CaseRow& row) {
    const Strategy& s = row.strategy;
    return std::tuple(row.topology, row.gpu, row.framework, s.tp, s.pp, s.vpp, s.data_parallel(),
                      s.zero, s.recompute, s.micro_batch, row.work.seq_len, row.work.precision);
  };
  ModelSpec other = b.model;
  other.name = a.model.name;  // of its row
  return a.model == other && layout(a) == layout(b);
}

// Sum of relative errors of the figure that has the least: one of the readings.
double LeastSum(const std::vector<double>& readings) {
  double least = std::numeric_limits<double>::max();
  for (const double figure : readings) {
    double sum = 0;
    for (const double reading : readings) sum += std::abs(figure / reading - 1);
    least = std::min(least, sum);
  }
  return least;
}

void CountRepeated(std::vector<const CaseRow*> rows, MemoryErrors* errors) {
  while (!rows.empty()) {
    const CaseRow& first = *rows.front();
    std::vector<double> readings;
    std::erase_if(rows, [&](const CaseRow* row) {
      if (!OneLayout(first, *row)) return false;
      readings.push_back(*row->measured_mem_gib);
      return true;
    });
    if (readings.size() < 2) continue;
    errors->repeated += static_cast<int>(readings.size());
    errors->least_mean += LeastSum(readings);
  }
  if (errors->repeated > 0) errors->least_mean /= errors->repeated;
}

}  // namespace

MemoryErrors SummariseMemory(const std::vector<const CasePrediction*>& cases, MemoryKind kind) {
  MemoryErrors errors;
  std::vector<const CaseRow*> rows;
  for (const CasePrediction* c : cases) {
    const auto& predicted =
        kind == MemoryKind::kAllocator ? c->predicted_allocator_gib : c->predicted_mem_gib;
    const bool wanted = c->row.memory_kind == kind || c->row.memory_kind == MemoryKind::kNotSaid;
    if (!wanted || !predicted || !c->row.measured_mem_gib || *c->row.measured_mem_gib <= 0)
      continue;
    const double error = *predicted / *c->row.measured_mem_gib - 1;
    ++errors.rows;
    rows.push_back(&c->row);
    errors.mean += std::abs(error);
    errors.bias += error;
    if (std::abs(error) >= std::abs(errors.worst)) errors.worst = error;
  }
  CountRepeated(std::move(rows), &errors);
  if (errors.rows == 0) return errors;
  errors.mean /= errors.rows;
  errors.bias /= errors.rows;
  return errors;
}

ErrorSummary Summarise(const std::vector<const CasePrediction*>& cases) {
  ErrorSummary summary;
  summary.rows = static_cast<int>(cases.size());
  std::vector<double> sizes;
  int inside = 0;
  for (const CasePrediction* c : cases) {
    summary.refused += c->row.refused.has_value();
    if (!c->compared()) continue;
    const double error = ErrorOf(*c);
    sizes.push_back(std::abs(error));
    summary.mean += std::abs(error);
    summary.bias += error;
    if (std::abs(error) >= std::abs(summary.worst)) {
      summary.worst = error;
      summary.worst_case = c->row.name;
    }
    inside += c->row.measured_step_s >= c->time->low && c->row.measured_step_s <= c->time->high;
  }
  summary.predicted = static_cast<int>(sizes.size());
  if (sizes.empty()) return summary;
  const double n = static_cast<double>(sizes.size());
  summary.mean /= n;
  summary.bias /= n;
  summary.inside = inside / n;
  std::sort(sizes.begin(), sizes.end());
  const std::size_t half = sizes.size() / 2;
  summary.median = sizes.size() % 2 == 1 ? sizes[half] : 0.5 * (sizes[half - 1] + sizes[half]);
  return summary;
}

std::string ValidationBrief(const std::vector<CasePrediction>& cases) {
  std::vector<const CasePrediction*> all;
  for (const CasePrediction& c : cases) all.push_back(&c);
  const ErrorSummary s = Summarise(all);
  std::string text = fmt::format("{} row{}", s.rows, s.rows == 1 ? "" : "s");
  if (s.refused > 0) text += fmt::format(", {} refused", s.refused);
  if (s.predicted == 0) return text + ", none with a step time to compare";
  return fmt::format(
      "{}: step time off by {:.1f} % on average (median {:.1f}, bias {:+.1f}, worst {:+.0f}: {}), "
      "{:.0f} % measured inside the 80 % interval",
      text, 100 * s.mean, 100 * s.median, 100 * s.bias, 100 * s.worst, s.worst_case,
      100 * s.inside);
}

std::string RenderValidation(const std::vector<CasePrediction>& cases) {
  std::string out =
      "Step time, predicted against measured. Errors in %: mean and median of |error|, bias, "
      "worst;\n"
      "in80: measured inside the 80 % interval.\n\n";
  const Groups sources = BySource(cases);
  out += RunsSection(cases) + Section("source", sources);
  out += Section("topology", GroupBy(cases, [](const CaseRow& row) { return row.topology; }));
  Counts notes;
  std::vector<const CasePrediction*> all;
  for (const CasePrediction& c : cases) {
    all.push_back(&c);
    for (const std::string& note : c.row.notes) ++notes[note];
  }
  out += Section("overall", {{"all", all}});
  out += RankingSection(sources) + MemorySection(sources);
  out += UncomparedSection(cases) + RefusedSection(cases) + OutsideSection(cases) +
         UnfitSection(cases);
  out += Tally("how rows were read", notes);
  return out;
}

}  // namespace orrery
