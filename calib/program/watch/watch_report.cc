// SPDX-License-Identifier: Apache-2.0
// Departures as text and as lines of JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "calib/program/watch/watch.h"
#include "model/base/text.h"

namespace orrery::watch {
namespace {

std::string StepText(const Departure& one) {
  return one.since >= 0 ? fmt::format("step {} (line {})", one.since, one.line)
                        : fmt::format("line {}", one.line);
}

std::string TermText(std::string term) {
  for (char& c : term) {
    if (c == '_') c = ' ';
  }
  return term;
}

// "rank 2", "ranks 0, 2", "all 8 ranks" where `all` is their number, "local rank 2 of a node", "local ranks 2 of task 1, 0 of task
// 3".
std::string RanksText(const std::vector<int64_t>& ranks, const std::vector<int64_t>& tasks,
                      bool is_local, std::size_t all) {
  constexpr std::size_t kMost = 8;
  const std::string rank = is_local ? "local rank" : "rank";
  const bool several = ranks.size() > 1, by_task = is_local && !tasks.empty();
  const char* const end = is_local && !by_task ? " of a node" : "";
  if (several && ranks.size() == all) return fmt::format("all {} {}s{}", all, rank, end);
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(kMost, ranks.size()); ++i)
    shown.push_back(by_task ? fmt::format("{} of task {}", ranks[i], tasks[i])
                            : std::to_string(ranks[i]));
  return fmt::format(
      "{}{} {}{}{}", rank, several ? "s" : "", fmt::join(shown, ", "),
      shown.size() < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown.size()) : "",
      end);
}

std::string ReasonText(const Reason& reason) {
  if (reason.rank >= 0) {
    const std::vector<int64_t> one = {reason.rank};
    const bool several = reason.ranks.size() > 1;
    return fmt::format(
        "{} {} {:.2f} times as long as {}",
        RanksText(reason.ranks.empty() ? one : reason.ranks, reason.tasks, reason.local, 0),
        several ? "take" : "takes", reason.factor,
        reason.timer.empty()                        ? "the others"
        : reason.timer == measured::kStragglerTimer ? "the fastest (--log-straggler)"
                                                    : "the others in " + reason.timer);
  }
  return fmt::format("{} {} {:.2f} times its prediction", TermText(reason.term),
                     reason.measured ? "is" : "would have to be", reason.factor);
}

std::string Steps(std::size_t n, const char* kind = "") {
  return fmt::format("{} {}step{}", n, kind, n == 1 ? "" : "s");
}

// Of a log without a departure: steps outside may be too few in a row.
std::string InsideText(const LogCheck& check) {
  if (check.outside_before) return "inside now, outside before";
  if (check.outside == 0) return "inside";
  return fmt::format("within --patience {}: {} of them outside, never {} in a row above or below",
                     check.patience, check.outside, check.patience);
}

const char* SideText(Side side) {
  return side == Side::kSlower ? "slower" : side == Side::kFaster ? "faster" : "inside";
}

}  // namespace

std::string DepartureText(const Departure& one, const Expectation& expected) {
  if (one.memory) {
    return fmt::format(
        "memory outside since {}: {} {} at most{}, {} predicted (up to {})\n", StepText(one),
        Format(Bytes(one.measured)), one.reserved ? "reserved" : "allocated",
        one.ranks.empty() ? "" : " on " + RanksText(one.ranks, one.tasks, one.local, one.of_ranks),
        Format(Bytes(one.predicted)), Format(Bytes(one.bound)));
  }
  std::string text =
      one.mean ? fmt::format(
                     "mean step time outside: {} ({:+.1f} %), predicted {} ({} to {}), by "
                     "{} since {}\n",
                     Format(Seconds(one.measured)), 100 * (one.measured / one.predicted - 1),
                     Format(Seconds(one.predicted)), Format(Seconds(expected.low)),
                     Format(Seconds(expected.high)), Steps(one.steps, "single "), StepText(one))
               : fmt::format(
                     "step time outside since {}: {} ({:+.1f} %), predicted {} ({} to {}), {}{}\n",
                     StepText(one), Format(Seconds(one.measured)),
                     100 * (one.measured / one.predicted - 1), Format(Seconds(one.predicted)),
                     Format(Seconds(expected.low)), Format(Seconds(expected.high)),
                     Steps(one.steps), one.over ? ", then inside again" : "");
  for (const Reason& reason : one.reasons)
    text += fmt::format("  fits    {}\n", ReasonText(reason));
  text += fmt::format("  costs   {:+.3g} h{} per 1000 steps at this rate\n", one.extra_hours,
                      one.extra_dollars ? fmt::format(" and {:+.3g} USD", *one.extra_dollars) : "");
  return text;
}

