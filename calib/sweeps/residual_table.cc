// SPDX-License-Identifier: Apache-2.0
// Marginal likelihood over a grid, posterior mean at the points and beyond the ends.
#include "calib/sweeps/residual_table.h"

#include <Eigen/Dense>
#include <cmath>

namespace orrery {
namespace {

constexpr double kOctave = 0.6931471805599453;
constexpr double kAmplitudes[] = {0.003, 0.01, 0.03, 0.06, 0.12, 0.25};
constexpr double kReaches[] = {1, 2, 4, 8};  // octaves
constexpr double kNoises[] = {0.002, 0.005, 0.01, 0.02, 0.05};
constexpr double kLikelyNoise = 0.007, kLikelyAmplitude = 0.04;  // nccl-tests repeats, formula

struct Choice {
  double amplitude = 0, reach = 1, noise = 0;
};

Eigen::MatrixXd Covariance(const Eigen::VectorXd& x, const Choice& choice) {
  const Eigen::Index n = x.size();
  Eigen::MatrixXd k(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j)
      k(i, j) = choice.amplitude * choice.amplitude *
                std::exp(-std::abs(x[i] - x[j]) / (choice.reach * kOctave));
    k(i, i) += choice.noise * choice.noise;
  }
  return k;
}

double Square(double x) { return x * x; }

// Of the residuals, with weak opinions on scatter and amplitude for short sweeps.
double LogLikelihood(const Eigen::VectorXd& x, const Eigen::VectorXd& y, const Choice& choice) {
  const Eigen::LLT<Eigen::MatrixXd> llt(Covariance(x, choice));
  if (llt.info() != Eigen::Success) return -INFINITY;
  const double logs = llt.matrixL().toDenseMatrix().diagonal().array().log().sum();
  return -0.5 * y.dot(llt.solve(y)) - logs - 0.5 * Square(std::log(choice.noise / kLikelyNoise)) -
         0.5 * Square(std::log(choice.amplitude / kLikelyAmplitude));
}

Choice MostLikely(const Eigen::VectorXd& x, const Eigen::VectorXd& y) {
  Choice best{kLikelyAmplitude, kReaches[0], kLikelyNoise};
  double most = -INFINITY;
  for (double amplitude : kAmplitudes) {
    for (double reach : kReaches) {
      for (double noise : kNoises) {
        const Choice choice{amplitude, reach, noise};
        const double likelihood = LogLikelihood(x, y, choice);
        if (likelihood > most) most = likelihood, best = choice;
      }
    }
  }
  return best;
}

}  // namespace

ResidualTable ShrinkResiduals(const std::vector<SweepCurve::Residual>& residuals) {
  ResidualTable table;
  if (residuals.empty()) return table;
  const auto n = static_cast<Eigen::Index>(residuals.size());
  Eigen::VectorXd x(n), y(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    x[i] = residuals[static_cast<std::size_t>(i)].log_bytes;
    y[i] = residuals[static_cast<std::size_t>(i)].log_ratio;
  }
  const Choice choice = MostLikely(x, y);
  table.noise = choice.noise;
  const Eigen::MatrixXd covariance = Covariance(x, choice);
  const Eigen::VectorXd weights = covariance.llt().solve(y);
  for (Eigen::Index i = 0; i < n; ++i) {
    if (i > 0 && x[i] == x[i - 1]) continue;
    double mean = 0;
    for (Eigen::Index j = 0; j < n; ++j)
      mean += choice.amplitude * choice.amplitude * weights[j] *
              std::exp(-std::abs(x[i] - x[j]) / (choice.reach * kOctave));
    table.entries.push_back({x[i], mean});
  }
  return table;
}

}  // namespace orrery
