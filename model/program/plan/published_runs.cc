// SPDX-License-Identifier: Apache-2.0
// The table of published runs.
#include "model/program/plan/published_runs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/provision/published.h"

namespace orrery::report {
namespace {

constexpr const char* kNote =
    "predicted: rate of stops, interval, detection, restart and blocking as the source prints "
    "them, "
    "everything else by default, none chosen per run. Rows and sources: "
    "calib/data/published_goodput.csv.";

std::string Figure(const PublishedGoodput& run, double low, double high) {
  const auto one = [&](double value) {
    return run.is_mtbf ? ThreeDigits(value) + " h" : Percent(value);
  };
  return low == high ? one(low) : fmt::format("{} to {}", one(low), one(high));
}

std::string PublishedResult(const PublishedGoodput& run) {
  if (run.Miss() <= kPublishedWithin)
    return run.Miss() == 0 ? "agrees" : run.is_mtbf ? "within 3 %" : "within 3 points";
  return run.known_miss.empty() ? "MISSES" : "known miss";
}

}  // namespace

std::string PublishedRunsText() {
  Table table({{"run"}, {"published", true}, {"predicted", true}, {""}});
  std::string misses;
  for (const PublishedGoodput& run : PublishedGoodputs()) {
    table.Row({run.run,
               (run.at_least ? "> " : "") + Figure(run, run.published_low, run.published_high),
               Figure(run, run.predicted_low, run.predicted_high), PublishedResult(run)});
    if (!run.known_miss.empty() && run.Miss() > kPublishedWithin)
      misses += fmt::format("  - {}\n", Fold(fmt::format("{}: {}", run.run, run.known_miss), 4));
  }
  return "Effective training time of published runs, and mean hours between stops\n" +
         table.Text() + fmt::format("  {}\n", Fold(kNote, 2)) + "\nKnown misses\n" + misses;
}

std::string PublishedRunsBrief() {
  int runs = 0, known = 0, misses = 0;
  for (const PublishedGoodput& run : PublishedGoodputs()) {
    ++runs;
    if (run.Miss() > kPublishedWithin) ++(run.known_miss.empty() ? misses : known);
  }
  return fmt::format("{} published goodputs: {} within {:.0f} %, {} known miss{}{}", runs,
                     runs - known - misses, 100 * kPublishedWithin, known, known == 1 ? "" : "es",
                     misses > 0 ? fmt::format(", {} MISSED", misses) : "");
}

nlohmann::ordered_json PublishedRunsJson() {
  nlohmann::ordered_json json = {{"schema", "orrery.published-goodput/1"}};
  json["note"] = kNote;
  json["runs"] = nlohmann::ordered_json::array();
  for (const PublishedGoodput& run : PublishedGoodputs()) {
    json["runs"].push_back({{"run", run.run},
                            {"quantity", run.is_mtbf ? "mtbf_h" : "goodput"},
                            {"at_least", run.at_least},
                            {"published", {run.published_low, run.published_high}},
                            {"predicted", {run.predicted_low, run.predicted_high}},
                            {"miss", run.Miss()},
                            {"verdict", PublishedResult(run)},
                            {"known_miss", run.known_miss},
                            {"source", run.source}});
  }
  return json;
}

}  // namespace orrery::report
