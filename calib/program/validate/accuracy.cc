// SPDX-License-Identifier: Apache-2.0
// The tables of calib/ACCURACY.md.
#include "calib/program/validate/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "calib/program/validate/accuracy_collectives.h"
#include "calib/validate/memory_errors.h"
#include "calib/validate/ranking.h"
#include "model/arch/data_root.h"
#include "model/base/median.h"
#include "model/twin/trust.h"

namespace orrery {
namespace {

using Cases = std::vector<const CasePrediction*>;
using Groups = std::map<std::string, Cases>;

constexpr std::size_t kWorstNamed = 10;

// "1,229".
std::string Count(std::size_t n) {
  return n < 1000 ? fmt::format("{}", n) : fmt::format("{},{:03}", n / 1000, n % 1000);
}

std::string Percent(double share) { return fmt::format("{:.1f}", 100 * share); }
std::string Signed(double share) { return fmt::format("{:+.1f}", 100 * share); }

// Null: the fit has not left out this run. Another file's rows may have the names of the fit's.
const LeftOutRow* FindLeftOut(const LeftOutRows& rows, const char* what,
                              const CasePrediction& one) {
  const auto found = rows.find({what, one.row.name});
  if (found == rows.end()) return nullptr;
  constexpr double kSame = 1e-3;  // digits of the file
  const double measured = found->second.measured, here = one.row.measured_step_s;
  if (measured > 0 && std::abs(measured - here) > kSame * here) return nullptr;
  return &found->second;
}

// The rows of `cases` as the fit without their model (or their source) predicts them; others are absent.
struct LeftOutCases {
  std::vector<CasePrediction> cases;
  int inside = 0, judged = 0;  // of the 80 % interval

  Cases All() const {
    Cases all;
    for (const CasePrediction& one : cases) all.push_back(&one);
    return all;
  }
};

LeftOutCases WithoutModel(const Cases& cases, const LeftOutRows& rows, bool by_source) {
  LeftOutCases out;
  for (const CasePrediction* one : cases) {
    const LeftOutRow* row = FindLeftOut(rows, kStepTimeRow, *one);
    if (row == nullptr || !one->time || (by_source && !row->by_source)) continue;
    out.cases.push_back(*one);
    out.cases.back().time->total =
        one->row.measured_step_s * (by_source ? *row->by_source : row->by_model);
    const std::optional<bool>& inside = by_source ? row->inside_by_source : row->inside_by_model;
    if (!inside) continue;
    ++out.judged;
    out.inside += *inside ? 1 : 0;
  }
  return out;
}

std::string Share(int count, int of) {
  return of == 0 ? "-" : fmt::format("{:.0f}", 100.0 * count / of);
}

// "-": many.
std::string TopologiesOf(const Cases& cases) {
  constexpr std::size_t kMostNamed = 4;
  std::string names;
  std::map<std::string, int> seen;
  for (const CasePrediction* one : cases) ++seen[one->row.topology];
  if (seen.size() > kMostNamed) return "-";
  for (const auto& [name, count] : seen) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// A cell about `rows` of the `of` rows that stand in front of it: how many, where it is not all of them.
std::string OfRows(std::string cell, int rows, int of) {
  if (rows == 0) return "-";
  return rows == of ? cell : fmt::format("{} ({} rows)", cell, rows);
}

// Mean error of the simulated steps.
std::string SimulatedMean(const ErrorSummary& closed, const ErrorSummary& event) {
  return OfRows(Percent(event.mean), event.predicted, closed.predicted);
}

std::string EngineRatio(const Cases& closed, const Cases& event) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < closed.size() && i < event.size(); ++i) {
    if (closed[i]->time && event[i]->time)
      ratios.push_back(event[i]->time->total / closed[i]->time->total);
  }
  return ratios.empty() ? "-" : fmt::format("{:.3f}", Median(std::move(ratios)));
}

std::string StepRow(const std::string& name, const Cases& closed, const Cases& event,
                    const LeftOutRows& left_out) {
  const ErrorSummary all = Summarise(closed);
  if (all.predicted == 0) return "";
  const LeftOutCases model = WithoutModel(closed, left_out, false);
  const LeftOutCases source = WithoutModel(closed, left_out, true);
  const ErrorSummary unseen = Summarise(model.All()), foreign = Summarise(source.All());
  return fmt::format("| {} | {} | {} | {} | {} | {} | {:+.0f} | {} | {} | {} | {} |\n", name,
                     TopologiesOf(closed), all.predicted, Percent(all.mean), Percent(all.median),
                     Signed(all.bias), 100 * all.worst, SimulatedMean(all, Summarise(event)),
                     EngineRatio(closed, event),
                     OfRows(fmt::format("{}, {}", Percent(unseen.mean), Percent(unseen.median)),
                            unseen.predicted, all.predicted),
                     OfRows(Percent(foreign.mean), foreign.predicted, all.predicted));
}

std::string StepSection(const Groups& closed, const Groups& event, const Cases& all_closed,
                        const Cases& all_event, const LeftOutRows& left_out) {
  std::string out =
      "## Step time\n\n"
      "Mean, median, bias (mean of the signed error) and worst error of the closed form. "
      "Simulated: mean error of "
      "`--engine event`. Simulated / closed: median ratio of\nthe two engines. "
      "Leave-one-model-out: mean and median error when the constants are fitted without the runs "
      "of the row's model. Leave-one-source-out: mean error when they are\nfitted without the "
      "row's source: expect it on an uncalibrated cluster.\n\n"
      "| source | cluster | rows | mean | median | bias | worst | simulated | simulated / closed | "
      "leave-one-model-out | leave-one-source-out "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const auto& [name, members] : closed)
    out += StepRow(name, members, event.at(name), left_out);
  return out + StepRow("all", all_closed, all_event, left_out) + "\n";
}

