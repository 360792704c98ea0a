// SPDX-License-Identifier: Apache-2.0
// The section "Simulated" of `plan --nodes N --model NAME`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/table.h"
#include "model/program/plan/search_report.h"

namespace orrery::report {
namespace {

std::string Dash(const std::string& text) { return fmt::format("  - {}\n", Fold(text, 4)); }

// The term in which the engines differ most, and the link behind it.
std::string Difference(std::size_t number, const Candidate& candidate) {
  const StepTime& closed = candidate.ClosedForm();
  const BreakdownTerm* most = nullptr;
  const auto more = [&](const BreakdownTerm& term) {
    return candidate.time.*term.seconds - closed.*term.seconds;
  };
  for (const BreakdownTerm& term : BreakdownTerms()) {
    if (most == nullptr || std::abs(more(term)) > std::abs(more(*most))) most = &term;
  }
  std::string text =
      fmt::format("Plan {}: {} simulated, {} in closed form. Largest difference: {} ({}{})", number,
                  Format(Seconds(candidate.time.total)), Format(Seconds(closed.total)), most->name,
                  more(*most) < 0 ? "-" : "+", Format(Seconds(std::abs(more(*most)))));
  const std::vector<sim::SharedLink>& shared = candidate.simulated->shared;
  const auto link = std::ranges::max_element(shared, {}, &sim::SharedLink::seconds);
  if (link != shared.end() && !link->link.empty() && candidate.time.contention > 0) {
    text += fmt::format("; {} shares {}", AxisWords(link->axis), link->link);
    for (const CommAxis axis : link->shared_with) text += fmt::format(" with {}", AxisWords(axis));
    if (link->shared_with.empty()) text += " with other groups of the same axis";
  }
  return text + ". The interval covers both";
}

std::string Agreement(const SearchResult& result) {
  const Refinement& refinement = *result.refinement;
  if (refinement.disagreement <= kEnginesDiffer)
    return Dash(fmt::format("The two engines agree within {}", Percent(refinement.disagreement)));
  std::string text =
      Dash(fmt::format("The two engines differ by up to {}", Percent(refinement.disagreement)));
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    const Candidate& candidate = result.ranked[i];
    if (candidate.closed_form &&
        std::abs(candidate.closed_form->total / candidate.time.total - 1) > kEnginesDiffer)
      text += Dash(Difference(i + 1, candidate));
  }
  return text;
}

std::string Order(const Refinement& refinement) {
  if (!refinement.ranked_by_simulation)
    return Dash("Not every plan could be simulated: times and order come from the closed form");
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

// One line for each reason.
std::string NotSimulated(const Refinement& refinement) {
  struct Ranks {
    std::string list;
    double least = 0, most = 0;
  };
  std::map<std::string, Ranks> by_reason;
  for (const Refinement::Skipped& skipped : refinement.skipped) {
    const auto [at, added] =
        by_reason.try_emplace(skipped.why, Ranks{"", skipped.ops, skipped.ops});
    Ranks& ranks = at->second;
    ranks.list += fmt::format("{}{}", added ? "" : ", ", skipped.rank);
    ranks.least = std::min(ranks.least, skipped.ops);
    ranks.most = std::max(ranks.most, skipped.ops);
  }
  std::string text;
  for (const auto& [why, ranks] : by_reason) {
    std::string ops = fmt::format("{:.2g}", ranks.least);
    if (fmt::format("{:.2g}", ranks.most) != ops) ops += fmt::format(" to {:.2g}", ranks.most);
    text += Dash(fmt::format("Not simulated: {} (effort of {} ops): {}", ranks.list, ops, why));
  }
  return text;
}

}  // namespace

std::string RefinementText(const SearchResult& result) {
  if (!result.refinement) return "";
  const Refinement& refinement = *result.refinement;
  if (!refinement.ranked_by_simulation) {
    return "\nNot simulated\n" + Order(refinement) + NotSimulated(refinement);
  }
  const std::string rows =
      refinement.asked == 1 ? "the best" : fmt::format("the best {}", refinement.asked);
  return fmt::format("\nSimulated op by op, with contention: {} layouts ({} and {})\n",
                     refinement.simulated, rows, "all that might beat 1 or explain it") +
         Agreement(result) + Order(refinement) + Open(result);
}

nlohmann::ordered_json RefinementJson(const Refinement& refinement) {
  nlohmann::ordered_json json = {{"engine", "event"},
                                 {"network", "fluid"},
                                 {"asked", refinement.asked},
                                 {"simulated", refinement.simulated},
                                 {"ranked_by_simulation", refinement.ranked_by_simulation},
                                 {"faster_ones_possible", refinement.open},
                                 {"disagreement", refinement.disagreement},
                                 {"order_changes", refinement.changes}};
  json["skipped"] = nlohmann::ordered_json::array();
  for (const Refinement::Skipped& skipped : refinement.skipped)
    json["skipped"].push_back(
        {{"closed_form_rank", skipped.rank}, {"effort_ops", skipped.ops}, {"why", skipped.why}});
  return json;
}

nlohmann::ordered_json SimulatedJson(const Candidate& candidate) {
  nlohmann::ordered_json json = {{"closed_form_rank", candidate.closed_rank},
                                 {"simulated", nullptr}};
  if (!candidate.simulated) return json;
  nlohmann::ordered_json terms, shared = nlohmann::ordered_json::array();
  for (const BreakdownTerm& term : BreakdownTerms()) terms[term.key] = candidate.time.*term.seconds;
  for (const sim::SharedLink& link : candidate.simulated->shared) {
    nlohmann::ordered_json with = nlohmann::ordered_json::array();
    for (const CommAxis axis : link.shared_with) with.push_back(AxisWords(axis));
    shared.push_back({{"term", AxisWords(link.axis)},
                      {"contention_s", link.seconds},
                      {"link", link.link},
                      {"shared_with", with}});
  }
  json["simulated"] = {{"step_time_s", candidate.time.total},
                       {"closed_form_s", candidate.ClosedForm().total},
                       {"ops", candidate.simulated->ops},
                       {"terms", terms},
                       {"shared_links", shared}};
  return json;
}

}  // namespace orrery::report
