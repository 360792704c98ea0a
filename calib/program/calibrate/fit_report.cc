// SPDX-License-Identifier: Apache-2.0
// Tables of a fit.
#include "calib/program/calibrate/fit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orrery {
namespace {

constexpr int kLeastCovered = 20;

const char* NameOf(FitStatus status) {
  switch (status) {
    case FitStatus::kFitted:
      return "fitted";
    case FitStatus::kWeak:
      return "weak";
    case FitStatus::kKept:
      return "kept";
  }
  return "";
}

struct Errors {
  double mean = 0, median = 0, bias = 0, p90 = 0;
};

Errors Describe(const std::vector<double>& logs) {
  Errors errors;
  std::vector<double> sizes;
  for (double log : logs) {
    const double error = std::exp(log) - 1.0;
    errors.mean += std::abs(error) / static_cast<double>(logs.size());
    errors.bias += error / static_cast<double>(logs.size());
    sizes.push_back(std::abs(error));
  }
  std::sort(sizes.begin(), sizes.end());
  const std::size_t n = sizes.size();
  errors.median = 0.5 * (sizes[(n - 1) / 2] + sizes[n / 2]);
  errors.p90 = sizes[static_cast<std::size_t>(0.9 * static_cast<double>(n - 1))];
  return errors;
}

std::string Line(const std::string& name, const std::vector<int>& rows, const FitResult& result,
                 const std::vector<double>& unseen, const std::map<int, bool>& inside) {
  const auto pick = [&](const std::vector<double>& all) {
    std::vector<double> some;
    for (int row : rows) some.push_back(all[row]);
    return some;
  };
  const Errors fit = Describe(pick(result.error));
  std::string text = fmt::format("{:<34}{:>5}{:>8.2f}{:>8.2f}{:>+8.2f}", name, rows.size(),
                                 100 * fit.mean, 100 * fit.median, 100 * fit.bias);
  if (unseen.empty()) return text + "\n";
  const Errors left = Describe(pick(unseen));
  text += fmt::format("  |{:>7.2f}{:>8.2f}{:>+8.2f}{:>7.1f}", 100 * left.mean, 100 * left.median,
                      100 * left.bias, 100 * left.p90);
  int known = 0, hits = 0;
  for (int row : rows) {
    const auto found = inside.find(row);
    if (found == inside.end()) continue;
    ++known;
    hits += found->second;
  }
  return text + (known > 0 ? fmt::format("{:>6.0f}\n", 100.0 * hits / known) : "     -\n");
}

// Sources with few rows say little about a share of 80 %.
std::string CoverageLine(const Evidence& evidence, const std::map<int, bool>& inside) {
  std::map<std::string, std::pair<int, int>> sources;  // inside, rows
  for (const auto& [row, hit] : inside) {
    auto& [hits, rows] = sources[evidence.observations()[row]->source];
    hits += hit;
    ++rows;
  }
  std::string out;
  for (const auto& [source, count] : sources) {
    if (count.second < kLeastCovered) continue;
    out += fmt::format("{}{} {:.0f} % of {}", out.empty() ? "inside the 80 % interval: " : ", ",
                       source, 100.0 * count.first / count.second, count.second);
  }
  return out.empty() ? "" : out + "\n";
}

// Errors and intervals by kinship.
std::string KinshipLines(const std::vector<KinError>& errors) {
  if (errors.empty()) return "";
  const KinModel model = FitAndCover(errors);
  std::string out = fmt::format("{:<38}{:>7}{:>6}{:>8}{:>9}{:>9}\n", "leave-one-out by kinship",
                                "groups", "rows", "spread", "quantile", "covered");
  for (int kin = 0; kin < kKins; ++kin) {
    const KinErrors& one = model.kin[static_cast<std::size_t>(kin)];
    if (one.groups == 0) continue;
    out += fmt::format("{:<38}{:>7}{:>6}{:>8.3f}{:>9.2f}{:>7.0f} %\n",
                       orrery::NameOf(static_cast<Kin>(kin)), one.groups, one.rows, one.spread,
                       one.quantile, 100 * one.covered);
  }
  return out;
}

}  // namespace

std::string RenderConstants(const FitResult& result) {
  std::string out = fmt::format("{:<54}{:>12}{:>12}{:>8}{:>7}{:>6}  {}\n", "constant", "before",
                                "after", "spread", "ratio", "rows", "");
  for (const FittedConstant& constant : result.constants) {
    const FitParameter& p = constant.parameter;
    out += fmt::format("{:<54}{:>12}{:>12}{:>8.2g}{:>7.2f}{:>6}  {}{}\n", p.names.front().Text(),
                       FormatConstant(p.before, p.kind), FormatConstant(constant.after, p.kind),
                       constant.spread, constant.ratio, constant.points, NameOf(constant.status),
                       constant.bound ? ", at its bound" : "");
    for (std::size_t i = 1; i < p.names.size(); ++i)
      out += fmt::format("  = {}\n", p.names[i].Text());
  }
  return out +
         "spread: relative; ratio: of the spread after over the prior's; rows that move with it.\n"
         "kept: the data do not determine it, the prior stays; weak: mostly its prior.\n";
}