std::string IntervalSection(const Groups& closed, const LeftOutRows& left_out) {
  std::string out =
      "## 80 % interval\n\n"
      "Share of the measured times inside the printed interval, in %; the aim is 80. "
      "Leave-one-out: intervals and predictions from the other rows of the framework, or "
      "from\nother sources.\n\n"
      "| source | rows | as shipped | leave-one-model-out | leave-one-source-out "
      "|\n|---|---|---|---|---|\n";
  for (const auto& [name, members] : closed) {
    const ErrorSummary all = Summarise(members);
    if (all.predicted == 0) continue;
    const LeftOutCases model = WithoutModel(members, left_out, false);
    const LeftOutCases source = WithoutModel(members, left_out, true);
    out += fmt::format("| {} | {} | {:.0f} | {} | {} |\n", name, all.predicted, 100 * all.inside,
                       OfRows(Share(model.inside, model.judged), model.judged, all.predicted),
                       OfRows(Share(source.inside, source.judged), source.judged, all.predicted));
  }
  return out + "\n";
}

constexpr int kManyGroups = 40;  // from here on coverage is due between 75 and 87 %

// Successes of n trials at 0.8 that leave `tail` below them, in % of n.
double BinomialQuantile(int n, double tail) {
  double sum = 0, term = std::pow(0.2, n);  // of k successes
  for (int k = 0; k < n; ++k) {
    sum += term;
    if (sum > tail) return 100.0 * k / n;
    term *= 4.0 * (n - k) / (k + 1);
  }
  return 100;
}

