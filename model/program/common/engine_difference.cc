// SPDX-License-Identifier: Apache-2.0
// Where the two engines differ: in which term, and what the simulation sees that the closed form takes the mean or the most of.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/base/text.h"
#include "model/program/common/candidate_report.h"
#include "model/report/short_number.h"

namespace orrery::report {
namespace {

constexpr double kSameMessages =
    0.03;  // sums of messages that differ by less are of the same prices
constexpr double kUnevenStages = 1.02;

std::string Time(double seconds) { return Format(Seconds(std::abs(seconds))); }

// Who shares the link where most of the contention is; "": not known.
std::string ContentionReason(const Prediction& candidate) {
  const std::vector<sim::SharedLink>& shared = candidate.simulated->shared;
  const auto link = std::ranges::max_element(shared, {}, &sim::SharedLink::seconds);
  if (link == shared.end() || link->link.empty() || !(candidate.time.contention > 0)) return "";
  const std::vector<std::string> others = sim::SharedWith(*link);
  return others.empty() ? fmt::format("{} fills {} by itself", AxisWords(link->axis), link->link)
                        : fmt::format("{} shares {} with {}", AxisWords(link->axis), link->link,
                                      fmt::join(others, " and "));
}

std::string MessageReason(const Prediction& candidate, CommAxis axis) {
  if (candidate.simulated->uneven.Of(axis)) {
    return "its messages take longer between some ranks than between others (inside and between "
           "nodes): in the simulation each rank runs ahead or waits by its own, the closed form "
           "has "
           "the same for all ranks of a stage";
  }
  const StepTime &simulated = candidate.time, &closed = candidate.ClosedForm();
  const double exposed = simulated.*ExposedOf(axis) - closed.*ExposedOf(axis);
  const double hidden = simulated.*HiddenOf(axis) - closed.*HiddenOf(axis);
  const double all = closed.*ExposedOf(axis) + closed.*HiddenOf(axis);
  if (std::abs(exposed + hidden) <= kSameMessages * all) {
    return fmt::format(
        "of the same messages {} {} behind kernels: the simulation has the kernels that run while "
        "each is under way, the closed form those of a mean layer",
        Time(hidden), hidden < 0 ? "less hide" : "more hide");
  }
  return exposed > 0 ? "in the simulation its messages also wait for the one before on their "
                       "channel and for the last of their ranks; the closed form adds up prices"
                     : "in the simulation its messages are under way while the device waits for "
                       "something else; the closed form adds up prices";
}

// Of any term but contention.
std::string Reason(const Prediction& candidate, const BreakdownTerm& term) {
  const sim::Unevenness& uneven = candidate.simulated->uneven;
  for (const CommAxis axis : kCommAxes)
    if (term.seconds == ExposedOf(axis)) return MessageReason(candidate, axis);
  if (term.seconds == &Breakdown::host) {
    return fmt::format(
        "a host issues the step in {}: the simulation follows it op by op, ahead of the device "
        "while "
        "that waits and behind it at short kernels; the closed form compares both once per pass",
        Time(uneven.host));
  }
  if (term.seconds == &Breakdown::bubble) {
    return uneven.stages > kUnevenStages
               ? fmt::format(
                     "kernels of the busiest stage take {:.2f} times those of the idlest: "
                     "the simulation plays every pass, while it fills and drains, too; the "
                     "closed form counts the wait of stages by a formula",
                     uneven.stages)
               : std::string(
                     "stages are alike: the simulation plays every pass, while the pipeline "
                     "fills and drains, too; the closed form counts those passes by a formula");
  }
  if (term.seconds == &Breakdown::offload) {
    return "copies and updates of the CPU stand in queues: the simulation starts each when the one "
           "before has ended, the closed form adds up what a layer or a unit hides";
  }
  return "the simulation shows the rank that computes longest, the closed form its busiest stage";
}

}  // namespace

std::string EngineDifference(const Prediction& candidate) {
  if (!candidate.EnginesDiffer()) return "";
  const StepTime& closed = candidate.ClosedForm();
  std::string text =
      fmt::format("{} simulated, {} in closed form", Format(Seconds(candidate.time.total)),
                  Format(Seconds(closed.total)));
  const bool covered = candidate.time.low <= closed.total && closed.total <= candidate.time.high;
  const char* covers = covered ? ". The interval covers both" : "";
  if (std::isnan(candidate.time.compute)) return text + covers;
  const auto more = [&](const BreakdownTerm& term) {
    return candidate.time.*term.seconds - closed.*term.seconds;
  };
  const BreakdownTerm& most = *std::ranges::max_element(
      BreakdownTerms(), {}, [&](const BreakdownTerm& term) { return std::abs(more(term)); });
  text += fmt::format(". Largest difference: {} ({}{})", most.name, more(most) < 0 ? "-" : "+",
                      Time(more(most)));
  const std::string why = most.seconds == &Breakdown::contention ? ContentionReason(candidate)
                                                                 : Reason(candidate, most);
  return text + (why.empty() ? "" : "; " + why) + covers;
}

}  // namespace orrery::report
