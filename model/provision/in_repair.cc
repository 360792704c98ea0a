// SPDX-License-Identifier: Apache-2.0
// Poisson numbers of nodes in repair.
#include "model/provision/in_repair.h"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kFar = 12;  // deviations of a Poisson number that count

double PoissonWeight(double n, double mean) {
  if (mean <= 0) return n == 0 ? 1 : 0;
  return std::exp(n * std::log(mean) - mean - std::lgamma(n + 1));
}

// Of Gauss and Legendre, from 0 to 1: symmetric, the first half.
constexpr std::pair<double, double> kNodes[] = {{0.0198550717512319, 0.0506142681451881},
                                                {0.1016667612931866, 0.1111905172266872},
                                                {0.2372337950418355, 0.1568533229389437},
                                                {0.4082826787521751, 0.1813418916891810}};

// C(rho).
double Covariance(double mean, int64_t spares, double rho) {
  const double shared = mean * rho, others = mean - shared;
  const double reach = kFar * std::sqrt(shared + 1) + kFar;
  const auto first = std::max<int64_t>(0, static_cast<int64_t>(shared - reach));
  const auto last = static_cast<int64_t>(shared + reach);
  // E max(0, others - need) and P(others >= need), where shared ones leave `need` spares: sums of positive terms.
  int64_t need = spares - first;
  double away = need > 0 ? MeanWithoutSpare(others, need) : others - static_cast<double>(need);
  double any = AtLeast(others, need);
  std::vector<double> weights, values;
  double sum = 0, all = 0;
  for (int64_t n = first; n <= last; ++n) {
    weights.push_back(PoissonWeight(static_cast<double>(n), shared));
    values.push_back(away);
    sum += weights.back() * away, all += weights.back();
    away += any;
    if (--need >= 0) any += PoissonWeight(static_cast<double>(need), others);
  }
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    squares += weights[i] * (values[i] - sum / all) * (values[i] - sum / all);
  return squares / all;
}

}  // namespace

double AtLeast(double mean, int64_t least) {
  if (least <= 0) return 1;
  const auto k = static_cast<double>(least);
  if (k <= mean) {
    double below = 0;
    for (int64_t n = 0; n < least; ++n) below += PoissonWeight(static_cast<double>(n), mean);
    return 1 - below;
  }
  double sum = 0;
  double weight = PoissonWeight(k, mean);
  for (double n = k; weight > 1e-16 * sum; weight *= mean / ++n) sum += weight;
  return sum;
}

double MeanWithoutSpare(double mean, int64_t spares) {
  if (mean <= 0) return 0;
  const auto k = static_cast<double>(spares);
  // From the side where there is less to add.
  double sum = 0;
  if (k <= mean) {
    for (int64_t n = 0; n < spares; ++n)
      sum += static_cast<double>(spares - n) * PoissonWeight(static_cast<double>(n), mean);
    return mean - k + sum;
  }
  double weight = PoissonWeight(k + 1, mean);
  for (double n = k + 1; weight > 0; weight *= mean / ++n) {
    const double term = (n - k) * weight;
    sum += term;
    if (term < 1e-14 * sum) break;
  }
  return sum;
}

double VarianceOverChain(double mean, int64_t spares) {
  if (spares <= 0 || mean <= 0) return 1;
  double fixed = 0, chain = 0;
  for (const auto& [node, weight] : kNodes) {
    for (const double rho : {node, 1 - node}) {
      const double c = Covariance(mean, spares, rho);
      fixed += weight * c;
      chain += weight * c / (2 * rho);
    }
  }
  return chain > 1e-100 ? std::max(1.0, fixed / chain) : 1;
}

RepairPath::RepairPath(double groups, int64_t spares, double rate, double repair, double work) {
  constexpr std::size_t kPerRepair = 64;
  constexpr double kLeastThere = 1e-3;  // of the groups: else no work is done
  constexpr std::size_t kMost = 100'000;
  const auto share = [&](double in_repair) {
    return std::max(kLeastThere, 1 - MeanWithoutSpare(in_repair, spares) / groups);
  };
  const double dt = repair / kPerRepair;
  std::vector<double> there;  // by time
  double now = 0, done = 0;
  for (std::size_t i = 0; (done < work || i <= kPerRepair) && i < kMost; ++i) {
    there.push_back(share(now));
    const double back = i < kPerRepair ? 0 : there[i - kPerRepair];
    if (i >= kPerRepair) {
      done_.push_back(done);
      returns_.push_back(rate * (back + there[i]) / std::max(now, 1e-300));
    }
    now = std::max(0.0, now + dt * rate * (there[i] - back));
    done += dt * there[i];
  }
  there_ = there[kPerRepair];
  // In the long run as many come back as fail: n = rate X share(n).
  double low = 0, high = rate * repair;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (middle < rate * repair * share(middle) ? low : high) = middle;
  }
  settled_ = low;
}

double RepairPath::Returns(double work) const {
  const auto after = std::ranges::upper_bound(done_, work);
  const auto i = std::max<std::ptrdiff_t>(0, after - done_.begin() - 1);
  return returns_[static_cast<std::size_t>(i)];
}

}  // namespace orrery
