// SPDX-License-Identifier: Apache-2.0
// Rates of stops, and how long those wait that find no spare.
#include "model/provision/run_stops.h"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kStopsDay = 86400;

}  // namespace

double InRepair(const Conditions& conditions, double nodes, double rate) {
  return nodes * rate / 1000 * (conditions.recovery.repair.value / kStopsDay);
}

double SpotRate(const Conditions& conditions, const Quote* quote) {
  if (quote == nullptr || quote->price.kind != PriceKind::kSpot) return 0;
  return quote->offer.spot_rate.value_or(conditions.spot.rate.value);
}

StopModel StopsOf(const Conditions& conditions, const Job& job, const CheckpointCost& checkpoint,
                  const Quote* quote, double rate, int64_t spares, Seconds work) {
  const auto nodes = static_cast<double>(job.cluster.nodes);
  const double interruptions = SpotRate(conditions, quote);
  const double all = std::max(rate + interruptions, 1e-9);
  StopModel model;
  model.between = Seconds(1000 * kStopsDay / (nodes * all));
  model.blocking = checkpoint.blocking;
  model.background = checkpoint.background;
  model.detection = conditions.recovery.detection;
  model.restart = conditions.recovery.restart + checkpoint.load;
  // Where a failure finds all spares in repair, the first of them to come back ends the wait: of one repair that begins and k that
  // are under way, each for a time that is uniform. A node that is reclaimed is not in repair: another takes its place.
  // Repairs go on while the job is down and cannot fail: since the failure that took the first of k spares it was down k times,
  // so that so much of a repair is over in any case, and again at each interruption, as if failures came more slowly.
  const auto k = static_cast<double>(spares);
  model.repaired = rate / all;
  model.repair = conditions.recovery.repair;
  model.spares = spares;
  const Seconds repair = std::max(Seconds(0), model.repair - model.detection * k);
  if (repair.value > 0) {
    const double slower = 1 + nodes * interruptions / 1000 * (model.detection.value / kStopsDay);
    const double in_repair = InRepair(conditions, nodes, rate) * (repair / model.repair) / slower;
    const double variation = WaitVariation(in_repair, spares);
    const Shortage shortage = ShortageIn(work / repair * slower, in_repair, spares, variation);
    model.waits = model.repaired * shortage.share;
    model.wait = repair * shortage.wait;
    model.wait_deviation = repair / (k + 1) * std::sqrt(variation);
    model.wait_growth = WaitGrowth(in_repair, spares);
  }
  if (interruptions > 0 &&
      quote->offer.spot_notice.value_or(Seconds(0)) >= checkpoint.blocking + checkpoint.background)
    model.with_notice = interruptions / all;
  return model;
}

}  // namespace orrery