std::string KinshipSection(const std::array<KinErrors, kKins>& kin) {
  std::string rows;
  for (int c = 0; c < kKins; ++c) {
    const KinErrors& one = kin[static_cast<std::size_t>(c)];
    if (one.groups == 0) continue;
    const bool many = one.groups >= kManyGroups;
    rows += fmt::format("| {} | {} | {} | {} | {} | {:.0f} | {:.0f} to {:.0f} |\n",
                        NameOf(static_cast<Kin>(c)), one.groups, one.rows, Percent(one.spread),
                        Percent(std::exp(one.quantile * one.spread) - 1), 100 * one.covered,
                        many ? 75.0 : BinomialQuantile(one.groups, 0.025),
                        many ? 87.0 : BinomialQuantile(one.groups, 0.975));
  }
  if (rows.empty()) return "";
  return fmt::format(
             "Leave-one-out by kinship: each run is predicted from runs that are no closer than "
             "the "
             "class, which an answer names (`model/twin/kinship.h`).\n"
             "Groups: independent groups of runs. Spread and half width: of the residual alone; "
             "constants, priors and an unknown site add to the printed interval.\n"
             "Covered: groups inside the interval that the other groups give. Required: 75 to 87 "
             "from {} groups on, else the 95 % binomial band around 80.\n\n| nearest kin | groups "
             "| rows | spread | half width | "
             "covered | required |\n|---|---|---|---|---|---|---|\n",
             kManyGroups) +
         rows + "\n";
}

std::string RankingCells(const Cases& cases) {
  const RankingSummary r = SummariseRanking(FindSweeps(cases));
  if (r.sweeps == 0) return "- | - | -";
  return fmt::format("{:.2f} | {} | {}", r.tau, Percent(r.regret), Percent(r.worst_regret));
}

std::string RankingSection(const Groups& closed, const Groups& event, const LeftOutRows& left_out) {
  std::string rows;
  for (const auto& [name, members] : closed) {
    const RankingSummary r = SummariseRanking(FindSweeps(members));
    if (r.sweeps == 0) continue;
    rows += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name, r.sweeps, r.rows,
                        RankingCells(members), Share(r.best_found, r.sweeps),
                        RankingCells(event.at(name)),
                        RankingCells(WithoutModel(members, left_out, false).All()));
  }
  if (rows.empty()) return "";
  return fmt::format(
             "## Choice of a layout\n\n"
             "Sweeps: {} or more layouts of one model, cluster and batch. Tau: Kendall's, mean "
             "over sweeps. Regret: % by "
             "which the chosen layout is slower than the best measured\none, mean and worst. Best: "
             "% of sweeps where it is "
             "the best.\n\n"
             "| source | sweeps | rows | tau | regret | worst | best | simulated: tau | regret | "
             "worst | leave-one-model-out: tau | regret | worst "
             "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
             kLeastSwept) +
         rows + "\n";
}

std::string DataParallelSection(const Groups& closed, const Groups& event) {
  const auto alone = [](const Cases& cases) {
    Cases some;
    for (const CasePrediction* one : cases) {
      const Strategy& s = one->row.strategy;
      if (s.tp == 1 && s.pp == 1 && s.data_parallel() > 1) some.push_back(one);
    }
    return some;
  };
  std::string rows;
  for (const auto& [name, members] : closed) {
    const ErrorSummary errors = Summarise(alone(members));
    if (errors.predicted == 0) continue;
    rows +=
        fmt::format("| {} | {} | {} | {} | {} |\n", name, errors.predicted, Percent(errors.mean),
                    Signed(errors.bias), SimulatedMean(errors, Summarise(alone(event.at(name)))));
  }
  if (rows.empty()) return "";
  return "## Data parallelism alone\n\nRows with TP = PP = 1 and several replicas or shards.\n\n"
         "| source | rows | mean | bias | simulated |\n|---|---|---|---|---|\n" +
         rows + "\n";
}

