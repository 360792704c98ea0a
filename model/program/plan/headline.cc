// SPDX-License-Identifier: Apache-2.0
// Reads the first row of each schema.
#include "model/program/plan/headline.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::cli {
namespace {

using nlohmann::ordered_json;

std::string TextIn(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<double> NumberIn(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

const ordered_json* ArrayIn(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() && !found->empty() ? &*found : nullptr;
}

// `timed`: has the time of the step; a perturbed or uncontended one is not that of the prediction.
std::optional<Headline> StepOf(const ordered_json& step, const ordered_json& timed) {
  const auto seconds = NumberIn(timed, "step_time_s");
  if (!seconds) return std::nullopt;
  Headline headline;
  headline.seconds = *seconds;
  headline.layout = TextIn(step, "layout");
  if (const auto parts = step.find("breakdown"); parts != step.end() && parts->is_object())
    headline.breakdown = *parts;
  return headline;
}

std::optional<Headline> SearchOf(const ordered_json& answer) {
  const ordered_json* ranked = ArrayIn(answer, "ranked");
  if (ranked == nullptr || !ranked->front().is_object()) return std::nullopt;
  std::optional<Headline> headline =
      StepOf(ranked->front(), answer.contains("step_time_s") ? answer : ranked->front());
  const auto training = answer.find("training");
  if (!headline || training == answer.end() || !training->is_object()) return headline;
  if (const ordered_json* runs = ArrayIn(*training, "runs"); runs != nullptr) {
    headline->run_seconds = NumberIn(runs->front(), "time_s");
    if (training->value("priced", false)) headline->dollars = NumberIn(runs->front(), "cost_usd");
  }
  return headline;
}

std::optional<Headline> TopologiesOf(const ordered_json& answer, const ordered_json& topologies) {
  std::vector<std::optional<Headline>> all;
  for (const ordered_json& one : topologies) {
    all.push_back(SearchOf(one));
    if (!all.back()) continue;
    if (const auto topology = one.find("topology"); topology != one.end() && topology->is_object())
      all.back()->name = TextIn(*topology, "name");
    if (const auto nodes = NumberIn(one["ranked"].front(), "nodes"))
      all.back()->nodes = fmt::format("{:.0f}", *nodes);
  }
  const auto best = static_cast<std::size_t>(NumberIn(answer, "best_index").value_or(0));
  if (best >= all.size() || !all[best]) return std::nullopt;
  Headline headline = *all[best];
  for (const auto& one : all) {
    if (one) headline.rows.push_back(*one);
  }
  return headline;
}

std::optional<Headline> RunOf(const ordered_json& row) {
  const auto plan = row.find("plan"), offer = row.find("offer");
  if (plan == row.end() || offer == row.end() || !plan->is_object() || !offer->is_object())
    return std::nullopt;
  std::optional<Headline> headline = StepOf(*plan, *plan);
  if (!headline) return std::nullopt;
  headline->name = TextIn(*offer, "id");
  const double spares = NumberIn(row, "spares").value_or(0);
  headline->nodes = fmt::format("{:.0f}", NumberIn(row, "nodes").value_or(0));
  if (spares > 0) headline->nodes += fmt::format(" + {:.0f}", spares);
  headline->run_seconds = NumberIn(row, "time_s");
  headline->dollars = NumberIn(row, "cost_usd");
  return headline;
}

// Answers are in order of cost.
std::optional<Headline> ProvisionOf(const ordered_json& answer, const ordered_json& answers) {
  const ordered_json* frontier = ArrayIn(answer, "frontier");
  if (frontier == nullptr) return std::nullopt;
  const auto told = static_cast<std::size_t>(
      NumberIn(answer, "cheapest").value_or(frontier->back().get<double>()));
  if (told >= answers.size()) return std::nullopt;
  std::optional<Headline> headline = RunOf(answers[told]);
  if (!headline) return std::nullopt;
  std::vector<bool> within;  // of the rows
  for (const ordered_json& row : answers) {
    const std::optional<Headline> run = RunOf(row);
    if (!run) continue;
    const bool keeps = TextIn(row, "beyond_limits").empty();
    const auto known = std::ranges::find(headline->rows, run->name, &HeadlineRow::name);
    if (known == headline->rows.end()) {
      headline->rows.push_back(*run);
      within.push_back(keeps);
      continue;
    }
    const auto place = static_cast<std::size_t>(known - headline->rows.begin());
    const bool faster = !within[place] && run->run_seconds < known->run_seconds;
    if (!within[place] && (keeps || faster)) *known = *run, within[place] = keeps;
  }
  return headline;
}

}  // namespace

std::optional<Headline> HeadlineOf(const ordered_json& answer) {
  if (const auto one = answer.find("prediction"); one != answer.end() && one->is_object())
    return StepOf(*one, answer.contains("step_time_s") ? answer : *one);
  if (const ordered_json* topologies = ArrayIn(answer, "topologies"); topologies != nullptr)
    return TopologiesOf(answer, *topologies);
  if (const ordered_json* answers = ArrayIn(answer, "answers"); answers != nullptr)
    return ProvisionOf(answer, *answers);
  return SearchOf(answer);
}

}  // namespace orrery::cli