std::string RenderSites(const FitResult& result) {
  constexpr double kEightyPercent = 1.2816;  // standard deviations of a normal distribution
  constexpr double kFarSite = 1.4;           // the sites of calib/profiles lie between 0.95 and 1
  std::string out;
  for (const FittedConstant& constant : result.constants) {
    const ConstantName& name = constant.parameter.names.front();
    if (name.key != "site_factor" || constant.status == FitStatus::kKept) continue;
    const double width = std::exp(kEightyPercent * constant.spread);
    out += fmt::format(
        "{}: kernels and host take {:.3g} times what they take elsewhere (80 % interval {:.3g} to "
        "{:.3g}, from {} row{})\n",
        name.file, constant.after, constant.after / width, constant.after * width, constant.points,
        constant.points == 1 ? "" : "s");
    if (constant.after > kFarSite || constant.after < 1 / kFarSite)
      out +=
          "  far from 1: more likely the topology, the layout or the window of the log is not as "
          "described\n";
  }
  return out;
}

std::string RenderUnexplained(const Evidence& evidence, const FitResult& result) {
  constexpr double kFar = 0.34;  // of the logarithm: a factor of 1.4, as of sites
  std::string out;
  for (std::size_t i = 0; i < result.error.size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    if (!seen.step_time || std::abs(result.error[i]) < kFar) continue;
    out += fmt::format(
        "{}: measured {}, predicted {} with the factor: it does not explain this run; more likely "
        "the topology, the layout or the window of the log is not as described\n",
        seen.name, Format(Seconds(seen.measured)),
        Format(Seconds(seen.measured * std::exp(result.error[i]))));
  }
  return out;
}

std::string RenderErrors(const Evidence& evidence, const FitResult& result, Holdout holdout,
                         const Unseen& left_out, const std::vector<KinError>& by_kinship) {
  const std::vector<double>& unseen = left_out.error;
  std::map<std::string, std::vector<int>> groups;
  const auto& seen = evidence.observations();
  for (std::size_t i = 0; i < seen.size(); ++i)
    groups[seen[i]->group].push_back(static_cast<int>(i));
  const std::map<int, bool> inside = by_kinship.empty()
                                         ? std::map<int, bool>{}
                                         : Coverage(evidence, holdout, left_out, by_kinship);
  std::string out =
      fmt::format("{:<34}{:>5}{:>8}{:>8}{:>8}", "rows (errors in %)", "n", "fit", "median", "bias");
  if (!unseen.empty())
    out += fmt::format("  |{:>7}{:>8}{:>8}{:>7}{:>6}", "unseen", "median", "bias", "p90", "in80");
  out += "\n";
  for (const auto& [name, rows] : groups) out += Line(name, rows, result, unseen, inside);
  if (unseen.empty()) return out;
  return out + CoverageLine(evidence, inside) +
         fmt::format(
             "fit: mean |error| of the fitted rows; unseen: leave-one-{}-out.\nin80: inside the "
             "interval from the errors of the other groups, by kinship.\n",
             orrery::NameOf(holdout)) +
         KinshipLines(by_kinship);
}

std::string RenderKept(const CaseSource& kept, const FitResult& result, const Trust& trust,
                       ProfileStore store) {
  for (const FittedConstant& constant : result.constants)
    constant.parameter.Apply(constant.after, &store);
  std::vector<int> all(kept.observations().size());
  std::iota(all.begin(), all.end(), 0);
  std::vector<double> values;
  kept.Predict(store, all, &values);
  const std::vector<Confidence> confidences = kept.Confidences(store, trust);
  const auto text = [](double seconds) { return FormatConstant(seconds, ConstantKind::kSeconds); };
  std::string out = fmt::format("{:<34}{:>12}{:>12}{:>9}{:>24}\n", "predicted, not fitted",
                                "measured", "predicted", "error", "80 % interval");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Observation& seen = kept.observations()[i];
    const Confidence& in = confidences[i];
    const bool inside = seen.measured >= in.low && seen.measured <= in.high;
    out += fmt::format("{:<34}{:>12}{:>12}{:>+7.1f} %{:>24}{}\n", seen.name, text(seen.measured),
                       text(values[i]), 100 * (values[i] / seen.measured - 1),
                       fmt::format("{} to {}", text(in.low), text(in.high)),
                       inside ? "" : ", outside");
    for (const std::string& note : in.outside) out += fmt::format("  {}\n", note);
  }
  return out;
}

}  // namespace orrery