std::string WorstSection(const Cases& cases) {
  Cases sorted;
  for (const CasePrediction* one : cases) {
    if (one->compared()) sorted.push_back(one);
  }
  const auto error = [](const CasePrediction* one) {
    return one->time->total / one->row.measured_step_s - 1;
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) {
    return std::abs(error(a)) > std::abs(error(b));
  });
  sorted.resize(std::min(sorted.size(), kWorstNamed));
  std::string out =
      "## Largest errors\n\n| run | measured s | predicted s | error | inside 80 % "
      "|\n|---|---|---|---|---|\n";
  for (const CasePrediction* one : sorted) {
    const bool inside =
        one->row.measured_step_s >= one->time->low && one->row.measured_step_s <= one->time->high;
    out += fmt::format("| {} | {:.3g} | {:.3g} | {:+.0f} | {} |\n", one->row.name,
                       one->row.measured_step_s, one->time->total, 100 * error(one),
                       inside ? "yes" : "no");
  }
  return out + "\n";
}

// Mean |error| of the memory of rows left out; "-": none.
std::string MemoryLeftOut(const Cases& cases, MemoryKind kind, const LeftOutRows& rows) {
  double sum = 0;
  int count = 0;
  for (const CasePrediction* one : cases) {
    const LeftOutRow* row = FindLeftOut(rows, kMemoryRow, *one);
    if (row == nullptr || one->row.memory_kind != kind) continue;
    sum += std::abs(row->by_model - 1);
    ++count;
  }
  return count == 0 ? "-" : Percent(sum / count);
}

std::string MemorySection(const Groups& closed, const LeftOutRows& left_out) {
  std::string rows;
  for (const auto& [name, members] : closed) {
    for (const auto& [printer, kind] : MemoryPrinters()) {
      const MemoryErrors errors = SummariseMemory(members, kind);
      if (errors.rows == 0) continue;
      rows += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", name, printer, errors.rows,
                          Percent(errors.mean), Signed(errors.bias), Signed(errors.worst),
                          MemoryLeftOut(members, kind, left_out),
                          errors.repeated == 0
                              ? "-"
                              : fmt::format("{}: {}", errors.repeated, Percent(errors.least_mean)));
    }
  }
  if (rows.empty()) return "";
  return "## Memory\n\nPeak of a GPU, by the program that printed it. Repeated: rows with others "
         "of "
         "the same layout, which differ in the\nnumber of micro-batches or in nothing, and the "
         "least mean error on them of any prediction that gives a layout one figure.\n\n"
         "| source | printed by | rows | mean | bias | worst | leave-one-model-out | repeated "
         "|\n|---|---|---|---|---|---|---|---|\n" +
         rows + "\n";
}

std::string Share(double share) { return fmt::format("{:.1f} %", 100 * share); }

// Of the step, all axes.
double ExposedShare(const StepTime& time) {
  return (time.tensor + time.data + time.pipeline) / time.total;
}

std::string SeedSection(const std::vector<CasePrediction>& seeds) {
  std::string out =
      "## Single figures of tutorials\n\n"
      "`calib/data/seed_systems.csv`, in no fit. Parts of their clusters are assumed (the GPU and "
      "network of S12, the sequence length of S2),\nso the errors measure the assumptions as much "
      "as the model. Communication: exposed, share of the step; kernels: those of the passes and "
      "of the update.\n\n"
      "| run | measured s | predicted s | error | interval s | measured communication | predicted "
      "| measured kernels | predicted | "
      "measured GiB | predicted GiB: allocator, device |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const CasePrediction& one : seeds) {
    const auto gib = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.3g}", *value) : "-";
    };
    out += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {} |\n", one.row.name,
        one.row.measured_step_s > 0 ? fmt::format("{:.3g}", one.row.measured_step_s) : kNotPrinted,
        one.time ? fmt::format("{:.3g}", one.time->total) : *one.row.refused,
        one.compared()
            ? fmt::format("{:+.1f} %", 100 * (one.time->total / one.row.measured_step_s - 1))
            : "-",
        one.time ? fmt::format("{:.3g} to {:.3g}", one.time->low, one.time->high) : "-",
        one.row.measured_communication ? Share(*one.row.measured_communication) : "-",
        one.time ? Share(ExposedShare(*one.time)) : "-",
        one.row.measured_kernels ? Share(*one.row.measured_kernels) : "-",
        one.time && one.row.measured_kernels
            ? Share((one.time->compute + one.time->optimizer) / one.time->total)
            : "-",
        gib(one.row.measured_mem_gib), gib(one.predicted_allocator_gib),
        gib(one.predicted_mem_gib));
  }
  return out + "\n";
}

