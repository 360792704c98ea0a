// SPDX-License-Identifier: Apache-2.0
// The section "Simulated" of `plan --nodes N --model NAME`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/table.h"
#include "model/program/plan/search_report.h"

namespace orrery::report {
namespace {

std::string Dash(const std::string& text) { return fmt::format("  - {}\n", Fold(text, 4)); }

std::string Agreement(const SearchResult& result) {
  const Refinement& refinement = *result.refinement;
  if (refinement.disagreement <= kEnginesDiffer)
    return Dash(fmt::format("The two engines agree within {}", Percent(refinement.disagreement)));
  std::string text =
      Dash(fmt::format("The two engines differ by up to {}", Percent(refinement.disagreement)));
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (const std::string why = EngineDifference(result.ranked[i]); !why.empty())
      text += Dash(fmt::format("Plan {}: {}", i + 1, why));
  }
  return text;
}

std::string Order(const Refinement& refinement) {
  if (refinement.changes.empty() && refinement.asked > 1)
    return Dash("Both engines give the same order");
  std::string text;
  for (const std::string& change : refinement.changes) text += Dash("Order changed: " + change);
  return text;
}

// Layouts that nobody simulated although they may win.
std::string Open(const SearchResult& result) {
  if (!result.refinement->open) return "";
  return Dash(
      fmt::format("Layouts that were not simulated might beat 1: their closed-form time is below "
                  "its {}. --refine {} simulates more",
                  Format(Seconds(result.ranked.front().time.total)),
                  std::min(kMostRefined, 4 * result.refinement->asked)));
}

// Rows that keep the closed form, one line for each reason.
std::string NotSimulated(const SearchResult& result) {
  std::map<std::string, std::vector<std::size_t>> by_reason;
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (!result.ranked[i].simulated) by_reason[result.ranked[i].not_simulated].push_back(i + 1);
  }
  std::string text;
  for (const auto& [why, rows] : by_reason)
    text += Dash(fmt::format("Not simulated: {} ({})", fmt::join(rows, ", "), why));
  return text;
}

bool AnySimulated(const SearchResult& result) {
  return std::ranges::any_of(result.ranked, [](const Candidate& c) { return bool(c.simulated); });
}

}  // namespace

std::string RefinementText(const SearchResult& result) {
  if (!result.refinement) return "";
  const Refinement& refinement = *result.refinement;
  if (!AnySimulated(result)) {
    return "\nNot simulated\n" + Dash("Times and order come from the closed form") +
           NotSimulated(result);
  }
  const std::string rows =
      refinement.asked == 1 ? "the best" : fmt::format("the best {}", refinement.asked);
  std::string text =
      fmt::format("\nSimulated op by op, with contention: {} layouts ({} and {})\n",
                  refinement.simulated, rows, "all that might beat 1 or explain it") +
      Agreement(result) + Order(refinement);
  if (!refinement.ranked_by_simulation) {
    text += NotSimulated(result) +
            Dash(
                "Their step time is the closed form. Order is by step time: a simulated and a "
                "closed-form time tie (=) up to the difference of the engines");
  }
  return text + Open(result);
}

nlohmann::ordered_json RefinementJson(const SearchResult& result) {
  const Refinement& refinement = *result.refinement;
  nlohmann::ordered_json json = {{"engine", "event"},
                                 {"network", "fluid"},
                                 {"asked", refinement.asked},
                                 {"simulated", refinement.simulated},
                                 {"ranked_by_simulation", refinement.ranked_by_simulation},
                                 {"faster_ones_possible", refinement.open},
                                 {"disagreement", refinement.disagreement},
                                 {"order_changes", refinement.changes}};
  json["skipped"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    const Candidate& candidate = result.ranked[i];
    if (!candidate.simulated)
      json["skipped"].push_back({{"rank", i + 1},
                                 {"closed_form_rank", candidate.closed_rank},
                                 {"effort_ops", SimulationEffort(*candidate.plan)},
                                 {"why", candidate.not_simulated}});
  }
  return json;
}

nlohmann::ordered_json SimulatedJson(const Candidate& candidate) {
  nlohmann::ordered_json json = {{"closed_form_rank", candidate.closed_rank},
                                 {"simulated", nullptr}};
  if (!candidate.simulated) return json;
  nlohmann::ordered_json terms, shared = nlohmann::ordered_json::array();
  for (const BreakdownTerm& term : BreakdownTerms()) terms[term.key] = candidate.time.*term.seconds;
  for (const sim::SharedLink& link : candidate.simulated->shared) {
    shared.push_back({{"term", AxisWords(link.axis)},
                      {"contention_s", link.seconds},
                      {"link", link.link},
                      {"shared_with", sim::SharedWith(link)}});
  }
  json["simulated"] = {{"step_time_s", candidate.time.total},
                       {"closed_form_s", candidate.ClosedForm().total},
                       {"ops", candidate.simulated->ops},
                       {"terms", terms},
                       {"shared_links", shared}};
  return json;
}

}  // namespace orrery::report
