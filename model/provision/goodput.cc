// SPDX-License-Identifier: Apache-2.0
// Closed forms of goodput.
#include "model/provision/goodput.h"

#include <algorithm>
#include <cmath>
#include <vector>

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

namespace {

// A share of lives, or what one takes.
struct Moments {
  double share, mean, variance;
};

// Of an exponential time of mean m that is at most `a`; by series where m and what is taken from it nearly cancel.
Moments Within(double a, double m) {
  const double z = a / m, y = z / 2;
  Moments within{-std::expm1(-z), m - a / std::expm1(z), m * m};
  if (z < 0.2) {
    within.mean = a * (0.5 - z / 12 * (1 - z * z / 60 * (1 - z * z / 42)));
    within.variance = a * a / 12 * (1 - y * y / 5 * (1 - 10 * y * y / 63 * (1 - 7 * y * y / 50)));
  } else if (z < 700) {
    const double half = a / 2 / std::sinh(y);
    within.variance -= half * half;
  }
  return within;
}

// A - t Y of goodput.h, t = P/tau + `slower`; shares of stops with or without notice.
std::vector<Moments> LivesOf(const StopModel& model, double tau, bool notice, double slower) {
  const double m = model.between.value, b = model.blocking.value, w = model.background.value;
  const Moments period = Within(tau + b, m);
  const double alive = 1 - period.share,
               each = slower * tau / period.share;  // of periods in a life
  const double uneven = each * each * alive;
  if (!notice) {
    Moments none = Within(tau + b + w, m);
    return {none, {1 - none.share, w + period.mean - each, period.variance + uneven}};
  }
  const double excess = b / tau + slower;  // t - 1
  const Moments computing = Within(tau, m), blocked = Within(b, m);
  return {{computing.share / period.share, -each * alive - excess * computing.mean,
           uneven + excess * excess * computing.variance},
          {(1 - computing.share) * blocked.share / period.share,
           -each * alive + blocked.mean - excess * tau, uneven + blocked.variance}};
}

// Variance per second of work, V / E[Y].
double VariancePerWork(const StopModel& model, double tau) {
  const double m = model.between.value, x = model.wait.value, s = model.waits;
  const Moments restart = Within(model.restart.value, m);
  const double again = std::expm1(model.restart.value / m);
  const double kept = Kept(model, tau);
  const double stop = model.detection.value + s * x + restart.mean;
  const double down = model.detection.value + model.restart.value + again * stop;  // and X
  struct Kind {
    double share;
    bool notice;
    double down;
  };
  const Kind kinds[] = {{1 - model.with_notice - s, false, down},
                        {s, false, down + x},
                        {model.with_notice, true, down}};
  const auto sum = [&](double slower, auto of) {
    double all = 0;
    for (const Kind& kind : kinds) {
      for (const Moments& life : LivesOf(model, tau, kind.notice, slower))
        all += kind.share * life.share * of(life.mean + kind.down, life.variance);
    }
    return all;
  };
  const double slower = sum(0, [](double mean, double) { return mean; }) / kept;
  const double lives =
      sum(slower, [](double mean, double variance) { return variance + mean * mean; });
  // Of a stop, without its wait.
  const double stops = 1 + again;
  const double cost =
      ((m + model.detection.value + s * x) * stops - kept * (tau + model.blocking.value) / tau) /
          stops -
      s * x;
  const double waits = s * (model.wait_deviation.value * model.wait_deviation.value +
                            2 * (model.wait_growth - 1) * x * std::max(0.0, cost));
  const double restarts =
      again * (s * (1 - s) * x * x + waits + restart.variance) + again * (1 + again) * stop * stop;
  return (lives + waits + restarts) / kept;
}

}  // namespace

JobTime TimeOf(const StopModel& model, Seconds interval, Seconds work) {
  JobTime time;
  time.mean = Seconds(work.value / Goodput(model, interval)) + model.background;
  time.stops = time.mean / (model.between + model.detection + model.MeanWait());
  // Before the last write that is durable before the end.
  const double behind = std::max(0.0, (work - model.background) / interval);
  const double intervals = std::max(1.0, std::ceil(behind)) - 1;
  const double last = work.value - intervals * interval.value;
  StopModel unwritten = model;
  unwritten.blocking = unwritten.background = Seconds(0);
  double variance = last > 0 ? last * VariancePerWork(unwritten, last) : 0;
  if (intervals > 0)
    variance += intervals * interval.value * VariancePerWork(model, interval.value);
  time.deviation = Seconds(std::sqrt(variance));
  return time;
}

double FindsNone(double mean_in_repair, int64_t spares) {
  double none = 1;
  for (int64_t k = 1; k <= spares; ++k)
    none *= mean_in_repair / (static_cast<double>(k) + mean_in_repair * none);
  return none;
}