std::string RefusedSection(const std::vector<CasePrediction>& closed,
                           const std::vector<CasePrediction>& event) {
  std::map<std::string, int> reasons;
  for (const CasePrediction& one : closed) {
    if (one.row.refused) ++reasons["closed form: " + *one.row.refused];
  }
  for (const CasePrediction& one : event) {
    if (one.row.refused) ++reasons["simulation: " + *one.row.refused];
  }
  if (reasons.empty()) return "";
  std::string out = "## Not predicted\n\n| rows | reason |\n|---|---|\n";
  for (const auto& [reason, count] : reasons) out += fmt::format("| {} | {} |\n", count, reason);
  return out;
}

// All sources; their rows of one node and of several apart only where either part is large enough to say something.
Groups ShownGroups(const std::vector<CasePrediction>& cases) {
  constexpr std::size_t kLeastOfPart = 4;
  Groups groups = BySource(cases);
  for (const auto& [name, members] : BySource(cases)) {
    const std::string one = name + ", one node", several = name + ", several nodes";
    if (!groups.contains(one) || !groups.contains(several)) continue;
    if (std::min(groups.at(one).size(), groups.at(several).size()) >= kLeastOfPart) continue;
    groups.erase(one);
    groups.erase(several);
  }
  return groups;
}

Cases Pointers(const std::vector<CasePrediction>& cases) {
  Cases all;
  for (const CasePrediction& one : cases) all.push_back(&one);
  return all;
}

}  // namespace

Accuracy MeasureAccuracy(const std::string& path) {
  const std::string data = (std::filesystem::path(DataRoot()) / "calib" / "data").string() + "/";
  Accuracy accuracy;
  accuracy.closed = PredictCases(LoadCases(path));
  accuracy.event = PredictCases(LoadCases(path), Engine::kEvent, 0, false);
  accuracy.left_out = ReadLeftOut(LeftOutPath());
  accuracy.kin = LoadTrust().kin;
  accuracy.seeds = PredictCases(LoadCases(data + "seed_systems.csv"));
  accuracy.collectives = PredictCollectives(
      data + "collective_runs.csv",
      {data + "collectives.csv", data + "aws-g5-tcp.csv", data + "aws-g5-one-card.csv"});
  accuracy.sweeps = LeftOutSweeps();
  return accuracy;
}

std::string RenderAccuracy(const Accuracy& accuracy) {
  const Groups closed = ShownGroups(accuracy.closed), event = ShownGroups(accuracy.event);
  const Cases all_closed = Pointers(accuracy.closed), all_event = Pointers(accuracy.event);
  return fmt::format(
             "# Accuracy\n\n"
             "How far predictions are from published measurements ({} runs; `calib/data/README.md` "
             "names the sources). "
             "Errors are predicted / measured - 1, in %.\n"
             "Written by `plan validate calib/data/published_runs.csv --accuracy "
             "calib/ACCURACY.md`; do not edit. Run it "
             "again after a change of constants or engines.\n\n",
             Count(accuracy.closed.size())) +
         StepSection(closed, event, all_closed, all_event, accuracy.left_out) +
         IntervalSection(closed, accuracy.left_out) + KinshipSection(accuracy.kin) +
         RankingSection(closed, event, accuracy.left_out) + DataParallelSection(closed, event) +
         WorstSection(all_closed) + MemorySection(closed, accuracy.left_out) +
         CollectiveSection(accuracy.collectives, accuracy.sweeps) + SeedSection(accuracy.seeds) +
         RefusedSection(accuracy.closed, accuracy.event);
}

}  // namespace orrery
