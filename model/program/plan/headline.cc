// SPDX-License-Identifier: Apache-2.0
// Reads the first row of each schema.
#include "model/program/plan/headline.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/program/plan/run_report.h"

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

// A ranked row has the step of the default order of ranks, and beside it what its own order makes of it: that the answer tells.
std::optional<Headline> PlacedOf(const ordered_json& row) {
  const auto placed = row.find("placement");
  if (placed == row.end() || !placed->is_object()) return std::nullopt;
  if (!placed->value("given", false) && NumberIn(*placed, "gain").value_or(0) <= 0)
    return std::nullopt;
  std::optional<Headline> headline = StepOf(*placed, *placed);
  if (headline)
    headline->layout =
        fmt::format("{}, --placement {}", TextIn(row, "layout"), TextIn(*placed, "placement"));
  return headline;
}

// The best row: rows stand where they are in the default order of ranks, a placement search may rank them otherwise.
const ordered_json& BestRow(const ordered_json& answer, const ordered_json& ranked) {
  const auto placed = answer.find("placed");
  if (placed == answer.end() || !placed->is_object()) return ranked.front();
  const ordered_json* order = ArrayIn(*placed, "order");
  if (order == nullptr || !order->front().is_number_unsigned()) return ranked.front();
  const auto row = order->front().get<std::size_t>();
  return row >= 1 && row <= ranked.size() ? ranked[row - 1] : ranked.front();
}

std::optional<Headline> SearchOf(const ordered_json& answer) {
  const ordered_json* ranked = ArrayIn(answer, "ranked");
  if (ranked == nullptr) return std::nullopt;
  const ordered_json& best = BestRow(answer, *ranked);
  if (!best.is_object()) return std::nullopt;
  std::optional<Headline> headline = PlacedOf(best);
  if (!headline) headline = StepOf(best, answer.contains("step_time_s") ? answer : best);
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
  headline->beyond = TextIn(row, "beyond_limits");
  return headline;
}

// Answers are in order of cost, so that an offer's first run in time is its cheapest, and the headline is its offer's row.
std::vector<HeadlineRow> RunsByOffer(const ordered_json& answers, std::optional<double> deadline) {
  std::vector<HeadlineRow> rows;
  const auto in_time = [&](const HeadlineRow& run) {
    return !deadline || run.run_seconds <= *deadline;
  };
  for (const ordered_json& row : answers) {
    const std::optional<Headline> run = RunOf(row);
    if (!run) continue;
    const auto known = std::ranges::find(rows, run->name, &HeadlineRow::name);
    if (known == rows.end()) {
      rows.push_back(*run);
    } else if (!in_time(*known) && run->run_seconds < known->run_seconds) {
      *known = *run;
    }
  }
  return rows;
}

std::optional<Headline> ProvisionOf(const ordered_json& answer, const ordered_json& answers) {
  const ordered_json* frontier = ArrayIn(answer, "frontier");
  if (frontier == nullptr) return std::nullopt;
  const auto run_at = [&](double index) {
    const auto at = static_cast<std::size_t>(index);
    return at < answers.size() ? RunOf(answers[at]) : std::nullopt;
  };
  std::optional<Headline> headline =
      run_at(NumberIn(answer, "cheapest").value_or(frontier->back().get<double>()));
  if (!headline) return std::nullopt;
  const auto question = answer.find("question");
  headline->rows = RunsByOffer(
      answers, question == answer.end() ? std::nullopt : NumberIn(*question, "deadline_s"));
  for (const ordered_json& at : *frontier) {
    if (const auto run = run_at(at.get<double>())) headline->frontier.push_back(*run);
  }
  if (const ordered_json* shown = ArrayIn(answer, "frontier_shown"); shown != nullptr) {
    for (const ordered_json& at : *shown) {
      if (at.is_number_unsigned() && at.get<std::size_t>() < headline->frontier.size())
        headline->shown.push_back(at.get<std::size_t>());
    }
  }
  if (const auto fastest = NumberIn(answer, "fastest")) headline->fastest = run_at(*fastest);
  if (const auto sure = NumberIn(answer, "sure")) headline->sure = run_at(*sure);
  if (const auto sure = NumberIn(answer, "fastest_sure")) headline->fastest_sure = run_at(*sure);
  return headline;
}

}  // namespace

std::string PlaceOf(const HeadlineRow& row) {
  if (row.name.empty()) return "";
  return fmt::format("{}, {} node{}", row.name, row.nodes, row.nodes == "1" ? "" : "s");
}

std::string RowWords(const HeadlineRow& row) {
  std::string text =
      row.nodes.empty() ? "" : row.nodes + (row.nodes == "1" ? " node, " : " nodes, ");
  text += row.run_seconds ? report::Days(Seconds(*row.run_seconds)) : Format(Seconds(row.seconds));
  return row.dollars ? fmt::format("{}, {}", text, report::Money(Dollars(*row.dollars))) : text;
}

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
