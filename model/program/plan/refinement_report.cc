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

using Sentences = std::vector<std::string>;

void Agreement(const SearchResult& result, Sentences* out) {
  const Refinement& refinement = *result.refinement;
  if (refinement.disagreement <= kEnginesDiffer) {
    out->push_back(fmt::format("The two engines agree within {}",
                               Percent(std::max(1e-3, refinement.disagreement))));
    return;
  }
  out->push_back(
      fmt::format("The two engines differ by up to {}", Percent(refinement.disagreement)));
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (const std::string why = EngineDifference(result.ranked[i]); !why.empty())
      out->push_back(fmt::format("Plan {}: {}", i + 1, why));
  }
}

void Order(const Refinement& refinement, Sentences* out) {
  if (refinement.changes.empty() && refinement.asked > 1)
    out->push_back("Both engines give the same order");
  for (const std::string& change : refinement.changes) out->push_back("Order changed: " + change);
}

// Layouts that nobody simulated although they may win.
void Open(const SearchRequest& request, const SearchResult& result, Sentences* out) {
  if (!result.refinement->open) return;
  out->push_back(
      fmt::format("Layouts that were not simulated might beat 1: by {} in closed form, they are as "
                  "good but for what the engines differ by. --refine {} simulates more",
                  Aim(request), std::min(kMostRefined, 4 * result.refinement->asked)));
}

// Rows that keep the closed form, one line for each reason.
void NotSimulated(const SearchResult& result, Sentences* out) {
  std::map<std::string, std::vector<std::size_t>> by_reason;
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (!result.ranked[i].simulated) by_reason[result.ranked[i].not_simulated].push_back(i + 1);
  }
  for (const auto& [why, rows] : by_reason)
    out->push_back(fmt::format("Not simulated: {} ({})", fmt::join(rows, ", "), why));
}

bool AnySimulated(const SearchResult& result) {
  return std::ranges::any_of(result.ranked, [](const Candidate& c) { return bool(c.simulated); });
}

Sentences Remarks(const SearchRequest& request, const SearchResult& result) {
  const Refinement& refinement = *result.refinement;
  Sentences out;
  if (!AnySimulated(result)) {
    out.push_back("Times and order come from the closed form");
    NotSimulated(result, &out);
    return out;
  }
  Agreement(result, &out);
  Order(refinement, &out);
  if (!refinement.ranked_by_simulation) {
    NotSimulated(result, &out);
    out.push_back(
        "Their step time is the closed form. Order is by step time: a simulated and a "
        "closed-form time tie (=) up to the difference of the engines");
  }
  Open(request, result, &out);
  return out;
}

}  // namespace

std::string RefinementText(const SearchRequest& request, const SearchResult& result) {
  if (!result.refinement) return "";
  const Refinement& refinement = *result.refinement;
  std::string text = "\nNot simulated\n";
  if (AnySimulated(result)) {
    const std::string rows =
        refinement.asked == 1 ? "the best" : fmt::format("the best {}", refinement.asked);
    text = fmt::format("\nSimulated op by op, with contention: {} layout{} ({} and {})\n",
                       refinement.simulated, refinement.simulated == 1 ? "" : "s", rows,
                       "all that might beat 1 or explain it");
  }
  for (const std::string& remark : Remarks(request, result))
    text += fmt::format("  - {}\n", Fold(remark, 4));
  return text;
}

nlohmann::ordered_json RefinementJson(const SearchRequest& request, const SearchResult& result) {
  const Refinement& refinement = *result.refinement;
  nlohmann::ordered_json json = {{"engine", "event"},
                                 {"network", "fluid"},
                                 {"asked", refinement.asked},
                                 {"simulated", refinement.simulated},
                                 {"ranked_by_simulation", refinement.ranked_by_simulation},
                                 {"faster_ones_possible", refinement.open},
                                 {"disagreement", refinement.disagreement},
                                 {"order_changes", refinement.changes},
                                 {"remarks", Remarks(request, result)}};
  json["skipped"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    const Candidate& candidate = result.ranked[i];
    if (!candidate.simulated)
      json["skipped"].push_back(
          {{"rank", i + 1},
           {"closed_form_rank", candidate.closed_rank},
           {"effort_ops", SimulationEffort(*candidate.plan, candidate.strategy)},
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