std::string SummaryText(const LogCheck& check, const Expectation& expected) {
  const std::string above =
      check.peak_share <= 1
          ? ""
          : fmt::format(
                "no GPU does that: the median step would come to {:.0f} % of the peak rate of the "
                "GPUs that are predicted; the log is of another job, or its times are not those of "
                "whole steps\n",
                100 * check.peak_share);
  std::string notes;
  for (const std::string& words : compare::Words(check.told)) notes += words + "\n";
  if (check.foreign && check.told.OnTrust())
    notes += "the log names neither its plan nor its layout: they are taken for those predicted\n";
  return above + notes +
         fmt::format("{}, median {}; predicted {} ({} to {}) for {}: {}\n", Steps(check.steps),
                     Format(Seconds(check.median.value_or(0))), Format(Seconds(expected.step)),
                     Format(Seconds(expected.low)), Format(Seconds(expected.high)), expected.layout,
                     check.Inside() ? InsideText(check) : "outside");
}

nlohmann::ordered_json DepartureJson(const Departure& one) {
  nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
  for (const Reason& reason : one.reasons) {
    nlohmann::ordered_json row = {{"factor", reason.factor}, {"measured", reason.measured}};
    if (reason.rank >= 0) {
      row[reason.local ? "local_rank" : "rank"] = reason.rank;
      if (!reason.ranks.empty()) row[reason.local ? "local_ranks" : "ranks"] = reason.ranks;
      if (!reason.tasks.empty()) row["tasks"] = reason.tasks;
      if (!reason.timer.empty()) row["timer"] = reason.timer;
    } else {
      row["term"] = reason.term;
    }
    reasons.push_back(row);
  }
  nlohmann::ordered_json made = {{"schema", "orrery.watch/1"},
                                 {"event", one.over ? "was_outside" : "outside"},
                                 {"what", one.memory ? "memory"
                                          : one.mean ? "mean_step_time"
                                                     : "step_time"},
                                 {"side", one.memory ? "above" : SideText(one.side)},
                                 {"since_step", one.since},
                                 {"since_line", one.line},
                                 {"steps", one.steps},
                                 {one.memory ? "measured_bytes" : "measured_s", one.measured},
                                 {one.memory ? "predicted_bytes" : "predicted_s", one.predicted},
                                 {one.memory ? "bound_bytes" : "bound_s", one.bound}};
  if (one.memory) {
    made["kind"] = one.reserved ? "reserved" : "allocated";
    if (!one.ranks.empty()) made[one.local ? "local_ranks" : "ranks"] = one.ranks;
    if (one.local && !one.tasks.empty()) made["tasks"] = one.tasks;
    return made;
  }
  made["fits"] = reasons;
  made["extra_hours_per_1000_steps"] = one.extra_hours;
  made["extra_usd_per_1000_steps"] =
      one.extra_dollars ? nlohmann::ordered_json(*one.extra_dollars) : nlohmann::ordered_json();
  return made;
}

std::string LossText(const measured::LossFault& loss) { return measured::WordsOf(loss) + "\n"; }

nlohmann::ordered_json LossJson(const measured::LossFault& loss) {
  return {{"schema", "orrery.watch/1"},
          {"event", loss.lasts ? "loss" : "loss_was"},
          {"what", "loss"},
          {"value", loss.value},
          {"since_step", loss.step},
          {"since_line", loss.line},
          {"lines", loss.lines}};
}

nlohmann::ordered_json SummaryJson(const LogCheck& check, const Expectation& expected) {
  return {{"schema", "orrery.watch/1"},
          {"event", "summary"},
          {"inside", check.Inside() && !check.outside_before},
          {"outside_before", check.outside_before},
          {"steps", check.steps},
          {"outside_steps", check.outside},
          {"loss_is_number", !check.LossIsLost()},
          {"patience", check.patience},
          {"other_batch_steps", check.told.other_batch},
          {"median_s", check.median.value_or(0)},
          {"share_of_peak", check.peak_share > 0 ? nlohmann::ordered_json(check.peak_share)
                                                 : nlohmann::ordered_json()},
          {"predicted_s", expected.step},
          {"interval_s", {expected.low, expected.high}},
          {"layout", expected.layout},
          {"digest", expected.digest},
          {"plan_on_trust", check.foreign && check.told.OnTrust()},
          {"notes", compare::Words(check.told)}};
}

}  // namespace orrery::watch
