// SPDX-License-Identifier: Apache-2.0
// Closed forms of goodput.
#include "model/provision/goodput.h"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

// Per life, in seconds of computing.
double KeptWithoutNotice(const StopModel& model, double tau) {
  const double m = model.between.value;
  return tau * std::exp(-model.background.value / m) / std::expm1((tau + model.blocking.value) / m);
}

double KeptWithNotice(const StopModel& model, double tau) {
  const double m = model.between.value;
  return m * std::expm1(-tau / m) / std::expm1(-(tau + model.blocking.value) / m);
}

double Kept(const StopModel& model, double tau) {
  double kept = 0;
  if (model.with_notice < 1) kept += (1 - model.with_notice) * KeptWithoutNotice(model, tau);
  if (model.with_notice > 0) kept += model.with_notice * KeptWithNotice(model, tau);
  return kept;
}

// Golden section: `Kept` rises to one maximum and falls.
double BestInterval(const StopModel& model, double low, double high) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double a = std::log(low), b = std::log(high);
  double c = b - golden * (b - a), d = a + golden * (b - a);
  double at_c = Kept(model, std::exp(c)), at_d = Kept(model, std::exp(d));
  while (b - a > 1e-9) {
    if (at_c > at_d) {
      b = d, d = c, at_d = at_c;
      c = b - golden * (b - a), at_c = Kept(model, std::exp(c));
    } else {
      a = c, c = d, at_c = at_d;
      d = a + golden * (b - a), at_d = Kept(model, std::exp(d));
    }
  }
  return std::exp((a + b) / 2);
}

}  // namespace

double Goodput(const StopModel& model, Seconds interval) {
  const double m = model.between.value;
  const double cycle =
      (m + (model.detection + model.MeanWait()).value) * std::exp(model.restart.value / m);
  return Kept(model, interval.value) / cycle;
}

double FirstOrderGoodput(const StopModel& model, Seconds interval) {
  const double period = interval.value + model.blocking.value;
  const double lost = (model.detection + model.MeanWait() + model.restart + model.background).value;
  return 1 - model.blocking.value / period - (lost + period / 2) / model.between.value;
}

namespace {

// log(1 - y) + y, by its series where the two nearly cancel.
double LogAndItself(double y) {
  if (y > 0.05) return std::log1p(-y) + y;
  double power = y, sum = 0;
  for (int n = 2; n < 20; ++n) sum -= (power *= y) / n;
  return sum;
}

}  // namespace

Seconds ExactInterval(Seconds between, Seconds blocking) {
  const double m = between.value, b = blocking.value;
  double y = std::min(std::sqrt(2 * b / m), 0.999);
  // log(1 - y) + y + b/M falls with y and is concave: from above its root Newton's method stays above it.
  for (int i = 0; i < 100; ++i) {
    const double f = LogAndItself(y) + b / m;
    const double next = std::clamp(y + f * (1 - y) / y, y / 10, y + (1 - y) * 0.9);
    if (std::abs(next - y) <= 1e-15 * y) break;
    y = next;
  }
  return Seconds(y * m);
}

Seconds YoungInterval(Seconds between, Seconds blocking) {
  return Seconds(std::sqrt(2 * blocking.value * between.value));
}

Seconds DalyInterval(Seconds between, Seconds blocking) {
  const double m = between.value, b = blocking.value;
  if (b >= 2 * m) return between;
  const double x = b / (2 * m);
  return Seconds(std::sqrt(2 * b * m) * (1 + std::sqrt(x) / 3 + x / 9) - b);
}

Seconds OptimalInterval(const StopModel& model, Seconds work) {
  // One write in flight; a run that ends before the next one writes once.
  const double least =
      std::max(std::min((model.background - model.blocking).value, work.value), 1e-3);
  if (model.with_notice > 0) {
    const double most = std::max(100 * least, 20 * model.between.value);
    return Seconds(std::max(least, BestInterval(model, 1e-3, most)));
  }
  if (model.blocking.value <= 0) return Seconds(least);
  return std::max(Seconds(least), ExactInterval(model.between, model.blocking));
}

JobTime TimeOf(const StopModel& model, Seconds interval, Seconds work) {
  JobTime time;
  time.mean = Seconds(work.value / Goodput(model, interval)) + model.background;
  const double period = interval.value + model.blocking.value;
  const double down = model.detection.value + model.restart.value;
  const double lost = down + model.background.value + period / 2;
  const double longer = lost + model.wait.value;
  const double square =
      (1 - model.with_notice - model.waits) * lost * lost + model.waits * longer * longer +
      (1 - model.with_notice) * period * period / 12 + model.with_notice * down * down;
  time.stops = time.mean / (model.between + model.detection + model.MeanWait());
  time.deviation = Seconds(std::sqrt(time.stops * square));
  return time;
}

// By logarithms: exp(-mean) vanishes for clusters of a hundred thousand nodes.
double ShortageOf(double mean, int64_t spares) {
  if (spares < 0) return 1;
  if (mean <= 0) return 0;
  double term = -mean, covered = 0;
  for (int64_t k = 0; k <= spares; ++k) {
    if (k > 0) term += std::log(mean / static_cast<double>(k));
    covered += std::exp(term);
  }
  return std::max(0.0, 1 - covered);
}

int64_t SparesFor(double mean, double shortage_probability) {
  double term = -mean, covered = 0;
  for (int64_t k = 0;; ++k) {
    if (k > 0) term += std::log(mean / static_cast<double>(k));
    covered += std::exp(term);
    if (mean <= 0 || covered >= 1 - shortage_probability) return k;
    if (static_cast<double>(k) > mean + 60 * std::sqrt(mean) + 100) return k;
  }
}

}  // namespace orrery
