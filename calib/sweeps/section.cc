// SPDX-License-Identifier: Apache-2.0
// Tables and YAML of fitted machines.
#include "calib/sweeps/section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calib/fit/fit.h"
#include "calib/fit/profile_store.h"
#include "calib/sweeps/sweep_holdout.h"
#include "model/hardware/measured_collectives.h"
#include "model/hardware/measured_keys.h"

namespace orrery {
namespace {

constexpr const char* kLossUnit = "us per square root of a byte";
constexpr double kWeak = 0.7;  // posterior over prior spread, as in fits of runs

const char* StatusWords(const CurveConstant& constant) {
  if (constant.ratio > kKeptRatio) return "kept: the points do not determine it";
  if (constant.bound) return "fitted, at its bound";
  return constant.ratio > kWeak ? "weak: mostly its prior" : "fitted";
}

std::string ValueText(const CurveConstant& constant) {
  if (constant.name.starts_with("pipelining")) return fmt::format("{:.4g}", 1e6 * constant.value);
  const bool time =
      constant.name.starts_with("latency") || constant.name == "offset" || constant.name == "step";
  return FormatConstant(constant.value,
                        time ? ConstantKind::kSeconds : ConstantKind::kBytesPerSecond);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

// "latency 1" -> "latency_1"; "pipelining loss" -> "pipelining".
std::string KeyOf(const std::string& name) {
  if (name.starts_with("pipelining")) return kPipeliningKey;
  std::string key = name;
  std::ranges::replace(key, ' ', '_');
  return key;
}

std::string ConstantText(const CurveConstant& constant, const std::string& indent) {
  std::string text =
      fmt::format("{}{}: {{value: {}", indent, KeyOf(constant.name), ValueText(constant));
  if (constant.name.starts_with("pipelining")) text += fmt::format(", unit: \"{}\"", kLossUnit);
  if (constant.spread > 0) text += fmt::format(", spread: {:.2g}", constant.spread);
  const bool kept = constant.ratio > kKeptRatio;
  if (!kept && constant.points > 0) text += fmt::format(", points: {}", constant.points);
  return text + fmt::format(", source: \"{}\"}}\n", kept ? "prior: the points do not determine it"
                                                    : constant.ratio > kWeak ? "mostly its prior"
                                                                             : "fitted");
}

BandErrors ErrorsOf(const MeasuredRuns& runs, const std::vector<double>& logs) {
  BandErrors errors;
  for (std::size_t i = 0; i < logs.size(); ++i) errors.Add({runs.points[i].bytes, logs[i]});
  return errors;
}

BandErrors FitErrors(const FittedGroup& group) {
  BandErrors errors;
  for (const SweepPoint& point : group.runs.points)
    errors.Add({point.bytes, std::log(group.fit.curve.Formula(point.bytes) / point.seconds)});
  return errors;
}

std::string BandText(const BandErrors& errors) {
  std::string text;
  for (int band = 0; band < kSizeBands; ++band) {
    const auto mean = errors.bands[band].mean();
    if (!mean) continue;
    text += fmt::format("{}{:.1f} % {}", text.empty() ? "" : ", ", 100 * *mean, SizeBandName(band));
  }
  return text.empty() ? "too few points" : text;
}

std::string ErrorLine(const BandErrors& errors) {
  std::string text;
  for (int band = 0; band < kSizeBands; ++band) {
    if (const auto mean = errors.bands[band].mean())
      text += fmt::format("{}{}: {:.4f}", text.empty() ? "" : ", ", kBandKeys[band], *mean);
  }
  return text;
}

std::string ResidualText(const std::vector<SweepCurve::Residual>& residuals) {
  std::string text, line = "     ";
  for (const SweepCurve::Residual& residual : residuals) {
    const std::string item =
        fmt::format(" {:.0f}: {:.4f}{}", std::exp(residual.log_bytes), residual.log_ratio,
                    &residual == &residuals.back() ? "" : ",");
    if (line.size() + item.size() > 98) {
      text += line + "\n";
      line = "     ";
    }
    line += item;
  }
  return "    residuals: {\n" + text + line + "}\n";
}

std::string GroupText(const FittedGroup& group) {
  const MeasuredRuns& runs = group.runs;
  std::string text = fmt::format("  - collective: {}\n", runs.collective);
  if (!runs.algorithm.empty()) text += fmt::format("    algorithm: {}\n", runs.algorithm);
  text += fmt::format("    ranks: {}\n    nodes: {}\n    from: {:.0f}B\n    to: {:.0f}B\n",
                      runs.ranks, runs.nodes, runs.points.front().bytes, runs.points.back().bytes);
  text += fmt::format("    points: {}\n    source: {}\n    constants:\n", runs.points.size(),
                      Quoted(runs.source));
  for (const CurveConstant& constant : group.fit.constants)
    text += ConstantText(constant, "      ");
  const std::string errors = ErrorLine(ErrorsOf(runs, group.left_out));
  if (!errors.empty()) text += fmt::format("    left_out_error: {{{}}}\n", errors);
  return text + ResidualText(group.fit.curve.residuals);
}

std::string FormText(const FittedMachine& machine) {
  std::string ranks;
  for (const NodeSweep& sweep : machine.node_sweeps)
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", sweep.ranks);
  std::string text = fmt::format("node_form:\n  ranks: [{}]\n  constants:\n", ranks);
  for (const CurveConstant& constant : machine.node_form->constants)
    text += ConstantText(constant, "    ");
  return text;
}

std::string Table(const std::vector<CurveConstant>& constants) {
  std::string text;
  for (const CurveConstant& constant : constants) {
    const bool loss = constant.name.starts_with("pipelining");
    text += fmt::format("    {:<18}{:>14}  +- {:>5.1f} %  {:>4} points  {}\n", constant.name,
                        ValueText(constant) + (loss ? " us/sqrt(B)" : ""), 100 * constant.spread,
                        constant.points, StatusWords(constant));
  }
  return text;
}

}  // namespace

std::string RenderMachine(const FittedMachine& machine) {
  std::string text = fmt::format(
      "{}{}\n", machine.machine,
      machine.topology == nullptr ? "" : fmt::format(" (topology {})", machine.topology->name));
  for (const FittedGroup& group : machine.groups) {
    const MeasuredRuns& runs = group.runs;
    text += fmt::format(
        "  {}{}, {} ranks on {} node{}: {} points, {} protocol{}\n", runs.collective,
        runs.algorithm.empty() ? "" : fmt::format(" ({})", runs.algorithm),
        runs.ranks > 0 ? std::to_string(runs.ranks) : "unknown",
        runs.nodes > 0 ? std::to_string(runs.nodes) : "unknown", runs.nodes == 1 ? "" : "s",
        runs.points.size(), group.protocols, group.protocols == 1 ? "" : "s");
    text += Table(group.fit.constants);
    text += fmt::format("    formula alone  {}\n", BandText(FitErrors(group)));
    text += fmt::format("    leave-one-out  {}\n", BandText(ErrorsOf(runs, group.left_out)));
  }
  if (machine.node_form) {
    text += fmt::format("  form over ranks of one node, {} sweeps\n", machine.node_sweeps.size());
    text += Table(machine.node_form->constants);
  }
  for (const std::string& note : machine.notes) text += fmt::format("  note: {}\n", note);
  return text;
}

std::string SectionText(const FittedMachine& machine) {
  std::string text = fmt::format(
      "# SPDX-License-Identifier: Apache-2.0\n# Collective times of {}, from `plan calibrate`.\n"
      "title: {}\nmachine: {}\n",
      machine.machine, Quoted("measured collectives: " + machine.machine), Quoted(machine.machine));
  if (machine.topology != nullptr && machine.topology->gpu != kUnknownGpu)
    text += fmt::format("gpu: {}\n", machine.topology->gpu);
  text += "sweeps:\n";
  for (const FittedGroup& group : machine.groups) {
    if (group.runs.ranks > 1 && group.runs.nodes > 0) text += GroupText(group);
  }
  if (machine.node_form) text += FormText(machine);
  return text;
}

}  // namespace orrery
