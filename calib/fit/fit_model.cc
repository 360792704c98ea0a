// SPDX-License-Identifier: Apache-2.0
// Predicts under many sets of constants.
#include "calib/fit/fit_model.h"

#include <atomic>
#include <cmath>
#include <numeric>

#include "model/base/parallel.h"

namespace orrery {
namespace {

constexpr double kStep = 2e-3;  // of a logarithm
constexpr double kJump = 0.5;   // difference of slopes that no smooth change explains

// The mean of both sides; beside a jump of the model, the side without it.
double Slope(double up, double down) {
  if (std::abs(up - down) < kJump) return 0.5 * (up + down);
  return std::abs(up) < std::abs(down) ? up : down;
}

bool Reaches(const FitParameter& parameter, const Observation& seen) {
  for (const auto& [layer, index] : parameter.heirs) {
    const int own = layer == ProfileLayer::kGpu      ? seen.gpu
                    : layer == ProfileLayer::kFabric ? seen.fabric
                                                     : seen.framework;
    if (own == index) return true;
  }
  return false;
}

}  // namespace

Fitter::Model::Model(const Evidence& evidence, const std::vector<FitParameter>& parameters,
                     int threads)
    : evidence_(evidence), parameters_(parameters) {
  const auto& seen = evidence.observations();
  scale.assign(seen.size(), 1.0);
  left_out.assign(seen.size(), false);
  stores_.assign(std::max(1, threads), evidence.store());
  depends_.resize(seen.size());
  rows_.resize(parameters.size());
  all_.resize(seen.size());
  std::iota(all_.begin(), all_.end(), 0);
  for (std::size_t j = 0; j < parameters.size(); ++j) {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (!Reaches(parameters[j], *seen[i])) continue;
      depends_[i].push_back(static_cast<int>(j));
      rows_[j].push_back(static_cast<int>(i));
    }
  }
}

std::vector<int> Fitter::Model::Active(const std::vector<int>& rows) const {
  std::vector<int> active;
  for (int row : rows) {
    if (!left_out[row]) active.push_back(row);
  }
  return active;
}

void Fitter::Model::Apply(const Eigen::VectorXd& x, ProfileStore* store) const {
  for (std::size_t j = 0; j < parameters_.size(); ++j)
    parameters_[j].Apply(std::exp(x[static_cast<Eigen::Index>(j)]), store);
}

std::vector<double> Fitter::Model::Errors(const Eigen::VectorXd& x, const std::vector<int>& which) {
  Apply(x, &stores_.front());
  std::vector<double> values = evidence_.Predict(stores_.front(), which);
  for (std::size_t i = 0; i < which.size(); ++i)
    values[i] = std::log(values[i] / evidence_.observations()[which[i]]->measured);
  return values;
}

void Fitter::Model::Column(const Eigen::VectorXd& x, int j, ProfileStore* store,
                           Eigen::MatrixXd* out) const {
  const std::vector<int> rows = Active(rows_[j]);
  const Variable& variable = parameters_[j].variable;
  if (rows.empty()) return;
  const auto slopes = [&](double step) {
    parameters_[j].Apply(std::exp(x[j] + step), store);
    std::vector<double> values = evidence_.Predict(*store, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double error = std::log(values[i] / evidence_.observations()[rows[i]]->measured);
      values[i] = (error - errors_[rows[i]]) / step;
    }
    return values;
  };
  const std::vector<double> up = slopes(x[j] + kStep < variable.upper ? kStep : -2 * kStep);
  const std::vector<double> down = slopes(x[j] - kStep > variable.lower ? -kStep : 2 * kStep);
  parameters_[j].Apply(std::exp(x[j]), store);
  for (std::size_t i = 0; i < rows.size(); ++i) (*out)(rows[i], j) = Slope(up[i], down[i]);
}

void Fitter::Model::ComputeJacobian(const Eigen::VectorXd& x) {
  last_jacobian.setZero(residuals(), x.size());
  std::atomic<int> next = 0;
  errors_.assign(all_.size(), 0.0);
  const std::vector<int> active = Active(all_);
  const std::vector<double> here = Errors(x, active);
  for (std::size_t i = 0; i < active.size(); ++i) errors_[active[i]] = here[i];
  OnThreads(static_cast<int>(stores_.size()), [&](int thread) {
    ProfileStore* store = &stores_[static_cast<std::size_t>(thread)];
    Apply(x, store);
    for (int j = next++; j < static_cast<int>(parameters_.size()); j = next++) {
      Column(x, j, store, &last_jacobian);
    }
  });
}

void Fitter::Model::Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r,
                             Eigen::MatrixXd* jacobian) {
  if (linear != nullptr) {
    *r = linear->residuals + linear->jacobian * (x - linear->x);
    if (jacobian != nullptr) *jacobian = linear->jacobian;
    return;
  }
  const std::vector<int> active = Active(all_);
  const std::vector<double> errors = Errors(x, active);
  r->setZero(residuals());
  for (std::size_t i = 0; i < active.size(); ++i) (*r)[active[i]] = errors[i] / scale[active[i]];
  if (jacobian == nullptr) return;
  ComputeJacobian(x);
  *jacobian = last_jacobian;
  for (Eigen::Index i = 0; i < jacobian->rows(); ++i) jacobian->row(i) /= scale[i];
}

}  // namespace orrery
