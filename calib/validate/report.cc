// SPDX-License-Identifier: Apache-2.0
// The tables and the JSON of a validation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "calib/validate/validate.h"

namespace orrery {
namespace {

double ErrorOf(const CasePrediction& prediction) {
  return prediction.time->total / prediction.row.measured_step_s - 1.0;
}

std::string Line(const std::string& name, const ErrorSummary& s) {
  const std::string refused = s.predicted < s.rows ? fmt::format("{}", s.rows - s.predicted) : "-";
  if (s.predicted == 0) return fmt::format("{:<30}{:>6}{:>9}\n", name, s.rows, refused);
  return fmt::format("{:<30}{:>6}{:>9}{:>8.1f}{:>8.1f}{:>+8.1f}{:>+8.0f}  {:>5.0f}  {}\n", name,
                     s.rows, refused, 100 * s.mean, 100 * s.median, 100 * s.bias, 100 * s.worst,
                     100 * s.inside, s.worst_case);
}

using Groups = std::map<std::string, std::vector<const CasePrediction*>>;

Groups GroupBy(const std::vector<CasePrediction>& cases,
               const std::function<std::string(const CaseRow&)>& key) {
  Groups groups;
  for (const CasePrediction& c : cases) groups[key(c.row)].push_back(&c);
  return groups;
}

std::string Section(const char* title, const Groups& groups) {
  std::string out = fmt::format("{:<30}{:>6}{:>9}{:>8}{:>8}{:>8}{:>8}  {:>5}  worst case\n", title,
                                "rows", "refused", "mean", "median", "bias", "worst", "in80");
  for (const auto& [name, members] : groups) out += Line(name, Summarise(members));
  return out + "\n";
}

// One node and many nodes apart where a source has both.
Groups BySource(const std::vector<CasePrediction>& cases) {
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

std::string Tally(const char* title, const std::map<std::string, int>& counts) {
  if (counts.empty()) return "";
  std::string out = fmt::format("{}\n", title);
  for (const auto& [text, count] : counts) out += fmt::format("{:>6}  {}\n", count, text);
  return out + "\n";
}

}  // namespace

ErrorSummary Summarise(const std::vector<const CasePrediction*>& cases) {
  ErrorSummary summary;
  summary.rows = static_cast<int>(cases.size());
  std::vector<double> sizes;
  int inside = 0;
  for (const CasePrediction* c : cases) {
    if (!c->time) continue;
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

std::string RenderValidation(const std::vector<CasePrediction>& cases) {
  std::string out =
      "Step time, predicted against measured. Errors in %: mean and median of |error|, bias, "
      "worst;\n"
      "in80: measured inside the 80 % interval.\n\n";
  out += Section("source", BySource(cases));
  out += Section("topology", GroupBy(cases, [](const CaseRow& row) { return row.topology; }));
  std::map<std::string, int> refusals, notes;
  std::vector<const CasePrediction*> all;
  for (const CasePrediction& c : cases) {
    all.push_back(&c);
    if (c.row.refused) ++refusals[*c.row.refused];
    for (const std::string& note : c.row.notes) ++notes[note];
  }
  out += Section("overall", {{"all", all}});
  out += Tally("refused rows", refusals);
  out += Tally("how rows were read", notes);
  return out;
}

std::string ValidationJson(const std::vector<CasePrediction>& cases) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const CasePrediction& c : cases) {
    Json row;
    row["case"] = c.row.name;
    row["measured_step_s"] = c.row.measured_step_s;
    row["predicted_step_s"] = c.time ? Json(c.time->total) : Json(nullptr);
    row["interval_s"] = c.time ? Json::array({c.time->low, c.time->high}) : Json(nullptr);
    row["measured_mem_gib"] =
        c.row.measured_mem_gib ? Json(*c.row.measured_mem_gib) : Json(nullptr);
    row["predicted_mem_gib"] = c.predicted_mem_gib ? Json(*c.predicted_mem_gib) : Json(nullptr);
    row["refused"] = c.row.refused ? Json(*c.row.refused) : Json(nullptr);
    rows.push_back(std::move(row));
  }
  Json out;
  out["schema"] = "orrery.validate/1";
  out["cases"] = std::move(rows);
  // Names come from user files: bytes that are no UTF-8 are replaced, never thrown on.
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery
