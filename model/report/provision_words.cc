// SPDX-License-Identifier: Apache-2.0
// Sentences from the answer of `plan provision`.
#include <fmt/format.h>

#include "model/report/short_number.h"
#include "model/report/views.h"

namespace orrery::report {
namespace {

std::string OfferWords(const Ref& row) {
  return fmt::format("{}, {}{}: {} (80 %: {} to {}), {} (80 %: {} to {})",
                     row["offer"]["id"].text(), Counted(row["nodes"].number(), "node"),
                     row["spares"].number() > 0 ? " and " + Counted(row["spares"].number(), "spare")
                                                : std::string(),
                     DaysOf(row["time_s"].number()), DaysOf(row["time_interval_s"][0].number()),
                     DaysOf(row["time_interval_s"][1].number()),
                     DollarsOf(row["cost_usd"].number()),
                     DollarsOf(row["cost_interval_usd"][0].number()),
                     DollarsOf(row["cost_interval_usd"][1].number())) +
         (row["time_s"].number() > row["time_interval_s"][1].number()
              ? ", the mean of many runs that lose little and a few that lose much"
              : "") +
         (row["offer"]["kind"].text() == "spot" ? ", if the capacity stays" : "") +
         (row["finish_probability"].is_number()
              ? fmt::format(", {} % likely in time",
                            WholePercent(row["finish_probability"].number()))
              : std::string()) +
         (row["budget_probability"].is_number()
              ? fmt::format(", {} % within the budget",
                            WholePercent(row["budget_probability"].number()))
              : std::string()) +
         (row["input"]["input_bound"].is_true() ? ", INPUT-BOUND" : "");
}

// Whether a limit that would do does so with the other one as it is. `row`: what keeps that one alone.
std::string WithOther(const Ref& limit, const Ref& row, const char* name) {
  if (!limit.is_number()) return "";
  return row.is_number() ? fmt::format(" with this {}", name)
                         : fmt::format("; with this {} none would", name);
}

// What would have to give way, where the limits cannot be kept.
std::string RefusedWords(const Ref& answer) {
  const Ref question = answer["question"], frontier = answer["frontier"];
  const auto row = [&](std::size_t at) {
    return answer["answers"][static_cast<std::size_t>(frontier[at].number())];
  };
  if (frontier.empty()) return "No offer can run this; below is why. ";
  std::string words;
  if (!answer["cheapest"].is_number())
    words += fmt::format("None is done within {}. The fastest of all: {}. ",
                         GivenDaysOf(question["deadline_s"].number()),
                         OfferWords(row(frontier.size() - 1)));
  const Ref enough = answer["enough"];
  if (!answer["cheapest"].is_number() && enough["deadline_s"].is_number())
    words += fmt::format("A deadline of {} (rounded up) would do{}. ",
                         DaysOf(enough["deadline_s"].number()),
                         WithOther(question["budget_usd"], answer["fastest"], "budget"));
  if (!answer["fastest"].is_number())
    words += fmt::format("None costs at most {}. The cheapest of all: {}. ",
                         GivenDollarsOf(question["budget_usd"].number()), OfferWords(row(0)));
  if (!answer["fastest"].is_number() && enough["budget_usd"].is_number())
    words += fmt::format("A budget of {} (rounded up) would do{}. ",
                         DollarsOf(enough["budget_usd"].number()),
                         WithOther(question["deadline_s"], answer["cheapest"], "deadline"));
  if (answer["enough"]["budget_usd"].is_number() && answer["cheapest"].is_number() &&
      answer["fastest"].is_number())
    words += fmt::format(
        "Nothing keeps both the deadline and the budget: a budget of {} would do, or a deadline "
        "of {} (rounded up). ",
        DollarsOf(answer["enough"]["budget_usd"].number()),
        DaysOf(answer["enough"]["deadline_s"].number()));
  return words;
}

}  // namespace

std::string ProvisionWords(const Ref& answer) {
  const Ref question = answer["question"], rows = answer["answers"];
  const auto row = [&](const char* which) {
    return rows[static_cast<std::size_t>(answer[which].number())];
  };
  std::string lead = RefusedWords(answer), out;
  const bool limits = question["deadline_s"].is_number() || question["budget_usd"].is_number();
  // Without a limit of its own the other row is named as a refusal already.
  if (answer["cheapest"].is_number() &&
      (answer["fastest"].is_number() || question["deadline_s"].is_number()))
    lead += fmt::format("Cheapest{}: {}. ", question["deadline_s"].is_number() ? " in time" : "",
                        OfferWords(row("cheapest")));
  const bool fastest_too =
      answer["fastest"].is_number() && answer["fastest"].json() == answer["cheapest"].json();
  if (fastest_too)
    lead += fmt::format("It is also the fastest{}. ", limits ? " within the limits" : "");
  if (answer["sure"].is_number() && answer["sure"].json() != answer["cheapest"].json())
    lead += fmt::format("Cheapest that is {} % likely in time{}: {}. ",
                        WholePercent(answer["sure_probability"].number()),
                        question["budget_usd"].is_number() &&
                                row("sure")["cost_usd"].number() > question["budget_usd"].number()
                            ? ", over the budget"
                            : "",
                        OfferWords(row("sure")));
  if (!fastest_too && answer["fastest"].is_number() &&
      (answer["cheapest"].is_number() || question["budget_usd"].is_number()))
    lead += fmt::format("Fastest{}: {}.",
                        question["budget_usd"].is_number() ? " within the budget" : "",
                        OfferWords(row("fastest")));
  if (answer["fastest"].is_number() && answer["fastest_sure"].is_number() &&
      answer["fastest_sure"].json() != answer["fastest"].json())
    lead +=
        fmt::format(" Fastest that is {} % likely within the budget{}: {}.",
                    WholePercent(answer["sure_probability"].number()),
                    question["deadline_s"].is_number() &&
                            row("fastest_sure")["time_s"].number() > question["deadline_s"].number()
                        ? ", too late"
                        : "",
                    OfferWords(row("fastest_sure")));
  out += Paragraph(lead, true);
  out += Paragraph(fmt::format(
      "{} ({} parameters) trained on {} tokens{}{}. Failures: {} per 1,000 node-days; recovery: "
      "{}; "
      "checkpoints: {}.",
      question["model"].text(), Count(question["parameters"].number()),
      Count(question["tokens"].number()),
      question["deadline_s"].is_number() ? " within " + GivenDaysOf(question["deadline_s"].number())
                                         : "",
      question["budget_usd"].is_number()
          ? " for at most " + GivenDollarsOf(question["budget_usd"].number())
          : "",
      ThreeDigits(question["failures_per_1000_node_days"].number()), question["recovery"].text(),
      question["checkpoint"].text()));
  if (const std::string batch = question["batch_words"].text(); !batch.empty())
    out += Paragraph("Batch: " + batch + ".");
  return out;
}

}  // namespace orrery::report
