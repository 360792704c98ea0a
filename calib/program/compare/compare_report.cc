// SPDX-License-Identifier: Apache-2.0
// The report of `plan compare`.
#include "calib/program/compare/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "calib/compare/governing.h"
#include "model/base/text.h"

namespace orrery::compare {
namespace {

constexpr std::size_t kConstantsShown = 3;
constexpr std::size_t kRowsShown = 12;

std::string Time(double seconds) {
  return seconds < 0 ? "-" + Format(Seconds(-seconds)) : Format(Seconds(seconds));
}

std::string NameOf(const Term& term) {
  if (!term.stream.empty()) return term.stream;
  if (term.work.empty()) return term.phase;
  return term.phase.empty() ? term.work : fmt::format("{}, {}", term.work, term.phase);
}

std::string Constants(const Term& term, std::size_t most) {
  std::string text;
  const std::vector<std::string> names = GoverningConstants(term.work, term.phase);
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return text;
}

std::string TableOf(const char* title, const std::vector<Term>& terms, bool governed) {
  if (terms.empty()) return "";
  const std::size_t shown = std::min(kRowsShown, terms.size());
  std::size_t width = std::string_view(title).size();
  for (std::size_t i = 0; i < shown; ++i) width = std::max(width, NameOf(terms[i]).size() + 2);
  std::string text =
      fmt::format("\n{:<{}}  {:>11} {:>11} {:>11} {:>7}{}\n", title, width, "predicted", "measured",
                  "difference", "share", governed ? "   governed by" : "");
  for (std::size_t i = 0; i < shown; ++i) {
    const Term& term = terms[i];
    text += fmt::format("  {:<{}}  {:>11} {:>11} {:>11} {:>5.0f} %", NameOf(term), width - 2,
                        Time(term.predicted), Time(term.measured), Time(term.difference()),
                        100 * term.share);
    const std::string names = governed ? Constants(term, kConstantsShown) : "";
    text += names.empty() ? "\n" : "   " + names + "\n";
  }
  if (terms.size() > shown) text += fmt::format("  and {} smaller\n", terms.size() - shown);
  return text;
}

std::string Headline(const Comparison& c) {
  const double error = 100 * c.error();
  std::string text = fmt::format("Step time: {} predicted, {} measured: {:.1f} % too {}.\n",
                                 Time(c.predicted_step), Time(c.measured_step), std::abs(error),
                                 error < 0 ? "short" : "long");
  const Term *work = c.CulpritWork(), *culprit = c.Culprit();
  if (culprit == nullptr && c.HasTerms())
    return text +
           fmt::format("No term differs by more than {} % of the step.\n", 100 * kLeastBlamed);
  if (culprit == nullptr) {
    return text +
           "These files hold no terms: give traces (--trace FILE of plan simulate and plan run).\n";
  }
  text +=
      fmt::format("Largest term: {}, {} predicted, {} measured, {:.0f} % of all differences",
                  NameOf(*work), Time(work->predicted), Time(work->measured), 100 * work->share);
  if (culprit != work) {
    text += fmt::format(";\nmost of it in phase {}: {} predicted, {} measured", culprit->phase,
                        Time(culprit->predicted), Time(culprit->measured));
  }
  text += ".\n";
  const std::string names = Constants(*culprit, 99);
  if (!names.empty()) text += fmt::format("Constants that govern it: {}.\n", names);
  return text;
}

nlohmann::ordered_json TermsJson(const std::vector<Term>& terms) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Term& term : terms) {
    nlohmann::ordered_json json;
    if (!term.work.empty()) json["work"] = term.work;
    if (!term.phase.empty()) json["phase"] = term.phase;
    if (!term.stream.empty()) json["stream"] = term.stream;
    json["predicted_s"] = term.predicted;
    json["measured_s"] = term.measured;
    json["difference_s"] = term.difference();
    json["share_of_differences"] = term.share;
    if (!term.work.empty()) json["constants"] = GoverningConstants(term.work, term.phase);
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

std::string ComparisonText(const Comparison& c) {
  std::string text =
      fmt::format("predicted  {}\nmeasured   {}, {} step{}\n", c.predicted_file, c.measured_file,
                  c.measured_steps, c.measured_steps == 1 ? "" : "s, median without the first");
  text += c.on_trust ? "plan       not named in the measured log: assumed to be the same\n"
                     : fmt::format("plan       {}\n", c.digest);
  if (c.garbled_lines > 0) text += fmt::format("garbled    {} lines skipped\n", c.garbled_lines);
  text += "\n" + Headline(c);
  text += TableOf("term of the step", c.by_part, true);
  text += TableOf("kind of work", c.by_work, true);
  text += TableOf("kind of work and phase", c.by_work_and_phase, true);
  text += TableOf("phase", c.by_phase, false);
  text += TableOf("stream", c.by_stream, false);
  if (c.by_work.empty()) return text;
  return text +
         "\nSeconds per rank and step. Streams run concurrently; idle: a rank runs nothing on any "
         "stream.\n";
}

nlohmann::ordered_json ComparisonJson(const Comparison& c) {
  nlohmann::ordered_json json = {
      {"schema", "orrery.compare/1"},       {"predicted", c.predicted_file},
      {"measured", c.measured_file},        {"digest", c.digest},
      {"plan_on_trust", c.on_trust},        {"predicted_step_s", c.predicted_step},
      {"measured_step_s", c.measured_step}, {"error", c.error()},
      {"measured_steps", c.measured_steps}, {"garbled_lines", c.garbled_lines}};
  const Term* culprit = c.Culprit();
  json["largest"] = culprit == nullptr ? nlohmann::ordered_json() : TermsJson({*culprit})[0];
  json["by_work"] = TermsJson(c.by_work);
  json["by_work_and_phase"] = TermsJson(c.by_work_and_phase);
  json["by_phase"] = TermsJson(c.by_phase);
  json["by_stream"] = TermsJson(c.by_stream);
  json["by_part"] = TermsJson(c.by_part);
  return json;
}

}  // namespace orrery::compare