namespace {

// P(t) of goodput.h; the inner sum by tails of Poisson's distribution, T_d - d/x T_{d + 1}.
double AllInRepairAgain(double t, int64_t servers, double mean_in_repair) {
  const double x = mean_in_repair * t;
  if (x <= 0) return 1;
  const auto c = static_cast<double>(servers);
  double over = std::pow(1 - t, c), failures = std::exp(-x), tail = 1, again = 0;
  for (double d = 0; d <= c; ++d) {
    const double next = std::max(0.0, tail - failures);
    again += over * std::max(0.0, tail - d / x * next);
    over *= (c - d) / (d + 1) * t / (1 - t);
    failures *= x / (d + 1);
    tail = next;
  }
  return again;
}

// Bunches of exponential repairs.
double LastingBunches(double all_in_repair, int64_t servers, double mean_in_repair) {
  std::vector<double> p(static_cast<std::size_t>(servers) + 1, all_in_repair);
  for (std::size_t j = p.size() - 1; j > 0; --j)
    p[j - 1] = p[j] * static_cast<double>(j) / mean_in_repair;
  double up_to = 0, sum = 0;
  for (std::size_t j = 0; j + 2 < p.size(); ++j) {
    up_to += p[j];
    if (p[j] > 0) sum += up_to * (up_to / p[j]);
  }
  const double free = 1 - all_in_repair;
  return sum * all_in_repair * static_cast<double>(servers) / (mean_in_repair * free * free);
}

}  // namespace

double WaitVariation(double mean_in_repair, int64_t spares) {
  constexpr double kRare = 1e-6;         // share of failures: hardly two of them meet
  constexpr int64_t kMostServers = 100;  // powers of (1 - t) and exp(-x) stay numbers
  if (spares == 0) return 0;
  const auto k = static_cast<double>(spares);
  const double alone = k / (k + 2);
  if (FindsNone(mean_in_repair, spares) < kRare) return alone;
  const int64_t servers = spares + 1;
  const double all = FindsNone(mean_in_repair, servers);
  const double lasting = LastingBunches(all, servers, mean_in_repair);
  if (servers > kMostServers || mean_in_repair > 5 * kMostServers) return lasting;
  // Simpson's rule; P falls within 1/c.
  const int parts = 8 + 2 * static_cast<int>(servers);
  double sum = 0;
  for (int i = 0; i < parts; ++i) {
    const double weight = i == 0 ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * AllInRepairAgain(static_cast<double>(i) / parts, servers, mean_in_repair);
  }
  // At t = 1 all c have to be replaced.
  sum += AllInRepairAgain(1 - 1e-9, servers, mean_in_repair);
  const double free = 1 - all;
  const double within = (sum / (3 * parts) - all) / (free * free);
  return std::max(2 * (k + 1) * within - 1, lasting);
}

namespace {

// P(Poisson(mean) >= count).
double PoissonTail(double mean, double count) {
  double term = std::exp(-mean), tail = 1;
  for (double n = 0; n < count; ++n) {
    tail -= term;
    term *= mean / (n + 1);
  }
  return std::max(0.0, tail);
}

// Failures at each time of the first repair's, and those after it: share that waits, and for how long.
struct Begun {
  double share = 0, waits = 0,
         first = 0;  // waits: over all failures; first: of the first wait alone, a run
};
Begun BeginsWithNone(double begun, double mean_in_repair, double k) {
  constexpr int kParts = 16;  // of Simpson's rule
  Begun sum;
  for (int i = 0; i <= kParts; ++i) {
    const double weight = (i == 0 || i == kParts ? 1 : i % 2 == 1 ? 4 : 2) / (3.0 * kParts);
    const double at = begun * i / kParts, in_repair = mean_in_repair * at;
    const double none = weight * FindsNone(in_repair, static_cast<int64_t>(k));
    const double wait = 1 - at * k / (k + 1);
    sum.share += none;
    sum.waits += none * wait;
    if (in_repair > 0)
      sum.first += weight * wait * mean_in_repair * begun *
                   std::exp(k * std::log(in_repair) - in_repair - std::lgamma(k + 1));
  }
  return sum;
}

}  // namespace

Shortage ShortageIn(double up, double mean_in_repair, int64_t spares, double variation) {
  constexpr double kMost = 600;  // exp(-a) stays a number
  const auto k = static_cast<double>(spares);
  const double c = k + 1, lasting = FindsNone(mean_in_repair, spares);
  if (spares == 0 || !(up > 0) || mean_in_repair > kMost) return {lasting, 1 / c};
  double share = 0, most = 0, run = up;  // waits make it longer
  Begun begun;
  for (int i = 0; i < 3; ++i) {
    const double first = std::min(1.0, run) / run;  // part of the run in which their number grows
    begun = BeginsWithNone(std::min(1.0, run), mean_in_repair, k);
    share = begun.share * first + lasting * (1 - first);
    most = mean_in_repair * up * (begun.waits * first + lasting * (1 - first) / c);
    run = up + most;
  }
  if (!(share > 0)) return {0, 1 / c};
  const double all = FindsNone(mean_in_repair, spares + 1), free = 1 - all;
  const double start = PoissonTail(mean_in_repair, c) -
                       c / mean_in_repair * PoissonTail(mean_in_repair, c + 1) - all;
  const double waits = (all * up + start + all * free * (1 + variation) / (2 * c)) / free;
  return {share, std::min(most, std::max(begun.first, waits)) / (mean_in_repair * up * share)};
}

double WaitGrowth(double mean_in_repair, int64_t spares) {
  const double all = FindsNone(mean_in_repair, spares + 1);
  return std::max(1.0, static_cast<double>(spares + 1) / (1 - all) - mean_in_repair);
}

// By logarithms: exp(-mean) vanishes for clusters of a hundred thousand nodes.
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
